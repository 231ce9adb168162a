//! The feed of changes: what replicas hold in memory and must drop.
//!
//! A change is recorded in the transaction that makes it, by its last statements: from there to its commit it holds the
//! one row that gives out positions. So positions have no gaps, become visible in their order, and a reader misses none.

pub use db::Change;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};

/// Stands for every session in the place of an id.
const ALL: &str = "all";

fn parts(change: Change) -> (&'static str, String) {
    match change {
        Change::Session(id) => ("session", id.to_string()),
        Change::User(id) => ("user", id.to_string()),
        Change::ApiKey(id) => ("api_key", id.to_string()),
        Change::Project(id) => ("project", id.to_string()),
        Change::Organization(id) => ("organization", id.to_string()),
        Change::Catalog => ("catalog", String::new()),
        // The words of a kind are fixed. Versions that don't know this subject let go of everything, which is right.
        Change::AllSessions => ("session", ALL.to_owned()),
    }
}

fn change(kind: &str, subject: &str) -> Option<Change> {
    match kind {
        "session" if subject == ALL => Some(Change::AllSessions),
        "session" => SessionId::parse(subject).map(Change::Session),
        "user" => UserId::parse(subject).map(Change::User),
        "api_key" => ApiKeyId::parse(subject).map(Change::ApiKey),
        "project" => ProjectId::parse(subject).map(Change::Project),
        "organization" => OrganizationId::parse(subject).map(Change::Organization),
        "catalog" => Some(Change::Catalog),
        _ => None,
    }
}

/// Tells every replica, this one before [`Tx::commit`] returns. Called by each function that writes what replicas hold in
/// memory. The rows are written right before the commit, because writers of changes wait for each other from there on; a
/// change that is recorded twice is written once.
///
/// # Errors
/// None: the commit has them.
pub async fn record(tx: &mut Tx, change: Change, now: Time) -> Result<(), db::Error> {
    if tx.has_announced(change) {
        return Ok(());
    }
    sql("UPDATE change_position SET position = position + 1 WHERE id = 1").at_commit(tx);
    let (kind, subject) = parts(change);
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
pub struct Recorded {
    /// One more than that of the change before it.
    pub position: i64,
    /// What changed; `None` when a newer version recorded what this one doesn't know.
    pub change: Option<Change>,
}

impl FromRow for Recorded {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (kind, subject): (String, String) = (row.get("kind")?, row.get("subject")?);
        Ok(Self { position: row.get("position")?, change: change(&kind, &subject) })
    }
}

/// The position of the newest change that is committed; 0 before the first.
pub async fn newest(tx: &mut Tx) -> Result<i64, db::Error> {
    let (position,): (i64,) = sql("SELECT position FROM change_position WHERE id = 1").one(tx).await?;
    Ok(position)
}

/// The changes after this position, the oldest first, at most `most`.
pub async fn after(tx: &mut Tx, position: i64, most: i64) -> Result<Vec<Recorded>, db::Error> {
    sql("SELECT position, kind, subject FROM changes WHERE position > $1 ORDER BY position LIMIT $2")
        .bind(position)
        .bind(most)
        .all(tx)
        .await
}

/// Removes old changes; how many. A replica that had not read them notices the gap.
pub async fn remove_older_than(tx: &mut Tx, time: Time) -> Result<u64, db::Error> {
    sql("DELETE FROM changes WHERE changed_at < $1").bind(time).execute(tx).await
}
