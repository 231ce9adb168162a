//! Ends reservations that were not captured, released or extended in time, by the clock that replicas share.

use std::collections::BTreeMap;

use crate::{Billing, store};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::Nano;

/// Maximum number of reservations that one transaction ends, as calls wait for the same wallets.
const MAX_PER_TRANSACTION: i64 = 200;

/// Ends the reservations that are due and frees their money. Returns how many; replicas that run at the same
/// time count each reservation once.
///
/// # Errors
/// The database fails.
pub async fn expire_due(billing: &Billing) -> Result<u64, Error> {
    let mut ended = 0;
    loop {
        if !billing.clock_guard.is_trusted() {
            return Ok(ended);
        }
        let now = billing.clock_guard.shared_now();
        let due = store::reservations::due(&mut billing.db().read().await?, now, MAX_PER_TRANSACTION).await?;
        if due.is_empty() {
            return Ok(ended);
        }
        let mut by_organization: BTreeMap<OrganizationId, Vec<ReservationId>> = BTreeMap::new();
        for reserved in due {
            by_organization.entry(reserved.organization_id).or_default().push(reserved.id);
        }
        ended += expire(billing, &by_organization, now).await?;
    }
}

/// Ends reservations, in the order of their organizations' wallets.
async fn expire(
    billing: &Billing,
    by_organization: &BTreeMap<OrganizationId, Vec<ReservationId>>,
    now: Time,
) -> Result<u64, Error> {
    let mut ended = 0;
    let mut tx = billing.db().write().await?;
    for (organization_id, ids) in by_organization {
        let mut wallet = store::wallets::lock_existing(&mut tx, *organization_id, now).await?;
        let mut free = 0;
        for id in ids {
            if let Some(reserved) = store::reservations::expire(&mut tx, *id, now).await? {
                free += reserved.amount.units();
                ended += 1;
            }
        }
        if free > 0 {
            wallet.reserved = Nano::from_units(wallet.reserved.units() - free);
            store::wallets::write(&mut tx, &wallet).await?;
        }
    }
    tx.commit().await?;
    Ok(ended)
}
