//! Costs of recorded calls, written with their events so that each cost counts once.

use std::collections::BTreeMap;

use super::counted::CountedEvent;
use crate::store::usage::costs::{self, CostKey, CostSums};
use db::Tx;

/// Adds the costs of new events, under the locks of their wallets. Runs no query if no event has a cost.
/// Returns `false` if a sum overflows.
pub(super) async fn add(tx: &mut Tx, counted: &[CountedEvent<'_>]) -> Result<bool, db::Error> {
    let mut sums: BTreeMap<CostKey<'_>, CostSums> = BTreeMap::new();
    for CountedEvent { event, cost, .. } in counted {
        let Some(cost) = cost else { continue };
        let key = CostKey {
            day: event.occurred_at.day(),
            organization_id: event.payer.organization_id,
            model: &event.model,
            upstream: &cost.upstream,
        };
        let sum = sums.entry(key).or_default();
        let Some(more) = sum.checked_add(cost.sums()) else { return Ok(false) };
        *sum = more;
    }
    let sums: Vec<_> = sums.into_iter().collect();
    costs::add(tx, &sums).await
}
