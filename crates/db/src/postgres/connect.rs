//! Makes connections of every kind: to the first host that will do, under TLS as the URL has it.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_postgres::Connect;
use tokio::task::JoinHandle;
use tokio::time::timeout;
#[expect(clippy::disallowed_types, reason = "this is in src/db")]
use tokio_postgres::Client;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, Connection, Socket};

use super::tls::{HandshakeFailed, Stream, Tls};
use super::url::Target;
use super::{PATIENCE, map_error};
use crate::Error;

/// The two halves of a connection: whose commands are given, and what has to be driven for that.
#[expect(clippy::disallowed_types, reason = "this is in src/db")]
pub(super) type Connected = (Client, Connection<Socket, Stream>);

/// Connects; cloning it is cheap.
#[derive(Clone)]
pub(super) struct Connector {
    hosts: Arc<[Config]>,
    tls: Tls,
    plain_will_do: bool,
}

/// Why no host will do: each host's reason, `None` for one that doesn't answer.
struct Troubles(Vec<(String, Option<tokio_postgres::Error>)>);

impl Connector {
    /// Reads the certificates that the URL names; connects to nothing yet.
    pub(super) fn new(target: &Target) -> Result<Self, Error> {
        let tls = Tls::new(&target.trust)?;
        Ok(Self { hosts: target.hosts.as_slice().into(), tls, plain_will_do: target.plain_will_do })
    }

    /// The same with more options of the server's.
    pub(super) fn with_options(&self, options: &str) -> Self {
        let with = |host: &Config| {
            let mut host = host.clone();
            let options = match host.get_options() {
                Some(given) => format!("{given} {options}"),
                None => options.to_owned(),
            };
            host.options(options);
            host
        };
        Self { hosts: self.hosts.iter().map(with).collect(), ..self.clone() }
    }

    /// A connection to the first host that will do; it takes at most [`PATIENCE`].
    pub(super) async fn connect(&self) -> Result<Connected, Error> {
        self.reach().await.map_err(|troubles| troubles.told())
    }

    async fn reach(&self) -> Result<Connected, Troubles> {
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut troubles = Vec::new();
        for host in self.hosts.iter() {
            // A host that is silent must leave time for the others.
            match timeout(PATIENCE / count, self.try_host(host)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => troubles.push((name(host), Some(error))),
                Err(_) => troubles.push((name(host), None)),
            }
        }
        Err(Troubles(troubles))
    }

    async fn try_host(&self, host: &Config) -> Result<Connected, tokio_postgres::Error> {
        let error = match host.connect(self.tls.clone()).await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        if !self.plain_will_do || host.get_ssl_mode() != SslMode::Prefer || !is_about_tls(&error) {
            return Err(error);
        }
        // As libpq has it: what can't be had under TLS is tried without.
        let mut plain = host.clone();
        plain.ssl_mode(SslMode::Disable);
        plain.connect(self.tls.clone()).await
    }
}

/// Whether the connection may be had without TLS: the handshake failed, or the server lets nobody in who comes so.
fn is_about_tls(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    let failed = error.source().is_some_and(<dyn std::error::Error>::is::<HandshakeFailed>);
    failed || error.code().is_some_and(|code| code.code() == "28000")
}

fn name(host: &Config) -> String {
    let port = host.get_ports().first().copied().unwrap_or(5432);
    match host.get_hosts().first() {
        Some(Host::Tcp(name)) => format!("{name}:{port}"),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    }
}

impl Troubles {
    /// All of them, for a person.
    fn told(&self) -> Error {
        let mut words = String::new();
        let mut last = Error::Unavailable(String::new());
        for (host, error) in &self.0 {
            last = match error {
                Some(error) => map_error(error),
                None => Error::Unavailable("the server doesn't answer".to_owned()),
            };
            let what = match &last {
                Error::Unavailable(what) | Error::Internal(what) => what.clone(),
                other => other.to_string(),
            };
            let between = if words.is_empty() { "" } else { "; " };
            // Writing to a string can't fail.
            write!(words, "{between}{host}: {what}").unwrap_or_default();
        }
        match last {
            // Who isn't connected can't say more: it is the operator's or the server's to mend.
            Error::Unavailable(_) | Error::Internal(_) => Error::Unavailable(words),
            other => other,
        }
    }
}

/// For the pool, which knows the driver's errors only.
impl Connect for Connector {
    #[expect(clippy::disallowed_types, reason = "this is in src/db")]
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>>
    {
        Box::pin(async move {
            let (client, connection) = match self.reach().await {
                Ok(connected) => connected,
                Err(Troubles(troubles)) => match troubles.into_iter().rev().find_map(|(_, error)| error) {
                    Some(error) => return Err(error),
                    // None has answered. The pool's own patience ends now as well, and has the words for it.
                    None => std::future::pending().await,
                },
            };
            Ok((client, drive(connection)))
        })
    }
}

/// Drives a connection until it ends.
pub(super) fn drive(connection: Connection<Socket, Stream>) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!("a connection to the database ended: {error}");
        }
    })
}
