//! PostgreSQL: reads are pipelined over a few shared connections, and each transaction takes one from a pool.
//!
//! A connection is opened when it is first needed and replaced when it is found closed, so that a restart of
//! the server only costs the statements in flight. The server ends a statement after 10 s. If the server
//! doesn't respond at all, statements fail after 15 s, and the start of a transaction after 5 s.

mod connect;
mod durability;
mod hosts;
mod pipeline;
mod primary;
mod session;
mod shared;
mod standby;
mod tls;
mod transaction;
mod types;
pub(crate) mod url;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime,
};
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use super::Error;
use crate::connections::Connections;
use crate::constraint::{Constraint, Reference};
use crate::statement::{Answer, Statement, Want};
use connect::Connector;
use hosts::Hosts;
use primary::Primary;
use session::PoolMode;
pub(super) use session::{BEGIN_MIGRATION, Begin};
use shared::SharedConnections;
pub(super) use standby::Standby;
pub(super) use transaction::Transaction;
use url::Purpose;

/// Maximum number of concurrent transactions.
const POOL_SIZE: usize = 16;
/// Number of connections shared by short reads.
const POINT_READS: usize = 4;
/// Number of connections shared by heavy reads, so that no short read queues behind one.
const HEAVY_READS: usize = 2;
/// The maximum wait for a connection of the pool, for a new connection, and for `BEGIN`, which takes no
/// locks.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum wait for the result of a statement: longer than the server's own timeout below, whose error is
/// more specific.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// The interval at which the hosts of a URL are compared.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Advice for the operator of a pooler that shares connections by transaction.
const POOL_MODE_ADVICE: &str = "add the parameter pool_mode=transaction to the URL of the database";

/// The SQLSTATE `protocol_violation`, with which PgBouncer reports that it can't log in to its server.
const LOGIN_FAILING: &str = "08P01";

/// The connections to a server.
pub(super) struct Postgres {
    connector: Connector,
    pool: Pool,
    point_reads: SharedConnections,
    heavy_reads: SharedConnections,
    primary: Arc<Primary>,
    /// Connections that were opened before this time aren't used again.
    opened_since: Arc<Mutex<Option<Instant>>>,
    /// The hosts of the URL, if it has several.
    hosts: Hosts,
}

impl Postgres {
    /// Reads the URL and the certificates that it refers to. Doesn't connect.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let primary = Arc::<Primary>::default();
        let connector = Connector::new(&url::read(url, Purpose::Primary)?, Some(Arc::clone(&primary)))?;
        let opened_since = Arc::<Mutex<Option<Instant>>>::default();
        let since = Arc::clone(&opened_since);
        let is_outdated = move |opened: Instant| lock(&since).is_some_and(|since| opened < since);
        let limited = connector.with_settings(session::LIMITS);
        let by_key = limited.with_settings(session::BY_KEY);
        let pool_mode = connector.pool_mode();
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(Config::new(), by_key.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(POOL_SIZE)
            // Prefer the most recently used connection: its server process has the statements and pages in
            // its caches.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .post_create(Hook::async_fn(move |client, _| Box::pin(prepare_session(client, pool_mode))))
            .pre_recycle(Hook::sync_fn(move |_, metrics| match is_outdated(metrics.created) {
                true => Err(HookError::message("another server may be the primary")),
                false => Ok(()),
            }))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Internal(format!("connection pool: {error}")))?;
        let point_reads = SharedConnections::new(&by_key, Begin::Read, POINT_READS);
        let heavy_reads = SharedConnections::new(&limited, Begin::HeavyRead, HEAVY_READS);
        let hosts = Hosts::new(&connector);
        Ok(Self { connector, pool, point_reads, heavy_reads, primary, opened_since, hosts })
    }

    /// Opens a connection for migrations, without a statement timeout. It is closed when it is dropped.
    pub(super) async fn connect_for_migration(&self) -> Result<ClientWrapper, Error> {
        let client = self.connect_to_unshared_session().await?;
        let ensured = durability::ensure(&client, self.connector.pool_mode()).await;
        ensured.map_err(|error| map_error(&error))?;
        Ok(client)
    }

    /// Opens a connection. Fails if a pooler shares one session of the server among several connections
    /// although the URL has no `pool_mode`. Other traffic on the pooler may prevent the detection.
    async fn connect_to_unshared_session(&self) -> Result<ClientWrapper, Error> {
        let one = self.connector.connect().await?;
        if self.connector.pool_mode() == PoolMode::Transaction {
            return Ok(one);
        }
        // The role may not be allowed a second connection.
        let Ok(other) = self.connector.connect().await else { return Ok(one) };
        let session = async |client: &ClientWrapper| -> Option<i32> {
            let row = client.query_typed_one("SELECT pg_backend_pid()", &[]).await.ok()?;
            row.try_get(0).ok()
        };
        // A pooler may have no second session.
        let sessions = async { (session(&one).await, session(&other).await) };
        match timeout(CONNECT_TIMEOUT, sessions).await {
            Ok((Some(one), Some(other))) if one == other => Err(Error::NotReady(format!(
                "the database is behind a pooler that shares its connections by transaction: {POOL_MODE_ADVICE}"
            ))),
            Ok(_) => Ok(one),
            Err(_) => self.connector.connect().await,
        }
    }

    /// Returns `true` if the server syncs commits to disk.
    pub(super) async fn syncs_to_disk(&self) -> Result<bool, Error> {
        let client = self.connector.connect().await?;
        durability::syncs_to_disk(&client).await.map_err(|error| map_error(&error))
    }

    /// Returns the connections, per purpose.
    pub(super) fn connections(&self) -> Vec<Connections> {
        let pool = self.pool.status();
        let shared = |purpose, shared: &SharedConnections, max| {
            let open = shared.open();
            Connections { purpose, open, in_use: open, max, waiting: 0 }
        };
        let write = Connections {
            purpose: "write",
            open: pool.size,
            in_use: pool.size.saturating_sub(pool.available),
            max: pool.max_size,
            waiting: pool.waiting,
        };
        vec![
            write,
            shared("read", &self.point_reads, POINT_READS),
            shared("long_read", &self.heavy_reads, HEAVY_READS),
        ]
    }

    /// Runs a statement outside of any transaction. The server refuses write statements.
    pub(super) async fn read(&self, statement: Statement, want: Want) -> Result<Answer, Error> {
        let shared = if statement.heavy { &self.heavy_reads } else { &self.point_reads };
        shared.read(&statement, want).await.map_err(Failure::into_error)
    }

    /// Takes a connection from the pool for a transaction. `BEGIN` is sent with the first statement.
    pub(super) async fn begin(&self, begin: Begin) -> Result<Transaction, Error> {
        let new = Transaction::new(&self.pool, self.connector.pool_mode(), begin, &self.primary);
        new.await.map_err(Failure::into_error)
    }

    /// Stops using all open connections. New connections look for the primary.
    pub(super) fn look_again(&self) {
        *lock(&self.opened_since) = Some(tokio::time::Instant::now().into_std());
        drop(self.pool.retain(|_, _| false));
        self.point_reads.close();
        self.heavy_reads.close();
    }

    /// Returns the highest known timeline.
    pub(super) fn timeline(&self) -> Option<u32> {
        self.primary.timeline()
    }

    /// Notes a timeline that another replica writes to. A new timeline starts another search for the primary.
    pub(super) fn note_timeline(&self, timeline: u32) {
        if self.primary.note_timeline(timeline) {
            self.look_again();
        }
    }

    /// Checks every second whether another host of the URL was promoted, until the future is dropped. Returns
    /// immediately with only one host.
    pub(super) async fn watch_primary(&self) {
        while self.hosts.are_several() {
            let mut primaries = self.hosts.primaries().await.into_iter();
            if let Some((host, timeline)) = primaries.next()
                && self.primary.confirm(&host, timeline)
            {
                self.look_again();
            }
            // Log the servers with a lower timeline.
            for (host, timeline) in primaries.filter(|(_, it)| Some(*it) < self.primary.timeline()) {
                self.primary.admit(&host, Some(timeline)).unwrap_or_default();
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prepares the session of a new connection for transactions.
async fn prepare_session(client: &mut ClientWrapper, pool_mode: PoolMode) -> Result<(), HookError> {
    if pool_mode == PoolMode::Transaction {
        // Each transaction prepares its own session.
        return Ok(());
    }
    match timeout(CONNECT_TIMEOUT, durability::ensure(client, pool_mode)).await {
        Ok(ensured) => ensured.map_err(HookError::Backend),
        Err(_) => Err(HookError::message("the server doesn't answer")),
    }
}

/// The error of a statement, with the state of its connection.
enum Failure {
    /// The server refused the statement; the connection is fine.
    Refused(Error),
    /// The statement was prepared before a migration changed its result, and didn't run. It is dropped from
    /// the cache, so the next attempt prepares it again.
    Stale(Error),
    /// The connection is lost.
    Disconnected(Error),
    /// The server doesn't respond; the connection may be lost.
    Unresponsive(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Refused(error)
            | Self::Stale(error)
            | Self::Disconnected(error)
            | Self::Unresponsive(error) => error,
        }
    }
}

async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match timeout(limit, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if is_disconnected(&error) => Err(Failure::Disconnected(map_error(&error))),
        Ok(Err(error)) if is_stale(&error) => Err(Failure::Stale(map_error(&error))),
        Ok(Err(error)) => Err(Failure::Refused(map_error(&error))),
        Err(_) => Err(Failure::Unresponsive(unresponsive())),
    }
}

fn unresponsive() -> Error {
    Error::Unavailable("the server doesn't answer".to_owned())
}

fn disconnected() -> Error {
    Error::Unavailable("the connection was lost".to_owned())
}

/// Returns `true` if a migration has changed the result of a prepared statement. The SQLSTATE alone isn't
/// enough, because unsupported features have the same one, and the message is in the server's language.
fn is_stale(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|refusal| refusal.routine() == Some("RevalidateCachedQuery"))
}

/// Returns `true` if the connection is lost, or about to be closed by the server.
fn is_disconnected(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    match error.code() {
        Some(code) => {
            matches!(code.code(), "57P01" | "57P02" | "57P03" | "57P05" | "25P03")
                // Except PgBouncer's error for a server that it can't log in to: the next connection would
                // get the same error.
                || (code.code().starts_with("08") && code.code() != LOGIN_FAILING)
        }
        None => {
            error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
        }
    }
}

/// Maps an error of the driver, without the detail of a violation, which contains personal data.
pub(super) fn map_error(error: &tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else {
        let what = describe(error);
        return if is_disconnected(error) { Error::Unavailable(what) } else { Error::Internal(what) };
    };
    let code = refusal.code();
    let what = format!("{}: {}", code.code(), refusal.message());
    if *code == SqlState::UNIQUE_VIOLATION {
        return Error::Unique(Constraint::from_index(refusal.constraint().unwrap_or_default()));
    }
    if *code == SqlState::FOREIGN_KEY_VIOLATION {
        return Error::Missing(Reference::from_foreign_key(refusal.constraint().unwrap_or_default()));
    }
    match code.code() {
        // disk_full
        "53100" => Error::StorageFull(what),
        "25006" => Error::ReadOnly(what),
        // Too many connections, statement timeout, lock timeout, deadlock, serialization failure: try again
        // later.
        "53300" | "57014" | "55P03" | "40P01" | "40001" | LOGIN_FAILING => Error::Unavailable(what),
        // The prepared statement doesn't exist, or already exists: the session isn't the same as before.
        "26000" | "42P05" => Error::Unavailable(format!(
            "{what}: if a pooler shares connections by transaction, {POOL_MODE_ADVICE}"
        )),
        // No such database, or the login failed: the operator must fix it.
        "3D000" | "28000" | "28P01" => Error::Unavailable(what),
        _ if is_disconnected(error) || is_stale(error) => Error::Unavailable(what),
        _ => Error::Internal(what),
    }
}

/// Returns the message of an error with the message of its cause.
fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    let Some(cause) = error.source() else { return error.to_string() };
    match cause.downcast_ref().and_then(tls::advice) {
        Some(advice) => format!("{error}: {cause}: {advice}"),
        None => format!("{error}: {cause}"),
    }
}

fn map_pool_error(error: &PoolError) -> Error {
    match error {
        // An error while connecting isn't a bug: the operator or the server must fix it.
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            match map_error(error) {
                Error::Internal(what) => Error::Unavailable(what),
                other => other,
            }
        }
        PoolError::Timeout(_) => Error::Unavailable("no connection to the server became free".to_owned()),
        PoolError::Closed => disconnected(),
        PoolError::PostCreateHook(HookError::Message(_)) => unresponsive(),
        PoolError::NoRuntimeSpecified => Error::Internal(error.to_string()),
    }
}
