//! Ends sessions: one by its owner, many by an operator.

use crate::{Accounts, Session, store};
use db::Tx;
use kernel::error::Error;
use kernel::ids::UserId;

use trail::{Action, Event, Trail};

/// Ends a session: its refresh token and its access tokens stop working.
///
/// # Errors
/// The database fails.
pub async fn end(accounts: &Accounts, trail: &Trail, session: Session) -> Result<(), Error> {
    let mut tx = accounts.db.write().await?;
    let now = accounts.clock.now();
    store::sessions::end(&mut tx, session.id, now).await?;
    let event = Event { action: Action::SessionEnded, target: session.id.to_string(), organization_id: None };
    trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
    Ok(tx.commit().await?)
}

/// Ends the sessions of a user, or all sessions, for the operator; returns how many were live.
///
/// # Errors
/// The database fails.
pub async fn end_all(accounts: &Accounts, user_id: Option<UserId>) -> Result<u64, Error> {
    let mut tx = accounts.db.write().await?;
    let sessions = end_all_in(accounts, &mut tx, user_id).await?;
    tx.commit().await?;
    Ok(sessions)
}

/// As [`end_all`], in the caller's transaction.
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
