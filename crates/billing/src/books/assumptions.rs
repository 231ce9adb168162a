//! The first open month of each organization, as far as it is known before its wallet is locked.

use std::collections::{BTreeMap, BTreeSet};

use super::work::UsageEvent;
use crate::Billing;
use crate::store;
use db::Tx;
use kernel::clock::Month;
use kernel::ids::OrganizationId;

/// Of those whose usage is reported. A remembered month costs no query; the lock shows if it still holds.
pub(super) async fn open_months(
    billing: &Billing,
    tx: &mut Tx,
    events: &[&UsageEvent],
) -> Result<BTreeMap<OrganizationId, Month>, db::Error> {
    let organizations: BTreeSet<_> = events.iter().map(|event| event.event.payer.organization_id).collect();
    let mut months = BTreeMap::new();
    for organization_id in organizations {
        let open = match billing.books.open_months.get(&organization_id.as_u128()) {
            Some(open) => open,
            None => {
                let wallet = store::wallets::get(tx, organization_id).await?;
                wallet.ok_or_else(|| missing(organization_id))?.open_month
            }
        };
        months.insert(organization_id, open);
    }
    Ok(months)
}

/// Everybody has a wallet, from the first day on and after the last.
pub(super) fn missing(organization_id: OrganizationId) -> db::Error {
    db::Error::Internal(format!("{organization_id} has no wallet"))
}
