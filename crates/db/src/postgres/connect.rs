//! Connecting: to the first suitable host of a URL, with TLS as the URL asks for.

use std::fmt::Write as _;
use std::sync::Arc;

use deadpool_postgres::{ClientWrapper, Connect};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
#[expect(clippy::disallowed_types, reason = "the driver of PostgreSQL")]
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::session::PoolMode;
use super::tls::{self, Stream};
use super::url::Target;
use super::{CONNECT_TIMEOUT, map_error};
use crate::Error;
use kernel::futures::BoxFuture;

/// A client, and the task that polls its connection.
#[expect(clippy::disallowed_types, reason = "the driver of PostgreSQL")]
type NewConnection = (Client, JoinHandle<()>);

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    hosts: Arc<[Config]>,
    tls: MakeRustlsConnect,
    allow_plain: bool,
    pool_mode: PoolMode,
    /// Statements that every new session runs.
    settings: Arc<str>,
}

/// The error of each host, by name; `None` for a host that doesn't answer.
struct HostErrors(Vec<(String, Option<tokio_postgres::Error>)>);

impl Connector {
    /// Reads the certificates that the URL names. Doesn't connect.
    pub(super) fn new(target: &Target) -> Result<Self, Error> {
        let tls = tls::connector(&target.trust)?;
        let hosts = target.hosts.as_slice().into();
        let Target { allow_plain, pool_mode, .. } = *target;
        Ok(Self { hosts, tls, allow_plain, pool_mode, settings: Arc::default() })
    }

    pub(super) fn pool_mode(&self) -> PoolMode {
        self.pool_mode
    }

    /// Adds settings of the session, as statements that end with a semicolon. They aren't startup options,
    /// because poolers of connections refuse those or leave them out. If sessions are shared by transaction,
    /// this does nothing.
    pub(super) fn with_settings(&self, settings: &str) -> Self {
        if self.pool_mode == PoolMode::Transaction {
            return self.clone();
        }
        Self { settings: format!("{}{settings}", self.settings).into(), ..self.clone() }
    }

    /// Connects to the first suitable host, within [`CONNECT_TIMEOUT`].
    pub(super) fn connect(&self) -> BoxFuture<'_, Result<ClientWrapper, Error>> {
        Box::pin(async {
            let (client, driver) = self.try_hosts().await.map_err(|errors| errors.summary())?;
            Ok(ClientWrapper::new(client, driver))
        })
    }

    async fn try_hosts(&self) -> Result<NewConnection, HostErrors> {
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX).max(1);
        let mut errors = Vec::new();
        for host in self.hosts.iter() {
            // An unresponsive host must leave time for the others.
            match timeout(CONNECT_TIMEOUT / count, self.try_host(host)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => errors.push((name(host), Some(error))),
                Err(_) => errors.push((name(host), None)),
            }
        }
        Err(HostErrors(errors))
    }

    async fn try_host(&self, host: &Config) -> Result<NewConnection, tokio_postgres::Error> {
        let may_be_plain = self.allow_plain && host.get_ssl_mode() == SslMode::Prefer;
        let (client, connection) = match host.connect(self.tls.clone()).await {
            // As in libpq, `prefer` falls back to a connection without TLS.
            Err(error) if may_be_plain && is_about_tls(&error) => {
                host.clone().ssl_mode(SslMode::Disable).connect(self.tls.clone()).await?
            }
            connected => connected?,
        };
        let driver = drive(connection);
        if !self.settings.is_empty() {
            client.batch_execute(&self.settings).await?;
        }
        Ok((client, driver))
    }
}

/// Returns `true` if a connection without TLS may work: the handshake failed, or the server refuses logins
/// over TLS. A server that isn't reached fails in other ways.
fn is_about_tls(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, InvalidInput, UnexpectedEof};
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| {
        matches!(cause.kind(), BrokenPipe | ConnectionReset | InvalidData | InvalidInput | UnexpectedEof)
    }) || error.code().is_some_and(|code| code.code() == "28000")
}

fn name(host: &Config) -> String {
    let port = host.get_ports().first().copied().unwrap_or(5432);
    match host.get_hosts().first() {
        Some(Host::Tcp(name)) => format!("{name}:{port}"),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    }
}

impl HostErrors {
    /// Returns one error that names all hosts with theirs.
    fn summary(&self) -> Error {
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
            let separator = if words.is_empty() { "" } else { "; " };
            // Writing to a `String` can't fail.
            write!(words, "{separator}{host}: {what}").unwrap_or_default();
        }
        match last {
            // An error while connecting is for the operator or the server to fix.
            Error::Unavailable(_) | Error::Internal(_) => Error::Unavailable(words),
            other => other,
        }
    }
}

/// For the pool, which takes errors of the driver only.
impl Connect for Connector {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<NewConnection, tokio_postgres::Error>> {
        Box::pin(async move {
            match self.try_hosts().await {
                Ok(connected) => Ok(connected),
                Err(HostErrors(errors)) => match errors.into_iter().rev().find_map(|(_, error)| error) {
                    Some(error) => Err(error),
                    // No host has answered, and there is no error of the driver for that: the pool's timeout,
                    // which is due now, reports it.
                    None => std::future::pending().await,
                },
            }
        })
    }
}

/// Polls a connection until it is closed.
fn drive(connection: Connection<Socket, Stream>) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!("database connection closed: {error}");
        }
    })
}
