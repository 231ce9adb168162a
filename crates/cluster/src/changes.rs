//! The table `changes`: changes of rows that replicas cache, and must drop from memory.
//!
//! A change is recorded by the last statements of the transaction that makes it. From then until the commit,
//! the transaction locks the single row that assigns positions. As a result, positions have no gaps and
//! become visible in order, and readers miss none.

pub use db::Change;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};

/// The subject of a change of all sessions, instead of an id.
const ALL_SESSIONS: &str = "all";

fn encode(change: Change) -> (&'static str, String) {
    match change {
        Change::Session(id) => ("session", id.to_string()),
        Change::User(id) => ("user", id.to_string()),
        Change::ApiKey(id) => ("api_key", id.to_string()),
        Change::Project(id) => ("project", id.to_string()),
        Change::Organization(id) => ("organization", id.to_string()),
        Change::Catalog => ("catalog", String::new()),
        // The set of kinds is fixed. Older versions can't parse this subject and correctly drop everything.
        Change::AllSessions => ("session", ALL_SESSIONS.to_owned()),
    }
}

fn decode(kind: &str, subject: &str) -> Option<Change> {
    match kind {
        "session" if subject == ALL_SESSIONS => Some(Change::AllSessions),
        "session" => SessionId::parse(subject).map(Change::Session),
        "user" => UserId::parse(subject).map(Change::User),
        "api_key" => ApiKeyId::parse(subject).map(Change::ApiKey),
        "project" => ProjectId::parse(subject).map(Change::Project),
        "organization" => OrganizationId::parse(subject).map(Change::Organization),
        "catalog" => Some(Change::Catalog),
        _ => None,
    }
}

/// Announces a change to every replica, and to this one before [`Tx::commit`] returns. Called by every
/// function that writes a row that replicas cache. The rows of `changes` are written right before the commit,
/// because from then on, writers of changes wait for each other. A change that is recorded twice is written
/// once.
///
/// # Errors
/// None. The commit returns any error.
pub async fn record(tx: &mut Tx, change: Change, now: Time) -> Result<(), db::Error> {
    if tx.has_announced(change) {
        return Ok(());
    }
    sql("UPDATE change_position SET position = position + 1 WHERE id = 1").at_commit(tx);
    let (kind, subject) = encode(change);
    sql("INSERT INTO changes (position, kind, subject, changed_at)
         SELECT position, $1, $2, CAST($3 AS BIGINT) FROM change_position WHERE id = 1")
    .bind(kind)
    .bind(subject)
    .bind(now)
    .at_commit(tx);
    tx.announce(change);
    Ok(())
}

/// A row of `changes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedChange {
    /// The position: one more than that of the previous change.
    pub position: i64,
    /// The change; `None` if it is of a kind that only newer versions have.
    pub change: Option<Change>,
}

impl FromRow for RecordedChange {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (kind, subject): (String, String) = (row.get("kind")?, row.get("subject")?);
        Ok(Self { position: row.get("position")?, change: decode(&kind, &subject) })
    }
}

/// Returns the position of the newest committed change; 0 before the first.
pub async fn newest(tx: &mut Tx) -> Result<i64, db::Error> {
    let (position,): (i64,) = sql("SELECT position FROM change_position WHERE id = 1").one(tx).await?;
    Ok(position)
}

/// Returns at most `limit` changes after this position, oldest first.
pub async fn fetch_after(tx: &mut Tx, position: i64, limit: i64) -> Result<Vec<RecordedChange>, db::Error> {
    sql("SELECT position, kind, subject FROM changes WHERE position > $1 ORDER BY position LIMIT $2")
        .bind(position)
        .bind(limit)
        .all(tx)
        .await
}

/// Removes old changes, and returns their number. A replica that hasn't read them detects the gap.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM changes WHERE changed_at < $1").bind(time).execute(tx).await
}
