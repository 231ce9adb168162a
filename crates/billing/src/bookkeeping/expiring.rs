//! Events for webhooks about credits that expire soon.

use super::is_database_unusable;
use crate::Billing;
use crate::store::{credits, wallets};
use db::Tx;
use events::data::CreditExpiring;
use kernel::clock::{DAY_MS, Time};
use kernel::error::Error;
use kernel::ids::{CreditId, OrganizationId};

/// The time before its end from which a credit counts as expiring soon, in milliseconds.
const SOON_MS: i64 = 7 * DAY_MS;
/// Maximum number of credits that one query returns.
const MAX_AT_ONCE: i64 = 100;

/// Notifies webhooks, once, of every credit that expires within a week and isn't used up. Returns the number
/// of credits; replicas that run at the same time announce each one once.
///
/// # Errors
/// The database fails.
pub async fn announce_due(billing: &Billing) -> Result<usize, Error> {
    let (mut after, mut announced) = (None, 0);
    loop {
        // A sent event can't be taken back, so none is queued while the clock isn't trusted.
        if !billing.clock_guard.is_trusted() {
            return Ok(announced);
        }
        let mut tx = billing.db().read().await?;
        let now = billing.clock_guard.time_in(&mut tx).await?;
        let ends = (now, now.plus_ms(SOON_MS));
        let slice = credits::list_expiring(&mut tx, ends, after, MAX_AT_ONCE).await?;
        let Some(last) = slice.last() else { return Ok(announced) };
        after = Some((last.expires_at, last.id));
        for expiring in slice {
            match announce(billing, expiring.organization_id, expiring.id).await {
                Ok(is_first) => announced += usize::from(is_first),
                Err(error) if is_database_unusable(&error) => return Err(error),
                Err(error) => tracing::error!(credit = %expiring.id, "a credit can't be announced: {error}"),
            }
        }
    }
}

/// Announces that a credit expires soon. Returns `false` if it was already announced or is used up.
async fn announce(billing: &Billing, organization_id: OrganizationId, id: CreditId) -> Result<bool, Error> {
    let now = billing.clock.now();
    let mut tx = billing.db().write().await?;
    let wallet = wallets::lock_existing(&mut tx, organization_id, &billing.clock_guard).await?;
    let is_first = credits::set_expiry_announced(&mut tx, id, now).await?;
    if is_first {
        emit(billing, &mut tx, (organization_id, wallet.currency), id, now).await?;
    }
    tx.commit().await?;
    Ok(is_first)
}

async fn emit(
    billing: &Billing,
    tx: &mut Tx,
    (organization_id, currency): (OrganizationId, String),
    credit_id: CreditId,
    now: Time,
) -> Result<(), db::Error> {
    let Some(credit) = credits::get(tx, credit_id).await? else { return Ok(()) };
    let Some(expires_at) = credit.expires_at else { return Ok(()) };
    let expiring =
        CreditExpiring { organization_id, credit_id, currency, amount: credit.remaining, expires_at };
    events::emit(tx, &expiring, now, &billing.random).await
}
