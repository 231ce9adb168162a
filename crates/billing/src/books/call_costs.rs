//! Costs of recorded calls: written with their events, so that each counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::BatchError;
use super::events::CountedEvent;
use crate::store::usage::costs::{self, CostKey, CostSums};
use db::Tx;
use kernel::money::Pico;

/// The operator's cost of a whole call, and its list price; also for an event of the rest of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallCost {
    pub upstream: Arc<str>,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
    pub cost: Pico,
}

impl CallCost {
    fn sums(&self) -> CostSums {
        let Self { prompt_tokens, completion_tokens, amount, cost, .. } = *self;
        CostSums { requests: 1, prompt_tokens, completion_tokens, amount, cost }
    }
}

/// Adds the costs of new events, under the locks of their wallets. Without costs it runs no query.
pub(super) async fn add(tx: &mut Tx, counted: &[CountedEvent<'_>]) -> Result<(), BatchError> {
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
        *sum = sum.checked_add(cost.sums()).ok_or(BatchError::Overflow)?;
    }
    let sums: Vec<_> = sums.into_iter().collect();
    match costs::add(tx, &sums).await? {
        true => Ok(()),
        false => Err(BatchError::Overflow),
    }
}
