//! Settings of sessions and transactions: limits, isolation, plans and durability.
//!
//! A session sets them once, after connecting. Behind a pooler in transaction mode, a session's settings
//! would affect other clients, so each transaction begins with its own settings.

/// The assignment of server sessions to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum PoolMode {
    /// Each connection keeps its own session.
    #[default]
    Session,
    /// A pooler assigns a session to each transaction, and other clients may use that session between
    /// transactions.
    Transaction,
}

/// Raises `synchronous_commit` if it allows commits to return before they are on disk, locally and on the
/// standbys of `synchronous_standby_names`. The stricter `remote_apply` is kept. The setting lasts until the
/// end of the transaction with `"true"`, and for the session with `"false"`.
macro_rules! raise {
    ($local:literal) => {
        concat!(
            "SELECT set_config('synchronous_commit', 'on', ",
            $local,
            ") WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
        )
    };
}
pub(super) use raise;

/// Sets the maximum time of a statement, of a wait for a lock, and of idling inside a transaction, in
/// milliseconds, so that a replica that hangs, or whose network hangs, doesn't keep its locks. The timeout
/// for locks is shorter than the idle timeout. If several replicas hang, those that wait for the first one's
/// locks therefore give up before these are freed. Otherwise, each would get the locks in turn and hold them
/// just as long.
macro_rules! limits {
    ($set:literal) => {
        concat!(
            $set,
            " statement_timeout = 10000; ",
            $set,
            " lock_timeout = 4000; ",
            $set,
            " idle_in_transaction_session_timeout = 5000;"
        )
    };
}

/// Sets the maximum idle time of a snapshot. It is longer, because the rows are sent to a client that may be
/// slow, and a snapshot holds no locks.
macro_rules! snapshot_limit {
    () => {
        "SET LOCAL idle_in_transaction_session_timeout = 30000;"
    };
}

/// Makes the server notice within about ten seconds that this machine is down, and release its locks and
/// connections. Unix sockets ignore these settings.
macro_rules! keepalive {
    () => {
        " SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
          SET tcp_user_timeout = 6000;"
    };
}

/// Settings for statements that find rows by keys, the only ones that users wait for. Such statements use
/// indexes even on small tables, because cached plans don't change when the tables grow. JIT compilation
/// would take longer than the statement.
macro_rules! by_key {
    ($set:literal) => {
        concat!($set, " enable_seqscan = off; ", $set, " jit = off;")
    };
}

/// Settings of every session: the limits, and the isolation level that the queries are written for,
/// independent of the role's default.
pub(super) const LIMITS: &str =
    concat!(limits!("SET"), keepalive!(), " SET default_transaction_isolation = 'read committed';");

/// Settings of sessions for statements that find rows by keys. Plans are made once and cached, because
/// planning the query that decides on a model call takes ten times as long as running it.
pub(super) const BY_KEY: &str = concat!("SET plan_cache_mode = force_generic_plan; ", by_key!("SET"));

/// The setting that makes the server refuse writes in a session.
pub(super) const READ_ONLY: &str = "SET default_transaction_read_only = on;";

/// Begins the transaction of a migration. Its statements see the commits made before it got the lock.
pub(crate) const BEGIN_MIGRATION: &str = concat!("BEGIN ISOLATION LEVEL READ COMMITTED; ", raise!("true"));

/// The kind of a transaction, which determines how it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// Writes.
    Write,
    /// Writes that give up on a lock after 200 ms, before the server's deadlock detection would end a
    /// transaction. The commit doesn't wait for the disk.
    WriteBehind,
    /// Reads on a snapshot, taken by the first statement. They read whole tables, with suitable plans.
    Snapshot,
    /// A statement that finds rows by keys.
    Read,
    /// A statement that may read many rows.
    HeavyRead,
}

impl Begin {
    /// Returns the statements that begin the transaction; empty if a single statement needs none.
    pub(super) fn text(self, pool_mode: PoolMode) -> &'static str {
        match pool_mode {
            PoolMode::Session => match self {
                Self::Write => "BEGIN",
                Self::WriteBehind => {
                    "BEGIN; SET LOCAL lock_timeout = 200; SET LOCAL synchronous_commit = off"
                }
                Self::Snapshot => {
                    concat!(
                        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ",
                        snapshot_limit!(),
                        "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on"
                    )
                }
                Self::Read | Self::HeavyRead => "",
            },
            PoolMode::Transaction => match self {
                Self::Write => concat!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED; ",
                    limits!("SET LOCAL"),
                    by_key!("SET LOCAL"),
                    raise!("true")
                ),
                Self::WriteBehind => concat!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED; ",
                    limits!("SET LOCAL"),
                    by_key!("SET LOCAL"),
                    "SET LOCAL lock_timeout = 200; SET LOCAL synchronous_commit = off"
                ),
                Self::Snapshot => {
                    concat!(
                        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ",
                        limits!("SET LOCAL"),
                        snapshot_limit!()
                    )
                }
                Self::Read => concat!(
                    "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; ",
                    limits!("SET LOCAL"),
                    by_key!("SET LOCAL")
                ),
                Self::HeavyRead => {
                    concat!("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; ", limits!("SET LOCAL"))
                }
            },
        }
    }
}
