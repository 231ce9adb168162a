//! Isolation of usage events that overflow a daily row or a wallet, by halving the batch until they are
//! found.

use super::operations::{Batch, Outcome, UsageEvent};
use super::{BatchError, run_measured};
use crate::Billing;
use crate::rules::events;
use kernel::places::in_order;

/// Records the events, each part in its own transaction, and refuses those that don't fit. If the database
/// fails, the earlier parts stay committed; if their events are sent again, they are duplicates.
pub(super) async fn record(billing: &Billing, all: &[UsageEvent]) -> Result<Vec<Outcome>, db::Error> {
    // Events are recorded before corrections, as within one transaction.
    let mut order: Vec<(usize, &UsageEvent)> = all.iter().enumerate().collect();
    order.sort_by_key(|(_, event)| event.event.corrects.is_some());
    let mut outcomes = Vec::with_capacity(all.len());
    let mut pending = vec![order];
    while let Some(mut part) = pending.pop() {
        let events: Vec<UsageEvent> = part.iter().map(|(_, event)| (*event).clone()).collect();
        let batch = Batch { records: vec![&events], ..Batch::default() };
        let decided = match run_measured(billing, &batch).await {
            Ok(answers) => answers.recorded.into_iter().flatten().collect(),
            Err(BatchError::Overflow) if part.len() > 1 => {
                let second_half = part.split_off(part.len() / 2);
                pending.extend([second_half, part]);
                continue;
            }
            Err(BatchError::Overflow) => vec![Outcome::Refused(events::overflow())],
            Err(failure) => return Err(failure.into_error()),
        };
        outcomes.extend(part.iter().map(|(place, _)| *place).zip(decided));
    }
    Ok(in_order(outcomes))
}
