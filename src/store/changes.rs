//! The feed of changes: what replicas hold in memory and must drop.
//!
//! A change is recorded in the transaction that makes it, as its last statement: from there to its commit it holds the
//! one row that gives out positions, so that positions become visible in their order and a reader misses none.

use crate::clock::Time;
use crate::db::{self, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, SessionId, UserId};

/// What changed, so that what is held in memory of it is no longer true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A session has ended.
    Session(SessionId),
    /// Several sessions of a person have ended.
    User(UserId),
    /// A key was changed, rotated or deleted.
    ApiKey(ApiKeyId),
    /// A project was deleted.
    Project(ProjectId),
    /// An organization was deleted.
    Organization(OrganizationId),
}

impl Change {
    fn parts(self) -> (&'static str, String) {
        match self {
            Self::Session(id) => ("session", id.to_string()),
            Self::User(id) => ("user", id.to_string()),
            Self::ApiKey(id) => ("api_key", id.to_string()),
            Self::Project(id) => ("project", id.to_string()),
            Self::Organization(id) => ("organization", id.to_string()),
        }
    }
}

/// Tells every replica. The last statement of its transaction: writers of changes wait for each other from here on.
pub async fn record(tx: &mut Tx, change: Change, now: Time) -> Result<(), db::Error> {
    let (position,): (i64,) =
        sql("UPDATE change_position SET position = position + 1 WHERE id = 1 RETURNING position")
            .one(tx)
            .await?;
    let (kind, subject) = change.parts();
    sql("INSERT INTO changes (position, kind, subject, changed_at) VALUES ($1, $2, $3, $4)")
        .bind(position)
        .bind(kind)
        .bind(subject)
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}
