//! Connects to the best host of a URL, with TLS as required by the URL.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
#[expect(clippy::disallowed_types, reason = "the driver of PostgreSQL")]
use tokio_postgres::{AsyncMessage, Client, Config, Connection, SimpleQueryMessage, Socket, config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::primary::{self, Primary};
use super::session::PoolMode;
use super::tls::{self, Stream};
use super::url::Target;
use super::{CONNECT_TIMEOUT, map_error};
use crate::Error;
use kernel::futures::BoxFuture;

/// A client, and the task that polls its connection.
#[expect(clippy::disallowed_types, reason = "the driver of PostgreSQL")]
type NewConnection = (Client, JoinHandle<()>);

/// The timeout of the known primary, after which all hosts are tried.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The time to wait for other hosts once a suitable one has responded.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(250);
/// The minimum time between two log lines about closed connections to a host.
const CLOSED_INTERVAL: Duration = Duration::from_secs(1);

/// Opens connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    hosts: Arc<[Host]>,
    tls: MakeRustlsConnect,
    allow_plain: bool,
    pool_mode: PoolMode,
    /// Statements that every new session runs.
    settings: Arc<str>,
    /// The primary; `None` for standbys.
    primary: Option<Arc<Primary>>,
}

/// A host of the URL.
struct Host {
    config: Config,
    name: Arc<str>,
    closed: Arc<Mutex<Closed>>,
}

/// Connections to a host that were closed.
#[derive(Default)]
struct Closed {
    logged_at: Option<Instant>,
    /// The number of closed connections since the last log line about the host.
    unlogged: u64,
}

/// A connection to a host.
struct Connected {
    connection: NewConnection,
    /// The timeline of a primary, if it reports one.
    timeline: Option<u32>,
}

/// The error of each host, by name.
struct HostErrors(Vec<(Arc<str>, HostError)>);

/// The reason why a host isn't used.
enum HostError {
    Driver(tokio_postgres::Error),
    Silent,
    /// Another server has been promoted since then.
    Outdated(String),
}

impl Connector {
    /// Reads the certificates that the URL refers to. Doesn't connect.
    pub(super) fn new(target: &Target, primary: Option<Arc<Primary>>) -> Result<Self, Error> {
        let tls = tls::connector(&target.trust)?;
        let hosts = target.hosts.iter().map(Host::new).collect();
        let Target { allow_plain, pool_mode, .. } = *target;
        Ok(Self { hosts, tls, allow_plain, pool_mode, settings: Arc::default(), primary })
    }

    pub(super) fn pool_mode(&self) -> PoolMode {
        self.pool_mode
    }

    /// Adds settings of the session, as statements that end with a semicolon. They aren't startup options,
    /// because connection poolers refuse or drop those. If sessions are shared by transaction, this does
    /// nothing.
    pub(super) fn with_settings(&self, settings: &str) -> Self {
        if self.pool_mode == PoolMode::Transaction {
            return self.clone();
        }
        Self { settings: format!("{}{settings}", self.settings).into(), ..self.clone() }
    }

    /// Returns one connector for each host, which accepts both primaries and standbys. The list is empty if
    /// no comparison is needed: with a single host, or with a pooler in transaction mode.
    pub(super) fn of_each_host(&self) -> Vec<Self> {
        if self.hosts.len() < 2 || self.pool_mode == PoolMode::Transaction {
            return Vec::new();
        }
        let of_host = |host: &Host| {
            let mut config = host.config.clone();
            config.target_session_attrs(TargetSessionAttrs::Any);
            Self { hosts: Arc::new([Host::new(&config)]), primary: None, ..self.clone() }
        };
        self.hosts.iter().map(of_host).collect()
    }

    /// Returns the name of the first host.
    pub(super) fn host(&self) -> &str {
        self.hosts.first().map_or("", |host| &host.name)
    }

    /// Connects to the best host, within [`CONNECT_TIMEOUT`].
    pub(super) fn connect(&self) -> BoxFuture<'_, Result<ClientWrapper, Error>> {
        Box::pin(async {
            let (client, driver) = self.try_hosts().await.map_err(|errors| errors.summary())?;
            Ok(ClientWrapper::new(client, driver))
        })
    }

    /// Connects to the primary if it was recently confirmed, otherwise to the best of all hosts.
    async fn try_hosts(&self) -> Result<NewConnection, HostErrors> {
        let known = self.primary.as_ref().and_then(|primary| primary.confirmed_host());
        let host = known.and_then(|known| self.hosts.iter().find(|host| *host.name == *known));
        if let Some(host) = host
            && let Ok(Ok(connected)) = timeout(KNOWN_TIMEOUT, self.try_host(host)).await
            && self.primary.as_ref().is_none_or(|it| it.admit(&host.name, connected.timeline).is_ok())
        {
            return Ok(connected.connection);
        }
        self.try_all_hosts().await
    }

    /// Tries all hosts at once. An unresponsive host causes almost no delay if another one is suitable.
    async fn try_all_hosts(&self) -> Result<NewConnection, HostErrors> {
        let attempt = |(index, host)| async move {
            let outcome = timeout(CONNECT_TIMEOUT, self.try_host(host)).await;
            (index, host, outcome.map_err(|_| HostError::Silent))
        };
        let mut attempts: FuturesUnordered<_> = self.hosts.iter().enumerate().map(attempt).collect();
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        let mut until = None;
        loop {
            let next = match until {
                None => attempts.next().await,
                Some(until) => timeout_at(until, attempts.next()).await.unwrap_or(None),
            };
            match next {
                None => break,
                Some((index, host, Ok(Ok(connected)))) => {
                    until = until.or_else(|| Some(Instant::now() + OTHERS_TIMEOUT));
                    found.push((index, host, connected));
                }
                Some((index, host, Ok(Err(error)))) => errors.push((index, host, HostError::Driver(error))),
                Some((index, host, Err(silent))) => errors.push((index, host, silent)),
            }
        }
        // The highest timeline comes first, and hosts with the same timeline keep the order of the URL.
        found.sort_by_key(|(index, _, connected)| (Reverse(connected.timeline), *index));
        let mut chosen: Option<Connected> = None;
        for (index, host, connected) in found {
            // Several hosts may be addresses of the same server.
            if chosen.as_ref().is_some_and(|chosen| chosen.timeline == connected.timeline) {
                continue;
            }
            let admitted =
                self.primary.as_ref().map_or(Ok(()), |it| it.admit(&host.name, connected.timeline));
            match admitted {
                Ok(()) => chosen = chosen.or(Some(connected)),
                Err(why) => errors.push((index, host, HostError::Outdated(why))),
            }
        }
        if let Some(chosen) = chosen {
            return Ok(chosen.connection);
        }
        errors.sort_by_key(|(index, ..)| *index);
        Err(HostErrors(errors.into_iter().map(|(_, host, error)| (Arc::clone(&host.name), error)).collect()))
    }

    async fn try_host(&self, host: &Host) -> Result<Connected, tokio_postgres::Error> {
        let config = &host.config;
        let may_be_plain = self.allow_plain && config.get_ssl_mode() == SslMode::Prefer;
        let (client, connection) = match config.connect(self.tls.clone()).await {
            // As in libpq, `prefer` falls back to a connection without TLS.
            Err(error) if may_be_plain && is_about_tls(&error) => {
                config.clone().ssl_mode(SslMode::Disable).connect(self.tls.clone()).await?
            }
            connected => connected?,
        };
        let (say_timeline, said_timeline) = oneshot::channel();
        let driver = drive(connection, host, self.primary.clone(), said_timeline);
        if !self.settings.is_empty() {
            client.batch_execute(&self.settings).await?;
        }
        // Behind a pooler, the next transaction may run on another server.
        let has_timeline = self.primary.is_some() && self.pool_mode == PoolMode::Session;
        let timeline = if has_timeline { timeline(&client).await } else { None };
        if let Some(timeline) = timeline {
            say_timeline.send(timeline).unwrap_or_default();
        }
        Ok(Connected { connection: (client, driver), timeline })
    }
}

impl Host {
    fn new(config: &Config) -> Self {
        Self { config: config.clone(), name: name(config).into(), closed: Arc::default() }
    }
}

/// Returns the timeline of a server that accepts writes; `None` if it doesn't report one, like some managed
/// servers.
#[expect(clippy::disallowed_types, reason = "the driver of PostgreSQL")]
pub(super) async fn timeline(client: &Client) -> Option<u32> {
    let answer = client.simple_query(primary::WAL_FILE).await.ok()?;
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })?;
    primary::timeline_of(row.get(0)?)
}

/// Returns `true` if a connection without TLS may work: the handshake failed, or the server refuses logins
/// over TLS. An unreachable server causes other errors.
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
        Some(config::Host::Tcp(name)) => format!("{name}:{port}"),
        Some(config::Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    }
}

impl HostErrors {
    /// Returns one error that lists all hosts with their errors.
    fn summary(&self) -> Error {
        let mut words = String::new();
        let mut last = Error::Unavailable(String::new());
        for (host, error) in &self.0 {
            last = match error {
                HostError::Driver(error) => map_error(error),
                HostError::Silent => Error::Unavailable("the server doesn't answer".to_owned()),
                HostError::Outdated(why) => Error::Unavailable(why.clone()),
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
            // An error while connecting isn't a bug: the operator or the server must fix it.
            Error::Unavailable(_) | Error::Internal(_) => Error::Unavailable(words),
            other => other,
        }
    }

    /// Returns the last error of the driver.
    fn of_driver(self) -> Option<tokio_postgres::Error> {
        self.0.into_iter().rev().find_map(|(_, error)| match error {
            HostError::Driver(error) => Some(error),
            HostError::Silent | HostError::Outdated(_) => None,
        })
    }
}

/// Connects for the pool, which accepts only errors of the driver.
impl Connect for Connector {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<NewConnection, tokio_postgres::Error>> {
        Box::pin(async move {
            match self.try_hosts().await {
                Ok(connected) => Ok(connected),
                Err(errors) => match errors.of_driver() {
                    Some(error) => Err(error),
                    // The driver has no error for this: the pool's timeout reports it.
                    None => std::future::pending().await,
                },
            }
        })
    }
}

/// Polls a connection until it is closed. Once another server was promoted, a connection to the old primary
/// is closed and its pending statements fail. Otherwise, commits could wait forever for standbys that follow
/// the new primary.
fn drive(
    mut connection: Connection<Socket, Stream>,
    host: &Host,
    primary: Option<Arc<Primary>>,
    timeline: oneshot::Receiver<u32>,
) -> JoinHandle<()> {
    let (name, closed) = (Arc::clone(&host.name), Arc::clone(&host.closed));
    tokio::spawn(async move {
        let outdated = async {
            match (&primary, timeline.await) {
                (Some(primary), Ok(timeline)) => primary.outdated(timeline).await,
                _ => std::future::pending().await,
            }
        };
        let mut outdated = pin!(outdated);
        loop {
            let message = tokio::select! {
                message = poll_fn(|cx| connection.poll_message(cx)) => message,
                () = &mut outdated => return,
            };
            match message {
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    if let Some(primary) = &primary {
                        primary.take_notice(&name, &notice);
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    return closed.lock().unwrap_or_else(PoisonError::into_inner).log(&name, &error);
                }
                None => return,
            }
        }
    })
}

impl Closed {
    /// Logs a closed connection, at most one line per second and host: when a server stops, all its
    /// connections close.
    fn log(&mut self, host: &str, error: &tokio_postgres::Error) {
        let now = Instant::now();
        if self.logged_at.is_some_and(|at| now - at < CLOSED_INTERVAL) {
            self.unlogged += 1;
            return;
        }
        self.logged_at = Some(now);
        let others = std::mem::take(&mut self.unlogged);
        tracing::warn!(host, others, "a connection to the database was closed: {error}");
    }
}
