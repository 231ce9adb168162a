//! Sessions. A token is valid only while its session is live.

use std::net::IpAddr;

use crate::rules::user_agents::UserAgent;
use cluster::changes::{self, Change};
use db::{Page, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{ConnectionId, SessionId, UserId};
use strum::{EnumString, IntoStaticStr};

/// A session that has neither ended nor expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSession {
    /// The user who logged in.
    pub user_id: UserId,
    pub kind: SessionKind,
    /// `true` if the session is kept when the browser is closed, and doesn't end when it isn't used.
    pub remember_me: bool,
    /// The stored time of the session's last use, which can be a minute behind.
    pub last_seen_at: Time,
    /// The time at which the user last confirmed their identity.
    pub authenticated_at: Time,
    /// The time at which the session expires.
    pub expires_at: Time,
    /// The connection to a provider that opened the session.
    pub connection_id: Option<ConnectionId>,
    /// `true` if the user is an operator.
    pub is_operator: bool,
}

db::row!(LiveSession {
    user_id,
    kind,
    remember_me,
    last_seen_at,
    authenticated_at,
    expires_at,
    connection_id,
    is_operator
});

/// The kind of client that uses a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SessionKind {
    /// A program, with access and refresh tokens.
    Api,
    /// A browser in the console.
    Browser,
}

db::words!(SessionKind);

/// A client at the time of a login, a refresh or a page view.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Client<'a> {
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    /// The client's `User-Agent`.
    pub user_agent: Option<&'a UserAgent>,
}

impl Client<'_> {
    fn address_text(&self) -> Option<String> {
        self.address.map(|address| address.to_string())
    }
}

/// The values of a new session.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    pub id: SessionId,
    /// The user who logged in.
    pub user_id: UserId,
    pub kind: SessionKind,
    /// `true` if the session is kept when the browser is closed, and doesn't end when it isn't used.
    pub remember_me: bool,
    /// The client that logged in.
    pub client: Client<'a>,
    pub created_at: Time,
    pub expires_at: Time,
}

/// Adds a session of a user who has just confirmed their identity.
pub async fn insert(tx: &mut Tx, session: &NewSession<'_>) -> Result<(), db::Error> {
    insert_of_connection(tx, session, session.created_at, None).await
}

/// Adds a session of a user who confirmed their identity at `authenticated_at`. `connection_id` is the
/// connection to a provider that opened it, if any.
pub async fn insert_of_connection(
    tx: &mut Tx,
    session: &NewSession<'_>,
    authenticated_at: Time,
    connection_id: Option<ConnectionId>,
) -> Result<(), db::Error> {
    sql("INSERT INTO sessions (id, user_id, kind, remember_me, created_at, authenticated_at, expires_at, address, user_agent,
                               connection_id)
         VALUES ($1, $2, $3, $4, $5, $9, $6, $7, $8, $10)")
    .bind(session.id)
    .bind(session.user_id)
    .bind(session.kind)
    .bind(session.remember_me)
    .bind(session.created_at)
    .bind(session.expires_at)
    .bind(session.client.address_text())
    .bind(session.client.user_agent.map(UserAgent::as_str))
    .bind(authenticated_at)
    .bind(connection_id)
    .defer(tx)
    .await
}

/// Returns the session if it is live; otherwise `None`.
pub async fn live(tx: &mut Tx, session_id: SessionId, now: Time) -> Result<Option<LiveSession>, db::Error> {
    sql("SELECT user_id, kind, remember_me, COALESCE(last_seen_at, created_at) AS last_seen_at,
                COALESCE(authenticated_at, created_at) AS authenticated_at, expires_at, connection_id,
                CASE WHEN EXISTS (SELECT 1 FROM users u WHERE u.id = sessions.user_id AND u.operator_since IS NOT NULL)
                     THEN 1 ELSE 0 END AS is_operator
         FROM sessions WHERE id = $1 AND ended_at IS NULL AND expires_at > $2")
    .bind(session_id)
    .bind(now)
    .optional(tx)
    .await
}

/// A session in the list of its user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedSession {
    pub id: SessionId,
    pub created_at: Time,
    /// The time of the login, the last refresh or the last page view.
    pub last_seen_at: Time,
    /// The client's address at that time, if known.
    pub address: Option<String>,
    /// The client's `User-Agent` at that time.
    pub user_agent: Option<String>,
}

db::row!(ListedSession { id, created_at, last_seen_at, address, user_agent });

/// Returns one page of a user's live sessions, newest first. Sessions of browsers that were last seen at or
/// before `idle_since` are left out, unless they are remembered.
pub async fn list(
    tx: &mut Tx,
    user_id: UserId,
    page: Page,
    idle_since: Time,
    now: Time,
) -> Result<Vec<ListedSession>, db::Error> {
    let list = sql(LIST).bind(user_id).bind(now).bind(idle_since);
    list.bind(page.page_size).bind(page.offset()).all(tx).await
}

/// The statement of [`list`].
pub const LIST: &str =
    "SELECT id, created_at, COALESCE(last_seen_at, created_at) AS last_seen_at, address, user_agent
     FROM sessions /*+ INDEXED BY sessions_live */
     WHERE user_id = $1 AND ended_at IS NULL AND expires_at > $2
         AND (kind <> 'browser' OR remember_me = 1 OR COALESCE(last_seen_at, created_at) > $3)
     ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5";

/// Returns the number of sessions on all pages of [`list`].
pub async fn count(tx: &mut Tx, user_id: UserId, idle_since: Time, now: Time) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(COUNT).bind(user_id).bind(now).bind(idle_since).one(tx).await?;
    Ok(count)
}

/// The statement of [`count`].
pub const COUNT: &str = "SELECT COUNT(*) FROM sessions /*+ INDEXED BY sessions_live */
     WHERE user_id = $1 AND ended_at IS NULL AND expires_at > $2
         AND (kind <> 'browser' OR remember_me = 1 OR COALESCE(last_seen_at, created_at) > $3)";

/// Stores the time and the client of a live session's last use. The idle time of a browser's session is
/// counted from this time.
pub async fn set_seen(
    tx: &mut Tx,
    session_id: SessionId,
    client: &Client<'_>,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE sessions SET last_seen_at = $2, address = $3, user_agent = $4
         WHERE id = $1 AND ended_at IS NULL")
    .bind(session_id)
    .bind(now)
    .bind(client.address_text())
    .bind(client.user_agent.map(UserAgent::as_str))
    .execute(tx)
    .await?;
    Ok(())
}

/// Ends a live session if it belongs to this user, and notifies every replica. Returns `true` if it ended.
pub async fn end_of_user(
    tx: &mut Tx,
    user_id: UserId,
    session_id: SessionId,
    now: Time,
) -> Result<bool, db::Error> {
    let ended = sql("UPDATE sessions SET ended_at = $3
                     WHERE id = $1 AND user_id = $2 AND ended_at IS NULL AND expires_at > $3")
    .bind(session_id)
    .bind(user_id)
    .bind(now)
    .execute(tx)
    .await?;
    if ended == 1 {
        changes::record(tx, Change::Session(session_id), now).await?;
    }
    Ok(ended == 1)
}

/// Ends a session, and notifies every replica.
pub async fn end(tx: &mut Tx, session_id: SessionId, now: Time) -> Result<(), db::Error> {
    changes::record(tx, Change::Session(session_id), now).await?;
    sql("UPDATE sessions SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL")
        .bind(session_id)
        .bind(now)
        .defer(tx)
        .await
}

/// Ends every session of a user except the given one, and notifies every replica.
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

/// Ends the live sessions of a user, or of all users, and notifies every replica. Returns their number.
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

/// Ends the sessions that a connection has opened, except the given one, and notifies every replica. Returns
/// the sessions that ended.
pub async fn end_of_connection(
    tx: &mut Tx,
    connection_id: ConnectionId,
    except: Option<SessionId>,
    now: Time,
) -> Result<Vec<SessionId>, db::Error> {
    let except = except.map(|id| id.to_string()).unwrap_or_default();
    let rows: Vec<(SessionId,)> =
        sql(END_OF_CONNECTION).bind(connection_id).bind(except).bind(now).all(tx).await?;
    for (id,) in &rows {
        changes::record(tx, Change::Session(*id), now).await?;
    }
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// The statement of [`end_of_connection`].
pub const END_OF_CONNECTION: &str = "UPDATE sessions SET ended_at = $3
     WHERE connection_id = $1 AND id <> $2 AND ended_at IS NULL RETURNING id";

/// The maximum number of sessions that one login ends.
const MAX_ENDED_PER_LOGIN: i64 = 1_000;

/// The statement of [`end_oldest`]. Its index doesn't contain sessions that have ended, so they aren't read.
pub const END_OLDEST: &str = "UPDATE sessions SET ended_at = $3 WHERE id IN
     (SELECT id FROM sessions /*+ INDEXED BY sessions_live */
      WHERE user_id = $1 AND ended_at IS NULL AND expires_at > $3 AND id <> $2
      ORDER BY created_at DESC, id DESC LIMIT $5 OFFSET $4)
     RETURNING id";

/// Ends the oldest live sessions of a user, so that at most `limit` are left, including `kept`, and notifies
/// every replica. Returns the sessions that ended.
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

/// Removes up to `limit` sessions that had ended or expired by `time`, and returns their number.
pub async fn remove_ended_before(tx: &mut Tx, time: Time, limit: i64) -> Result<u64, db::Error> {
    sql("DELETE FROM sessions WHERE id IN
         (SELECT id FROM sessions WHERE expires_at <= $1 OR ended_at <= $1 LIMIT $2)")
    .bind(time)
    .bind(limit)
    .execute(tx)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_words_never_change() {
        assert_eq!(SessionKind::Api.as_str(), "api");
        assert_eq!(SessionKind::Browser.as_str(), "browser");
    }
}
