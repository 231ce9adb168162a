//! Login sessions: a token is valid while its session is live.

use cluster::changes::{self, Change};
use db::{Tx, sql};
use kernel::clock::Time;
use kernel::ids::{SessionId, UserId};

/// A session that has neither ended nor expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSession {
    /// The user who logged in.
    pub user_id: UserId,
    /// When it expires.
    pub expires_at: Time,
}

db::row!(LiveSession { user_id, expires_at });

/// Adds a session.
pub async fn insert(
    tx: &mut Tx,
    session_id: SessionId,
    user_id: UserId,
    remember_me: bool,
    now: Time,
    expires_at: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO sessions (id, user_id, remember_me, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)")
        .bind(session_id)
        .bind(user_id)
        .bind(remember_me)
        .bind(now)
        .bind(expires_at)
        .defer(tx)
        .await
}

/// Returns the session if it is live.
pub async fn live(tx: &mut Tx, session_id: SessionId, now: Time) -> Result<Option<LiveSession>, db::Error> {
    sql("SELECT user_id, expires_at FROM sessions WHERE id = $1 AND ended_at IS NULL AND expires_at > $2")
        .bind(session_id)
        .bind(now)
        .optional(tx)
        .await
}

/// Ends a session, and announces it to every replica.
pub async fn end(tx: &mut Tx, session_id: SessionId, now: Time) -> Result<(), db::Error> {
    changes::record(tx, Change::Session(session_id), now).await?;
    sql("UPDATE sessions SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL")
        .bind(session_id)
        .bind(now)
        .defer(tx)
        .await
}

/// Ends every session of a user except the given one, and announces it to every replica.
pub async fn end_all(
    tx: &mut Tx,
    user_id: UserId,
    except: Option<SessionId>,
    now: Time,
) -> Result<(), db::Error> {
    changes::record(tx, Change::User(user_id), now).await?;
    sql("UPDATE sessions SET ended_at = $3 WHERE user_id = $1 AND id <> $2 AND ended_at IS NULL")
        .bind(user_id)
        .bind(except.map(|id| id.to_string()).unwrap_or_default())
        .bind(now)
        .defer(tx)
        .await
}

/// Ends the live sessions of a user, or of all users, and announces it to every replica; returns how many.
pub async fn end_live(tx: &mut Tx, user_id: Option<UserId>, now: Time) -> Result<u64, db::Error> {
    changes::record(tx, user_id.map_or(Change::AllSessions, Change::User), now).await?;
    let statement = match user_id {
        Some(id) => sql(
            "UPDATE sessions SET ended_at = $1 WHERE user_id = $2 AND ended_at IS NULL AND expires_at > $1",
        )
        .bind(now)
        .bind(id),
        None => sql("UPDATE sessions SET ended_at = $1 WHERE ended_at IS NULL AND expires_at > $1").bind(now),
    };
    statement.execute(tx).await
}

/// The most sessions that one login ends.
const MAX_ENDED_PER_LOGIN: i64 = 1_000;

/// The statement of [`end_oldest`]. Its index holds live sessions only, so ended ones cost nothing.
pub const END_OLDEST: &str = "UPDATE sessions SET ended_at = $3 WHERE id IN
     (SELECT id FROM sessions /*+ INDEXED BY sessions_live */
      WHERE user_id = $1 AND ended_at IS NULL AND expires_at > $3 AND id <> $2
      ORDER BY created_at DESC, id DESC LIMIT $5 OFFSET $4)
     RETURNING id";

/// Ends the oldest live sessions of a person, so that `limit` are left, `kept` among them, and announces it
/// to every replica. Returns the sessions that ended.
pub async fn end_oldest(
    tx: &mut Tx,
    user_id: UserId,
    kept: SessionId,
    limit: u32,
    now: Time,
) -> Result<Vec<SessionId>, db::Error> {
    let rows: Vec<(SessionId,)> = sql(END_OLDEST)
        .bind(user_id)
        .bind(kept)
        .bind(now)
        .bind(i64::from(limit).saturating_sub(1))
        .bind(MAX_ENDED_PER_LOGIN)
        .all(tx)
        .await?;
    for (id,) in &rows {
        changes::record(tx, Change::Session(*id), now).await?;
    }
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Removes up to `limit` sessions that had ended or expired by `time`; returns how many.
pub async fn remove_ended_before(tx: &mut Tx, time: Time, limit: i64) -> Result<u64, db::Error> {
    sql("DELETE FROM sessions WHERE id IN
         (SELECT id FROM sessions WHERE expires_at <= $1 OR ended_at <= $1 LIMIT $2)")
    .bind(time)
    .bind(limit)
    .execute(tx)
    .await
}
