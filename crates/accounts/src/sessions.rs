//! The sessions of a user: users list and end their own sessions, and operators can end them.

use crate::{Accounts, Session, store};
use db::{Lock, Page, Tx};
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{SessionId, UserId};
use kernel::limiter::{self, Subject};

use crate::rules::user_agents::UserAgent;
use crate::store::sessions::Client;
use crate::store::users::User;
use trail::{Action, Event, Trail};

pub use crate::store::sessions::{ListedSession, SessionKind};

/// The maximum number of times per minute that a session's last use is stored.
const SEEN_PER_MINUTE: u32 = 1;

/// A page of a user's live sessions.
#[derive(Clone, Debug)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub rows: Vec<ListedSession>,
    /// The number of live sessions on all pages.
    pub total: i64,
}

/// Returns one page of the caller's live sessions, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(accounts: &Accounts, session: Session, page: Page) -> Result<SessionPage, Error> {
    let now = accounts.clock.now();
    let mut tx = accounts.db.read().await?;
    let user = store::users::by_id(&mut tx, session.user_id).await?;
    let is_operator = user.is_some_and(|user| user.operator_since.is_some());
    let idle_since = accounts.idle_since(is_operator, now);
    let total = store::sessions::count(&mut tx, session.user_id, idle_since, now).await?;
    let rows = store::sessions::list(&mut tx, session.user_id, page, idle_since, now).await?;
    Ok(SessionPage { rows, total })
}

/// Ends a session: its refresh token and its access tokens stop working.
///
/// # Errors
/// The database fails.
pub fn end<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let mut tx = accounts.db.write().await?;
        let now = accounts.clock.now();
        store::sessions::end(&mut tx, session.id, now).await?;
        record(accounts, &mut tx, trail, (Action::SessionEnded, &[session.id]), now).await?;
        Ok(tx.commit().await?)
    })
}

/// Ends a session of the caller, which may be the calling one.
///
/// # Errors
/// `session_not_found` if the caller has no such live session; 401 if the calling session has ended.
pub async fn end_one(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    ended: SessionId,
) -> Result<(), Error> {
    let mut tx = accounts.db.write().await?;
    let now = accounts.clock.now();
    lock_account(&mut tx, session, Lock::Change, now).await?;
    if !store::sessions::end_of_user(&mut tx, session.user_id, ended, now).await? {
        return Err(Code::SessionNotFound.into());
    }
    record(accounts, &mut tx, trail, (Action::SessionEnded, &[ended]), now).await?;
    Ok(tx.commit().await?)
}

/// Ends every session of the caller except the calling one.
///
/// # Errors
/// 401 if the caller's session has ended.
pub async fn end_others(accounts: &Accounts, trail: &Trail, session: Session) -> Result<(), Error> {
    let mut tx = accounts.db.write().await?;
    let now = accounts.clock.now();
    lock_account(&mut tx, session, Lock::Change, now).await?;
    store::sessions::end_all(&mut tx, session.user_id, Some(session.id), now).await?;
    let target = session.user_id.to_string();
    let event = Event { action: Action::SessionsEnded, target, organization_id: None };
    trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
    Ok(tx.commit().await?)
}

/// Updates the time of a session's last use: in memory immediately, in the database at most once per minute.
/// A failure to store it is only logged, because a later use stores a newer time.
pub fn note_seen<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    user_agent: Option<&'a UserAgent>,
    now: Time,
) -> BoxFuture<'a, ()> {
    Box::pin(async move {
        accounts.sessions.note_seen(session.id, now);
        let key = limiter::key_for("session_seen", Subject::Id(session.id.as_u128()));
        if accounts.limiter.check(key, SEEN_PER_MINUTE, now).is_err() {
            return;
        }
        let client = Client { address: trail.address, user_agent };
        if let Err(error) = store_seen(accounts, session, &client, now).await {
            tracing::debug!("the last use of a session can't be stored: {error}");
        }
    })
}

async fn store_seen(
    accounts: &Accounts,
    session: Session,
    client: &Client<'_>,
    now: Time,
) -> Result<(), db::Error> {
    let mut tx = accounts.db.write_behind().await?;
    store::sessions::set_seen(&mut tx, session.id, client, now).await?;
    tx.commit().await
}

/// Locks the account that a session belongs to, and returns the account.
///
/// # Errors
/// 401 if the session has ended since the gate accepted it.
pub(super) async fn lock_account(
    tx: &mut Tx,
    session: Session,
    lock: Lock,
    now: Time,
) -> Result<User, Error> {
    match lock {
        Lock::Change => store::users::lock(tx, session.user_id).await?,
        Lock::Removal => store::users::lock_for_new_name(tx, session.user_id).await?,
    }
    if store::sessions::live(tx, session.id, now).await?.is_none() {
        return Err(Code::InvalidAccessToken.into());
    }
    Ok(store::users::by_id(tx, session.user_id).await?.ok_or(Code::InvalidAccessToken)?)
}

/// Adds an audit entry for each of these sessions.
pub(super) async fn record(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    (action, sessions): (Action, &[SessionId]),
    now: Time,
) -> Result<(), Error> {
    for id in sessions {
        let event = Event { action, target: id.to_string(), organization_id: None };
        trail::record(tx, trail, &event, now, &accounts.random).await?;
    }
    Ok(())
}

/// Ends the sessions of a user, or all sessions if `user_id` is `None`, on behalf of an operator. Returns the
/// number of sessions that were live.
///
/// # Errors
/// The database fails.
pub async fn end_all(accounts: &Accounts, user_id: Option<UserId>) -> Result<u64, Error> {
    let mut tx = accounts.db.write().await?;
    let sessions = end_all_in(accounts, &mut tx, user_id).await?;
    tx.commit().await?;
    Ok(sessions)
}

/// Does the same as [`end_all`] in the caller's transaction.
pub(super) async fn end_all_in(
    accounts: &Accounts,
    tx: &mut Tx,
    user_id: Option<UserId>,
) -> Result<u64, Error> {
    let now = accounts.clock.now();
    let sessions = store::sessions::end_live(tx, user_id, now).await?;
    let target = user_id.map_or_else(|| "all".to_owned(), |id| id.to_string());
    let event = Event { action: Action::SessionsEnded, target, organization_id: None };
    trail::record(tx, &Trail::operator(), &event, now, &accounts.random).await?;
    Ok(sessions)
}
