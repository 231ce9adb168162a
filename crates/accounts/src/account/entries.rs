//! Entries of the audit trail about an account.

use crate::Accounts;
use crate::store::users::User;
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use trail::{Action, Event, Trail};

/// Adds an entry whose target is the account.
///
/// # Errors
/// The database fails.
pub(crate) async fn record(
    accounts: &Accounts,
    tx: &mut Tx,
    trail: &Trail,
    action: Action,
    user: &User,
    now: Time,
) -> Result<(), Error> {
    let event = Event { action, target: user.id.to_string(), organization_id: None };
    Ok(trail::record(tx, trail, &event, now, &accounts.random).await?)
}
