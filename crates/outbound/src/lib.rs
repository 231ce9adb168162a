//! Connections to hosts that customers choose: receivers of webhooks, and servers of images and other media.
//!
//! The name of a host is resolved once for each connection. If any of its addresses isn't allowed, the
//! connection is refused. Otherwise it is opened to one of the checked addresses, so a change of the DNS
//! records in the meantime has no effect. Proxies in the environment variables are ignored.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use kernel::urls::HttpUrl;
use kernel::{authorities, hosts};

/// The timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// The maximum number of a name's addresses that are tried.
const MAX_ADDRESSES: usize = 4;

/// The function that looks up the addresses of a name.
pub type Resolve = Box<dyn Fn(String, u16) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> + Send + Sync>;
/// The function that connects to an address.
pub type Connect = Box<dyn Fn(SocketAddr) -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync>;

/// The function that reads the addresses of this machine's interfaces.
pub type OwnAddresses = Box<dyn Fn() -> std::io::Result<Vec<IpAddr>> + Send + Sync>;

/// Access to the network. Tests replace it.
pub struct Network {
    pub resolve: Resolve,
    pub connect: Connect,
    pub own_addresses: OwnAddresses,
}

impl Network {
    /// Returns the network of this machine.
    pub fn of_machine() -> Self {
        Self {
            resolve: Box::new(|host, port| {
                Box::pin(async move {
                    let found = tokio::net::lookup_host((host, port)).await?;
                    Ok(found.map(|address| address.ip()).collect())
                })
            }),
            connect: Box::new(|address| Box::pin(TcpStream::connect(address))),
            own_addresses: Box::new(|| {
                Ok(if_addrs::get_if_addrs()?.iter().map(if_addrs::Interface::ip).collect())
            }),
        }
    }
}

/// The reason why a connection can't be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DialError {
    /// The name has no addresses, or one of them isn't allowed. Only the log distinguishes these cases.
    NotReachable,
    /// No address accepted a connection.
    NotConnected,
    /// The certificate is invalid, or the host doesn't support TLS.
    TlsFailed,
}

/// A stream of bytes in both directions.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Opens connections.
pub struct Dialer {
    allow_private: bool,
    network: Network,
    /// Created on first use, because reading this machine's certificate authorities is slow.
    tls: OnceLock<Result<TlsConnector, String>>,
    roots: Option<RootCertStore>,
}

impl Dialer {
    /// Creates a dialer that trusts these certificate authorities; `None` for those of the machine. With
    /// `allow_private`, any address is allowed.
    pub fn new(allow_private: bool, network: Network, roots: Option<RootCertStore>) -> Self {
        Self { allow_private, network, tls: OnceLock::new(), roots }
    }

    /// Returns `true` if any address is allowed.
    pub const fn allows_private(&self) -> bool {
        self.allow_private
    }

    /// Connects to the host of a URL, with TLS if the URL is `https`.
    ///
    /// # Errors
    /// The connection fails, or isn't allowed.
    pub async fn dial(&self, url: &HttpUrl) -> Result<Box<dyn Connection>, DialError> {
        let addresses = self.addresses(url).await?;
        let stream = self.connect(&addresses, url.port()).await?;
        if !url.is_https() {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(url.host().to_owned()).map_err(|_| DialError::TlsFailed)?;
        let stream = self.tls()?.connect(name, stream).await.map_err(|_| DialError::TlsFailed)?;
        Ok(Box::new(stream))
    }

    /// Returns the addresses of a host. Returns an error if one of them isn't allowed.
    async fn addresses(&self, url: &HttpUrl) -> Result<Vec<IpAddr>, DialError> {
        let addresses = match url.address() {
            Some(address) => vec![address],
            None => (self.network.resolve)(url.host().to_owned(), url.port()).await.unwrap_or_default(),
        };
        if addresses.is_empty() {
            tracing::debug!(?url, "can't connect to a customer's host: its name has no address");
            return Err(DialError::NotReachable);
        }
        // A single disallowed address is enough to refuse the host, because an attacker can add an allowed
        // address to any name.
        if !self.allow_private && !self.are_allowed(&addresses) {
            tracing::debug!(
                ?url,
                ?addresses,
                "can't connect to a customer's host: one of its addresses isn't allowed"
            );
            return Err(DialError::NotReachable);
        }
        Ok(addresses)
    }

    /// Returns `true` if all addresses are on the public Internet and none belongs to this machine. A
    /// firewall doesn't protect this machine's services from connections by this machine.
    fn are_allowed(&self, addresses: &[IpAddr]) -> bool {
        let own = match (self.network.own_addresses)() {
            Ok(own) => own,
            Err(error) => {
                tracing::error!(
                    "can't connect to customers' hosts: this machine's addresses can't be read ({error}); \
                     under systemd `RestrictAddressFamilies` must have `AF_NETLINK`"
                );
                return false;
            }
        };
        addresses.iter().all(|address| hosts::is_public(*address) && !own.contains(address))
    }

    async fn connect(&self, addresses: &[IpAddr], port: u16) -> Result<TcpStream, DialError> {
        for address in addresses.iter().take(MAX_ADDRESSES) {
            let connecting = (self.network.connect)(SocketAddr::new(*address, port));
            if let Ok(Ok(stream)) = timeout(CONNECT_TIMEOUT, connecting).await {
                stream.set_nodelay(true).ok();
                return Ok(stream);
            }
        }
        Err(DialError::NotConnected)
    }

    fn tls(&self) -> Result<&TlsConnector, DialError> {
        let connector = self.tls.get_or_init(|| {
            let roots = self.roots.clone().unwrap_or_else(authorities::of_machine);
            let mut config: ClientConfig = authorities::client_config(roots)?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(TlsConnector::from(Arc::new(config)))
        });
        connector.as_ref().map_err(|error| {
            tracing::error!("requests to hosts of customers can't use TLS: {error}");
            DialError::TlsFailed
        })
    }
}
