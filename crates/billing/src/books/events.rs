//! Recording of events: determines which of them are new.

use std::collections::BTreeMap;

use super::corrections;
use super::counted::{CountedEvent, FinalEvent, Verdict};
use super::operations::{Outcome, UsageEvent};
use crate::Billing;
use crate::store::usage::recording::{self, InsertReport, NewEvent, RatedEvent};
use db::Tx;
use kernel::clock::{Month, Time};
use kernel::ids::OrganizationId;
use kernel::places::in_order;

/// The outcomes in the order of the events, and the new events.
pub(super) struct RecordedEvents<'a> {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) counted: Vec<CountedEvent<'a>>,
}

/// The conditions under which the events of a transaction are recorded.
#[derive(Clone, Copy)]
pub(super) struct RecordingContext<'a> {
    /// The first open month of each organization.
    pub(super) months: &'a BTreeMap<OrganizationId, Month>,
    pub(super) report: InsertReport,
    pub(super) now: Time,
}

impl RecordingContext<'_> {
    /// Returns the month in which a new event is billed: its own month, or the first open one if that is
    /// later.
    fn billed_month(&self, event: &RatedEvent) -> Month {
        let own = event.occurred_at.day().month();
        self.months.get(&event.payer.organization_id).map_or(own, |open| own.max(*open))
    }
}

/// An event with its position in the order of arrival.
type IndexedEvent<'a> = (usize, &'a UsageEvent);

/// Records the new events. Of several events with the same key, the first is compared with the stored event,
/// and the others with the result. Events are recorded before corrections, so that a correction may arrive
/// together with its event.
///
/// Returns `None` if the transaction must be started over: see [`recording::insert`].
pub(super) async fn record<'a>(
    billing: &Billing,
    tx: &mut Tx,
    events: &[&'a UsageEvent],
    context: RecordingContext<'_>,
) -> Result<Option<RecordedEvents<'a>>, db::Error> {
    let mut waiting: Vec<IndexedEvent<'a>> = events.iter().copied().enumerate().collect();
    waiting.sort_unstable_by(|(i, a), (j, b)| a.event.cmp_key(&b.event).then(i.cmp(j)));
    let mut decided: Vec<(usize, Outcome)> = Vec::with_capacity(events.len());
    let mut counted = Vec::with_capacity(events.len());
    let mut has_second_pass = false;
    while !waiting.is_empty() {
        let groups: Vec<&[IndexedEvent<'a>]> =
            waiting.chunk_by(|(_, a), (_, b)| a.event.cmp_key(&b.event).is_eq()).collect();
        let Some(verdicts) = verdicts(billing, tx, &groups, context).await? else { return Ok(None) };
        let mut undecided = Vec::new();
        for (group, verdict) in groups.iter().zip(verdicts) {
            decide(group, verdict, &mut decided, &mut counted, &mut undecided);
        }
        waiting = undecided;
        has_second_pass |= !waiting.is_empty();
    }
    // The new events of a pass are in the order of their keys.
    if has_second_pass {
        counted.sort_unstable_by(|a, b| a.event.cmp_key(&b.event));
    }
    Ok(Some(RecordedEvents { outcomes: in_order(decided), counted }))
}

/// Returns a verdict on the first event of each group.
async fn verdicts<'a>(
    billing: &Billing,
    tx: &mut Tx,
    groups: &[&[IndexedEvent<'a>]],
    context: RecordingContext<'_>,
) -> Result<Option<Vec<Verdict<'a>>>, db::Error> {
    let firsts: Vec<IndexedEvent<'a>> = groups.iter().filter_map(|group| group.first().copied()).collect();
    let plain = firsts.iter().map(|(_, first)| &first.event).filter(|event| event.corrects.is_none());
    let plain = plain.map(|event| NewEvent { event, billed_month: context.billed_month(event) });
    let plain: Vec<NewEvent<'_>> = plain.collect();
    let Some(new) = recording::insert(tx, &plain, context.report, context.now).await? else {
        return Ok(None);
    };
    let old: Vec<_> =
        plain.iter().zip(&new).filter(|(_, new)| !**new).map(|(old, _)| old.event.key()).collect();
    let stored = recording::stored_hashes(tx, &old).await?;
    let mut corrections = corrections::record(billing, tx, &firsts, context.now).await?.into_iter();
    let (mut new, mut stored) = (new.into_iter(), stored.into_iter());
    let verdict = |(_, first): &IndexedEvent<'a>| {
        let event = &first.event;
        if event.corrects.is_some() {
            return corrections.next();
        }
        match new.next()? {
            true => Some(Verdict::New(FinalEvent::AsReported(event), context.billed_month(event))),
            false => Some(Verdict::Stored(stored.next()??)),
        }
    };
    let verdicts = firsts.iter().map(verdict).collect::<Option<Vec<_>>>();
    verdicts.map(Some).ok_or_else(|| db::Error::Internal("an event is neither new nor stored".to_owned()))
}

/// Decides on the events of one key. Events that differ from a refused one are decided in the next pass.
fn decide<'a>(
    group: &[IndexedEvent<'a>],
    verdict: Verdict<'a>,
    decided: &mut Vec<(usize, Outcome)>,
    counted: &mut Vec<CountedEvent<'a>>,
    undecided: &mut Vec<IndexedEvent<'a>>,
) {
    let Some(((place, first), others)) = group.split_first() else { return };
    let same_as = |hash: [u8; 32], event: &UsageEvent| match event.event.payload_hash == hash {
        true => Outcome::Duplicate,
        false => Outcome::Conflict,
    };
    let hash = first.event.payload_hash;
    match verdict {
        Verdict::New(event, billed_month) => {
            let (cost, course) = (first.cost.as_deref(), first.course.as_deref());
            let reservation_id = first.reservation_id;
            counted.push(CountedEvent { event, billed_month, reservation_id, cost, course });
            decided.push((*place, Outcome::New));
            decided.extend(others.iter().map(|(place, other)| (*place, same_as(hash, other))));
        }
        Verdict::Stored(stored) => {
            decided.extend(group.iter().map(|(place, other)| (*place, same_as(stored, other))));
        }
        Verdict::Refused(refusal) => {
            let (same, differ): (Vec<_>, Vec<_>) =
                group.iter().partition(|(_, other)| other.event.payload_hash == hash);
            decided.extend(same.into_iter().map(|(place, _)| (place, Outcome::Refused(refusal.clone()))));
            undecided.extend(differ);
        }
    }
}
