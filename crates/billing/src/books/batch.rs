//! A transaction of the write queue. All replicas write in the same order, so that they can't deadlock:
//! usage events, daily rows, wallets by organization, and then the rows that only the holder of a wallet's
//! lock writes.

use std::collections::{BTreeMap, BTreeSet};

use super::counted::CountedEvent;
use super::events::{self, RecordingContext};
use super::locked_budgets::LockedBudgets;
use super::locked_wallets::{Charges, LockedWallets, NewReservations};
use super::operations::{Answers, Batch, CallReservation, Outcome, UsageEvent};
use super::{call_costs, call_rows, corrections, extensions, open_months};
use crate::Billing;
use crate::rules::budgets::Spender;
use crate::store::reservations::{self, ReservedAmount};
use crate::store::usage::days::{self, DailyKey, DailySums};
use crate::store::usage::recording::InsertReport;
use crate::store::usage::{sums, totals};
use call_log::Written;
use catalog::Kind;
use db::Tx;
use kernel::clock::Month;
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::{Nano, Pico};
use trail::Trail;

/// A sentinel before every month.
const FIRST_MONTH: Month = Month::from_unix_months(i64::MIN);
/// A sentinel after every month.
const LAST_MONTH: Month = Month::from_unix_months(i64::MAX);

/// Maximum number of attempts. Another attempt is needed if a month was just closed, a correction was just
/// made, or some events were already recorded.
const ATTEMPTS: usize = 8;

/// The reason why a transaction wasn't committed.
#[derive(Debug)]
pub(super) enum BatchError {
    Database(db::Error),
    /// An assumption about wallets or events was wrong; another attempt may succeed.
    Outdated,
    /// The amounts overflow a daily row or a wallet.
    Overflow,
    /// The reserved amounts of the wallets before and after the transaction don't differ by its reservations.
    Imbalance,
}

impl BatchError {
    /// Returns `true` if the operations would also fail one by one.
    pub(super) fn is_permanent(&self, pieces: usize) -> bool {
        match self {
            Self::Database(
                db::Error::Unavailable(_) | db::Error::StorageFull(_) | db::Error::ReadOnly(_),
            ) => true,
            Self::Database(_) | Self::Outdated | Self::Imbalance => pieces == 1,
            Self::Overflow => false,
        }
    }

    pub(super) fn into_error(self) -> db::Error {
        match self {
            Self::Database(error) => error,
            Self::Outdated => db::Error::Internal("months kept closing during a transaction".to_owned()),
            Self::Overflow => db::Error::Internal("an amount is too large for the books".to_owned()),
            Self::Imbalance => {
                db::Error::Internal("the reserved amounts don't add up, so nothing was written".to_owned())
            }
        }
    }
}

impl From<db::Error> for BatchError {
    fn from(error: db::Error) -> Self {
        Self::Database(error)
    }
}

/// Runs the operations in one transaction. Returns their answers after the commit.
pub(super) async fn run(billing: &Billing, batch: &Batch<'_>) -> Result<Answers, BatchError> {
    let mut report = InsertReport::Count;
    for _ in 0..ATTEMPTS {
        let mut tx = billing.db().write().await?;
        match run_operations(billing, &mut tx, batch, report).await {
            Ok((answers, logged)) => {
                tx.commit().await?;
                billing.call_log.committed(logged);
                return Ok(answers);
            }
            Err(BatchError::Outdated) => report = InsertReport::Rows,
            Err(error) => return Err(error),
        }
    }
    Err(BatchError::Outdated)
}

/// Runs the operations without committing. After an error, the caller must not commit.
async fn run_operations(
    billing: &Billing,
    tx: &mut Tx,
    batch: &Batch<'_>,
    report: InsertReport,
) -> Result<(Answers, Written), BatchError> {
    let now = billing.clock.now();

    // 1. Insert the usage events; those that are inserted are new. Assume that their months are the open
    // ones.
    let events: Vec<&UsageEvent> = batch.records.iter().copied().flatten().collect();
    let months = open_months::assume(billing, tx, &events).await?;
    let context = RecordingContext { months: &months, report, now };
    let recorded = events::record(billing, tx, &events, context).await?.ok_or(BatchError::Outdated)?;

    // 2. Add the new events to the daily rows. Each organization pays the increases of its rows.
    let charges = add_to_days(tx, &recorded.counted, &months).await?;

    // 3. Lock the wallets of all organizations, in the order of their ids.
    let named = named_reservations(tx, batch).await?;
    let trail = Trail::system();
    let organizations = organizations(&recorded.counted, &named, batch);
    let mut wallets = LockedWallets::lock(billing, &trail, tx, organizations, now).await?;
    let reserved_before = wallets.reserved();

    // 4. Under the locks, check the assumptions that were made before them.
    if !wallets.have_assumed_months(&recorded.counted, &months)
        || !corrections::are_covered(tx, &recorded.counted).await?
    {
        return Err(BatchError::Outdated);
    }

    // 5. Add the usage to the sums of days and to the totals.
    let sums: Vec<_> = charges.sums.iter().map(|(key, sums)| (*key, *sums)).collect();
    let totals: Vec<_> = charges.totals.iter().map(|(subject, totals)| (*subject, *totals)).collect();
    if !wallets.can_hold(&charges) || !sums::add(tx, &sums).await? || !totals::add(tx, &totals).await? {
        return Err(BatchError::Overflow);
    }

    // 6. Record the operator's costs of the calls.
    if !call_costs::add(tx, &recorded.counted).await? {
        return Err(BatchError::Overflow);
    }

    // 7. End the reservations that are captured or released, and free their money.
    let mut ended = end_reservations(tx, &recorded.counted, &named, batch).await?;
    let freed: i128 = ended.values().map(|ended| ended.amount.units()).sum();
    let mut budgets = LockedBudgets::new(wallets.with_budgets(), now);
    budgets.load(tx, spenders(&charges, &ended, batch)).await?;
    for reserved in ended.values() {
        wallets.free(reserved)?;
        budgets.free(reserved)?;
    }

    // 8. Count the usage against the budgets.
    for ((spender, day), amount) in &charges.spent {
        budgets.spend(tx, *spender, *day, *amount).await?;
    }

    // 9. Extend reservations.
    let extended = extensions::run(tx, &batch.extensions, &ended, &wallets).await?;

    // 10. Charge the wallets, from credits first.
    let captured = captured(&recorded.counted, &ended);
    wallets.charge(tx, &charges, &captured).await?;

    // 11. Make the new reservations that balances, budgets and limits allow.
    let NewReservations { answers: reserved, freed: freed_by_repeats } =
        wallets.reserve(tx, &batch.reserves, &mut budgets).await?;
    let made: i128 = reserved.iter().flatten().map(CallReservation::new_amount).sum();
    if wallets.reserved() != reserved_before - freed - freed_by_repeats + made {
        return Err(BatchError::Imbalance);
    }

    // 12. Write the wallets and the budgets.
    wallets.write(tx).await?;
    budgets.write(billing, tx).await?;

    let mut outcomes = recorded.outcomes.into_iter();
    let recorded_events = batch.records.iter().map(|events| outcomes.by_ref().take(events.len()).collect());
    let recorded_events: Vec<Vec<Outcome>> = recorded_events.collect();
    remove_captured(&mut ended, &recorded.counted);
    let released: Vec<bool> = batch.releases.iter().map(|it| ended.remove(&it.id).is_some()).collect();

    // 13. Log the calls.
    let logged = call_rows::write(billing, tx, &recorded.counted, batch, &released).await?;
    let extended = batch.extensions.iter().map(|extension| extended.get(&extension.id).copied()).collect();
    Ok((Answers { recorded: recorded_events, reserved, extended, released }, logged))
}

/// Returns the organizations whose usage and reservations this transaction changes.
fn spenders(
    charges: &Charges<'_>,
    ended: &BTreeMap<ReservationId, ReservedAmount>,
    batch: &Batch<'_>,
) -> impl Iterator<Item = Spender> {
    let reserving = batch.reserves.iter().map(|reserve| Spender::from(&reserve.new));
    let using = charges.spent.keys().map(|(spender, _)| *spender);
    using.chain(ended.values().map(Spender::from)).chain(reserving)
}

/// Removes the captured reservations from `ended`, because a capture comes before a release.
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

/// Returns the organizations of the reservations to extend or release. Unknown reservations are omitted.
async fn named_reservations(
    tx: &mut Tx,
    batch: &Batch<'_>,
) -> Result<BTreeMap<ReservationId, OrganizationId>, db::Error> {
    let extended = batch.extensions.iter().map(|extension| extension.id);
    let named: BTreeSet<ReservationId> =
        extended.chain(batch.releases.iter().map(|release| release.id)).collect();
    let named: Vec<_> = named.into_iter().collect();
    let found = reservations::find(tx, &named).await?;
    Ok(found.into_iter().map(|reserved| (reserved.id, reserved.organization_id)).collect())
}

/// Returns the organizations whose wallets must be locked.
fn organizations(
    counted: &[CountedEvent<'_>],
    named: &BTreeMap<ReservationId, OrganizationId>,
    batch: &Batch<'_>,
) -> BTreeSet<OrganizationId> {
    let using = counted.iter().map(|counted| counted.event.payer.organization_id);
    let reserving = batch.reserves.iter().map(|reserve| reserve.new.organization_id);
    using.chain(named.values().copied()).chain(reserving).collect()
}

/// Ends the reservations that are captured or released, and returns those that existed.
async fn end_reservations(
    tx: &mut Tx,
    counted: &[CountedEvent<'_>],
    named: &BTreeMap<ReservationId, OrganizationId>,
    batch: &Batch<'_>,
) -> Result<BTreeMap<ReservationId, ReservedAmount>, db::Error> {
    let captured = counted
        .iter()
        .filter_map(|counted| counted.reservation_id.map(|id| (id, counted.event.payer.organization_id)));
    let released = batch.releases.iter();
    let released =
        released.filter_map(|it| named.get(&it.id).map(|organization_id| (it.id, *organization_id)));
    let ending: BTreeSet<_> = captured.chain(released).collect();
    let ending: Vec<_> = ending.into_iter().collect();
    let ended = reservations::end(tx, &ending).await?;
    Ok(ended.into_iter().map(|reserved| (reserved.id, reserved)).collect())
}
