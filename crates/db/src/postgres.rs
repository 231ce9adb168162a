//! PostgreSQL: reads are pipelined over a few shared connections, each transaction takes one from a pool.
//!
//! Every connection is made when it is first needed and replaced when it is found closed, so that a server
//! that goes away and comes back costs the statements in flight and nothing more. The server ends a
//! statement after 10 s; a server that doesn't even answer is given up on after 15 s, at the start of a
//! transaction after 5 s.

mod announcer;
mod batch;
mod connect;
mod durability;
mod listen;
mod replica;
mod shared;
mod tls;
mod transaction;
mod types;
pub(crate) mod url;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime,
};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::Config;
pub(super) use tokio_postgres::Statement as Prepared;
use tokio_postgres::error::SqlState;

use super::{Connections, Error};
use crate::constraint::{Constraint, Reference};
use crate::statement::{Answer, Statement, Want};
use announcer::Announcer;
use connect::Connector;
pub(super) use replica::Replica;
use shared::Shared;
pub(super) use transaction::Transaction;
use url::Purpose;

/// Transactions at a time.
const POOL_SIZE: usize = 16;
/// Connections that point reads share.
const POINT_READS: usize = 4;
/// Connections that heavy reads share, so that no point read queues behind one.
const HEAVY_READS: usize = 2;
/// How long to wait for a connection of the pool, for a new one, and for the start of a transaction, which waits for nobody.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than the server's own limit below, so that the server is the first to speak.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);
/// For every session: the longest statement and the longest silence inside a transaction, in milliseconds (a replica that hangs
/// must not keep its locks), and the isolation that our locks are written for, whatever the role's default is.
const SESSION_LIMITS: &str = "-c statement_timeout=10000 -c idle_in_transaction_session_timeout=30000 \
     -c default_transaction_isolation=read\\ committed";

/// For sessions whose statements find rows by their keys, as all do that people wait for. A plan is made once and kept: to plan what
/// asks the gate's question takes ten times as long as to run it. And it goes by indexes even if the tables are small when it is
/// made, for it isn't made anew when they have grown. To compile one would take longer than to run it.
const KEPT_PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// Starts a transaction.
pub(super) const BEGIN: &str = "BEGIN";
/// Starts one that gives up on a lock after 200 ms, before the server looks for a deadlock and chooses somebody to end.
pub(super) const BEGIN_BEHIND: &str =
    "BEGIN; SET LOCAL lock_timeout = 200; SET LOCAL synchronous_commit = off";

/// Starts one that only reads, and sees the database as it was at its first statement; of whole tables, so with plans for that.
pub(super) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
     SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on";

/// Asks for the server's time, in unix milliseconds.
pub(super) const CLOCK: &str = "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";

/// One server.
pub(super) struct Postgres {
    connector: Connector,
    pool: Pool,
    point_reads: Shared,
    heavy_reads: Shared,
    announcer: Arc<Announcer>,
}

impl Postgres {
    /// Reads the URL and the certificates that it names; connects to nothing yet.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let connector = Connector::new(&url::read(url, Purpose::Primary)?)?;
        let limited = connector.with_options(SESSION_LIMITS);
        let by_key = connector.with_options(&format!("{SESSION_LIMITS} {KEPT_PLANS}"));
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(Config::new(), by_key.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(POOL_SIZE)
            // The one that was used last: its server process has the statements and the pages at hand.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(PATIENCE))
            .create_timeout(Some(PATIENCE))
            .recycle_timeout(Some(PATIENCE))
            .post_create(Hook::async_fn(|client, _| {
                Box::pin(async move { durability::ensure(client).await.map_err(HookError::Backend) })
            }))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| Error::Internal(format!("connection pool: {error}")))?;
        let point_reads = Shared::new(&by_key, POINT_READS);
        let heavy_reads = Shared::new(&limited, HEAVY_READS);
        Ok(Self { connector, pool, point_reads, heavy_reads, announcer: Arc::new(Announcer::new()) })
    }

    /// Connects without limits on how long a statement may run, for migrations; the connection ends when it is dropped.
    pub(super) async fn connect(&self) -> Result<ClientWrapper, Error> {
        let (client, connection) = self.connector.connect().await?;
        let client = ClientWrapper::new(client, connect::drive(connection));
        durability::ensure(&client).await.map_err(|error| map_error(&error))?;
        Ok(client)
    }

    /// Returns `true` if the server writes commits to disk at all.
    pub(super) async fn syncs_to_disk(&self) -> Result<bool, Error> {
        let client = self.connect().await?;
        durability::syncs_to_disk(&client).await.map_err(|error| map_error(&error))
    }

    /// What is open.
    pub(super) fn connections(&self) -> Vec<Connections> {
        let pool = self.pool.status();
        let shared = |purpose, shared: &Shared, most| {
            let open = shared.open();
            Connections { purpose, open, in_use: open, most, waiting: 0 }
        };
        let write = Connections {
            purpose: "write",
            open: pool.size,
            in_use: pool.size.saturating_sub(pool.available),
            most: pool.max_size,
            waiting: pool.waiting,
        };
        vec![
            write,
            shared("read", &self.point_reads, POINT_READS),
            shared("long_read", &self.heavy_reads, HEAVY_READS),
        ]
    }

    /// Reads that shared a statement with others.
    pub(super) fn batched(&self) -> u64 {
        self.point_reads.batched()
    }

    /// Wakes when somebody else commits a transaction with announced changes, until it is dropped.
    pub(super) fn listen(&self, woken: Arc<Notify>) -> impl Future<Output = ()> + Send + 'static {
        listen::listen(self.connector.clone(), Arc::clone(&self.announcer), woken)
    }

    /// Runs a statement outside of any transaction; the server refuses one that would write.
    pub(super) async fn read(&self, statement: Statement, want: Want) -> Result<Answer, Error> {
        let shared = if statement.heavy { &self.heavy_reads } else { &self.point_reads };
        shared.read(statement, want).await.map_err(Failure::into_error)
    }

    /// Takes a connection of the pool for a transaction, which one of the texts above begins with its first statement.
    pub(super) async fn begin(&self, text: &'static str) -> Result<Transaction, Error> {
        Transaction::on(&self.pool, &self.announcer, text).await.map_err(Failure::into_error)
    }
}

/// Why there was no answer.
enum Failure {
    /// The server said no; the connection is fine.
    Refused(Error),
    /// The statement was prepared before a migration changed what it answers, and was not run. It is forgotten, so the next
    /// try prepares it anew.
    Stale(Error),
    /// The connection is lost.
    Gone(Error),
    /// The server doesn't answer; the connection may be lost.
    Silent(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Refused(error) | Self::Stale(error) | Self::Gone(error) | Self::Silent(error) => error,
        }
    }
}

async fn answer_of(client: &ClientWrapper, statement: &Statement, want: Want) -> Result<Answer, Failure> {
    within(ANSWER_PATIENCE, types::run(client, statement, want)).await
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match timeout(patience, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if is_gone(&error) => Err(Failure::Gone(map_error(&error))),
        Ok(Err(error)) if is_stale(&error) => Err(Failure::Stale(map_error(&error))),
        Ok(Err(error)) => Err(Failure::Refused(map_error(&error))),
        Err(_) => Err(Failure::Silent(silent())),
    }
}

fn silent() -> Error {
    Error::Unavailable("the server doesn't answer".to_owned())
}

fn gone() -> Error {
    Error::Unavailable("the connection was lost".to_owned())
}

/// Whether a migration has changed what a prepared statement answers. The code alone would say as much of what the server
/// can't do at all; its message is in the server's language.
fn is_stale(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|refusal| refusal.routine() == Some("RevalidateCachedQuery"))
}

/// Whether the connection is lost, or about to be.
fn is_gone(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    match error.code() {
        Some(code) => {
            matches!(code.code(), "57P01" | "57P02" | "57P03" | "57P05" | "25P03")
                || code.code().starts_with("08")
        }
        None => {
            error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
        }
    }
}

/// What the driver's error means to callers. The detail of a violation holds people's data and stays out.
pub(super) fn map_error(error: &tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else {
        let what = describe(error);
        return if is_gone(error) { Error::Unavailable(what) } else { Error::Internal(what) };
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
        // A full disk shows in other places as an input/output error that names it.
        "53100" => Error::StorageFull(what),
        "25006" => Error::ReadOnly(what),
        // Too many connections, statement timeout, lock timeout, deadlock, serialization: again later.
        "53300" | "57014" | "55P03" | "40P01" | "40001" => Error::Unavailable(what),
        // The operator's to mend: no such database, or we aren't let in.
        "3D000" | "28000" | "28P01" => Error::Unavailable(what),
        _ if is_gone(error) || is_stale(error) => Error::Unavailable(what),
        _ => Error::Internal(what),
    }
}

/// The error and what caused it.
fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn map_pool_error(error: &PoolError) -> Error {
    match error {
        // Who isn't connected can't say more: it is the operator's or the server's to mend.
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            match map_error(error) {
                Error::Internal(what) => Error::Unavailable(what),
                other => other,
            }
        }
        PoolError::Timeout(_) => Error::Unavailable("no connection to the server became free".to_owned()),
        PoolError::Closed => gone(),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => Error::Internal(error.to_string()),
    }
}
