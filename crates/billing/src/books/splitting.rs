//! Usage events that overflow a daily row or a wallet: halves the batch until the events that don't fit are
//! found.

use super::operations::{Answer, Operation, Outcome, UsageEvent};
use super::{BatchError, run_measured};
use crate::Billing;
use crate::rules::events;

/// Records the events, each part in its own transaction, and refuses those that don't fit. If the database fails,
/// the earlier parts stay committed; if their events are sent again, they are duplicates.
pub(super) async fn record(billing: &Billing, all: &[UsageEvent]) -> Result<Answer, db::Error> {
    // Events are recorded before corrections, as within one transaction.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|place| all.get(*place).is_some_and(|event| event.event.corrects.is_some()));
    let mut outcomes: Vec<Option<Outcome>> = vec![None; all.len()];
    let mut pending = vec![order];
    while let Some(mut places) = pending.pop() {
        let events = places.iter().filter_map(|place| all.get(*place).cloned()).collect();
        let part = match run_measured(billing, &[&Operation::Record(events)]).await {
            Ok(mut answers) => match answers.pop() {
                Some(Answer::Recorded(part)) => part,
                other => return Err(db::Error::Internal(format!("usage was answered by {other:?}"))),
            },
            Err(BatchError::Overflow) if places.len() > 1 => {
                let second_half = places.split_off(places.len() / 2);
                pending.extend([second_half, places]);
                continue;
            }
            Err(BatchError::Overflow) => vec![Outcome::Refused(events::overflow())],
            Err(failure) => return Err(failure.into_error()),
        };
        for (place, outcome) in places.into_iter().zip(part) {
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = Some(outcome);
            }
        }
    }
    let outcomes = outcomes.into_iter().collect::<Option<Vec<_>>>();
    let outcomes = outcomes.ok_or_else(|| db::Error::Internal("an event has no outcome".to_owned()))?;
    Ok(Answer::Recorded(outcomes))
}
