//! A transaction of the queue of writes. All replicas write in the same order, so that they can't deadlock: usage
//! events, daily rows, wallets by organization, and then the rows that only the holder of a wallet's lock writes.

use std::collections::{BTreeMap, BTreeSet};

use super::events::{self, CountedEvent, RecordingContext};
use super::locked_budgets::{LockedBudgets, Spender};
use super::locked_wallets::{Charges, LockedWallets, ReservationTimes};
use super::operations::{Answer, Operation, UsageEvent};
use super::{call_costs, corrections, extensions, open_months};
use crate::Billing;
use crate::store::reservations::{self, ReservedAmount};
use crate::store::usage::days::{self, DailyKey, DailySums};
use crate::store::usage::recording::InsertReport;
use crate::store::usage::{sums, totals};
use catalog::Kind;
use db::Tx;
use kernel::clock::Month;
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::{Nano, Pico};
use trail::Trail;

/// Before every month.
const FIRST_MONTH: Month = Month::from_unix_months(i64::MIN);
/// After every month.
const LAST_MONTH: Month = Month::from_unix_months(i64::MAX);

/// Maximum number of attempts, each of which may find that a month was just closed, that a correction was
/// just made, or that some events are known.
const ATTEMPTS: usize = 8;

/// The reason why a transaction wasn't committed.
#[derive(Debug)]
pub(super) enum BatchError {
    Database(db::Error),
    /// An assumption about wallets or events was wrong; another attempt may succeed.
    Outdated,
    /// The amounts overflow a daily row or a wallet.
    Overflow,
}

impl BatchError {
    /// Returns `true` if the operations would fail one by one too.
    pub(super) fn is_permanent(&self, pieces: usize) -> bool {
        match self {
            Self::Database(
                db::Error::Unavailable(_) | db::Error::StorageFull(_) | db::Error::ReadOnly(_),
            ) => true,
            Self::Database(_) | Self::Outdated => pieces == 1,
            Self::Overflow => false,
        }
    }

    pub(super) fn into_error(self) -> db::Error {
        match self {
            Self::Database(error) => error,
            Self::Outdated => {
                db::Error::Internal("months went on being closed under a transaction".to_owned())
            }
            Self::Overflow => db::Error::Internal("the books have no room for an amount".to_owned()),
        }
    }
}

impl From<db::Error> for BatchError {
    fn from(error: db::Error) -> Self {
        Self::Database(error)
    }
}

/// Runs the operations in one transaction. Returns an answer to each, in their order, after the commit.
pub(super) async fn run(billing: &Billing, operations: &[&Operation]) -> Result<Vec<Answer>, BatchError> {
    let mut report = InsertReport::Count;
    for _ in 0..ATTEMPTS {
        let mut tx = billing.db().write().await?;
        match run_operations(billing, &mut tx, operations, report).await {
            Ok(answers) => {
                tx.commit().await?;
                return Ok(answers);
            }
            Err(BatchError::Outdated) => report = InsertReport::Rows,
            Err(error) => return Err(error),
        }
    }
    Err(BatchError::Outdated)
}

/// Runs the operations, without the commit. After an error the caller must not commit.
async fn run_operations(
    billing: &Billing,
    tx: &mut Tx,
    operations: &[&Operation],
    report: InsertReport,
) -> Result<Vec<Answer>, BatchError> {
    let now = billing.clock.now();
    let events: Vec<&UsageEvent> = operations.iter().flat_map(|operation| operation.events()).collect();
    let months = open_months::assume(billing, tx, &events).await?;
    let context = RecordingContext { months: &months, report, now };
    let recorded = events::record(billing, tx, &events, context).await?.ok_or(BatchError::Outdated)?;
    let charges = add_to_days(tx, &recorded.counted, &months).await?;
    let mentioned = mentioned_reservations(tx, operations).await?;

    let trail = Trail::system();
    let mut wallets = LockedWallets::lock(
        billing,
        &trail,
        tx,
        organizations(&recorded.counted, &mentioned, operations),
        now,
    )
    .await?;
    if !wallets.have_assumed_months(&recorded.counted, &months)
        || !corrections::are_covered(tx, &recorded.counted).await?
    {
        return Err(BatchError::Outdated);
    }
    let sums: Vec<_> = charges.sums.iter().map(|(key, sums)| (*key, *sums)).collect();
    let totals: Vec<_> = charges.totals.iter().map(|(subject, totals)| (*subject, *totals)).collect();
    if !wallets.can_hold(&charges) || !sums::add(tx, &sums).await? || !totals::add(tx, &totals).await? {
        return Err(BatchError::Overflow);
    }
    call_costs::add(tx, &recorded.counted).await?;
    let mut ended = end_reservations(tx, &recorded.counted, &mentioned, operations).await?;
    let mut budgets = LockedBudgets::new(wallets.with_budgets(), now);
    budgets.load(tx, spenders(&charges, &ended, operations)).await?;
    for reserved in ended.values() {
        wallets.free(reserved)?;
        budgets.free(reserved)?;
    }
    for ((spender, day), amount) in &charges.spent {
        budgets.spend(tx, *spender, *day, *amount).await?;
    }
    let times =
        ReservationTimes { settings: &billing.settings, now, shared_now: billing.clock_guard.shared_now() };
    let extended = extensions::run(tx, operations, &ended, times).await?;
    let captured = captured(&recorded.counted, &ended);
    wallets.charge(tx, &charges, &captured).await?;
    let reserved = wallets.reserve(tx, operations, times, &mut budgets).await?;
    wallets.write(tx).await?;
    budgets.write(billing, tx).await?;

    let mut outcomes = recorded.outcomes.into_iter();
    let mut reserved = reserved.into_iter();
    remove_captured(&mut ended, &recorded.counted);
    let answers = operations.iter().map(|operation| {
        Ok::<_, BatchError>(match operation {
            Operation::Record(events) => Answer::Recorded(outcomes.by_ref().take(events.len()).collect()),
            Operation::Reserve { .. } => Answer::Reserved(reserved.next().ok_or_else(missing_answer)?),
            Operation::Extend(extension) => Answer::Extended(extended.get(&extension.id).copied()),
            Operation::Release(id) => Answer::Released(ended.remove(id).is_some()),
        })
    });
    answers.collect()
}

/// Returns the organizations whose usage and reservations this transaction changes.
fn spenders(
    charges: &Charges<'_>,
    ended: &BTreeMap<ReservationId, ReservedAmount>,
    operations: &[&Operation],
) -> impl Iterator<Item = Spender> {
    let reserving = operations.iter().filter_map(|operation| match operation {
        Operation::Reserve { new, .. } => Some(Spender::from(new)),
        Operation::Record(_) | Operation::Extend(_) | Operation::Release(_) => None,
    });
    let using = charges.spent.keys().map(|(spender, _)| *spender);
    using.chain(ended.values().map(Spender::from)).chain(reserving)
}

/// Removes the reservations that were captured: a capture ends a reservation before a release does.
fn remove_captured(ended: &mut BTreeMap<ReservationId, ReservedAmount>, counted: &[CountedEvent<'_>]) {
    for CountedEvent { event, reservation_id, .. } in counted {
        let organization_id = Some(event.payer.organization_id);
        if let Some(id) = reservation_id
            && ended.get(id).map(|reserved| reserved.organization_id) == organization_id
        {
            ended.remove(id);
        }
    }
}

fn missing_answer() -> db::Error {
    db::Error::Internal("a reservation has no answer".to_owned())
}

/// Returns the sum of the captured reservations of each organization.
fn captured(
    counted: &[CountedEvent<'_>],
    ended: &BTreeMap<ReservationId, ReservedAmount>,
) -> BTreeMap<OrganizationId, i128> {
    let ids: BTreeSet<_> = counted.iter().filter_map(|counted| counted.reservation_id).collect();
    let mut captured = BTreeMap::new();
    for reserved in ids.iter().filter_map(|id| ended.get(id)) {
        *captured.entry(reserved.organization_id).or_default() += reserved.amount.units();
    }
    captured
}

/// Adds the new events to their daily rows, and returns the resulting changes of wallets, sums and totals.
async fn add_to_days<'a>(
    tx: &mut Tx,
    counted: &'a [CountedEvent<'_>],
    months: &BTreeMap<OrganizationId, Month>,
) -> Result<Charges<'a>, BatchError> {
    let mut sums: BTreeMap<DailyKey<'_>, DailySums> = BTreeMap::new();
    let mut corrections: BTreeMap<(DailyKey<'_>, Month), (Kind, DailySums)> = BTreeMap::new();
    let mut charges = Charges::default();
    for CountedEvent { event, billed_month, .. } in counted {
        let id = event.payer.organization_id;
        let open = months.get(&id).copied().unwrap_or(*billed_month);
        // A row of a closed month never changes: its corrections are added to the open month.
        let key = DailyKey::of(event, open.max(*billed_month));
        let day = sums.entry(key).or_default();
        *day = day.plus(DailySums::of(event)).ok_or(BatchError::Overflow)?;
        if *billed_month < open {
            let (_, taken) =
                corrections.entry((key, *billed_month)).or_insert((event.kind, DailySums::default()));
            *taken = taken.plus(DailySums::of(event)).ok_or(BatchError::Overflow)?;
            let credited = charges.credited.entry((id, *billed_month)).or_default();
            credited.corrections.push((event.source.to_string(), event.event_id.to_string()));
        }
    }
    let sums: Vec<_> = sums.into_iter().collect();
    let before = days::add(tx, &sums).await?.ok_or(BatchError::Overflow)?;
    for ((key, sums), before) in sums.iter().zip(before) {
        let spent = charges.spent.entry((key.spender(), key.day())).or_default();
        *spent = spent.checked_add(sums.amount).ok_or(BatchError::Overflow)?;
        for key in key.sum_keys() {
            let sum = charges.sums.entry(key).or_default();
            *sum = sum.plus(*sums).ok_or(BatchError::Overflow)?;
        }
        for subject in key.subjects() {
            let totals = charges.totals.entry((key.organization_id, subject)).or_default();
            *totals = totals.plus(sums.totals()).ok_or(BatchError::Overflow)?;
        }
        let mut amount = before.units() + sums.amount.units();
        let of_row = corrections.range((*key, FIRST_MONTH)..=(*key, LAST_MONTH));
        for ((_, month), (kind, taken)) in of_row.rev() {
            let with = Pico::from_units(amount).floor_nano().units();
            amount -= taken.amount.units();
            let posted = Nano::from_units(with - Pico::from_units(amount).floor_nano().units());
            let credited = charges.credited.entry((key.organization_id, *month)).or_default();
            credited.used.push(key.used(*kind, taken, posted));
        }
        let increase = Pico::from_units(amount).floor_nano().units() - before.floor_nano().units();
        *charges.increases.entry((key.organization_id, key.month)).or_default() += increase;
    }
    Ok(charges)
}

/// Returns the organizations of the reservations to extend or release. Unknown reservations are left out.
async fn mentioned_reservations(
    tx: &mut Tx,
    operations: &[&Operation],
) -> Result<BTreeMap<ReservationId, OrganizationId>, db::Error> {
    let mentioned: BTreeSet<ReservationId> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Extend(extension) => Some(extension.id),
            Operation::Release(id) => Some(*id),
            Operation::Record(_) | Operation::Reserve { .. } => None,
        })
        .collect();
    let mentioned: Vec<_> = mentioned.into_iter().collect();
    let found = reservations::find(tx, &mentioned).await?;
    Ok(found.into_iter().map(|reserved| (reserved.id, reserved.organization_id)).collect())
}

/// Returns the organizations whose wallets must be locked.
fn organizations(
    counted: &[CountedEvent<'_>],
    mentioned: &BTreeMap<ReservationId, OrganizationId>,
    operations: &[&Operation],
) -> BTreeSet<OrganizationId> {
    let mut organizations: BTreeSet<_> =
        counted.iter().map(|counted| counted.event.payer.organization_id).collect();
    organizations.extend(mentioned.values().copied());
    organizations.extend(operations.iter().filter_map(|operation| match operation {
        Operation::Reserve { new, .. } => Some(new.organization_id),
        Operation::Record(_) | Operation::Extend(_) | Operation::Release(_) => None,
    }));
    organizations
}

/// Ends the reservations that are captured or released, and returns those that existed.
async fn end_reservations(
    tx: &mut Tx,
    counted: &[CountedEvent<'_>],
    mentioned: &BTreeMap<ReservationId, OrganizationId>,
    operations: &[&Operation],
) -> Result<BTreeMap<ReservationId, ReservedAmount>, db::Error> {
    let captured = counted
        .iter()
        .filter_map(|counted| counted.reservation_id.map(|id| (id, counted.event.payer.organization_id)));
    let released = operations.iter().filter_map(|operation| match operation {
        Operation::Release(id) => mentioned.get(id).map(|organization_id| (*id, *organization_id)),
        Operation::Record(_) | Operation::Reserve { .. } | Operation::Extend(_) => None,
    });
    let ending: BTreeSet<_> = captured.chain(released).collect();
    let ending: Vec<_> = ending.into_iter().collect();
    let ended = reservations::end(tx, &ending).await?;
    Ok(ended.into_iter().map(|reserved| (reserved.id, reserved)).collect())
}
