//! The first open month of each organization, as assumed before its wallet is locked.

use std::collections::{BTreeMap, BTreeSet};

use super::operations::UsageEvent;
use crate::{Billing, store};
use db::Tx;
use kernel::clock::Month;
use kernel::ids::OrganizationId;

/// Returns the assumed open months of the organizations whose usage is reported. Cached months need no query;
/// they are checked under the lock.
pub(super) async fn assume(
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
                wallet.ok_or_else(|| store::wallets::missing(organization_id))?.open_month
            }
        };
        months.insert(organization_id, open);
    }
    Ok(months)
}
