//! One transaction of the queue of writes. All replicas write in the same order, so that they can't deadlock:
//! usage events, daily rows, wallets by organization, and then the rows that only the holder of a wallet's
//! lock writes.

use std::collections::{BTreeMap, BTreeSet};

use super::events::{self, Counted, Recording};
use super::purses::{Life, Purses};
use super::work::{Answer, Reservation, UsageEvent, Work};
use super::{assumptions, corrections};
use crate::Billing;
use crate::rules::invoicing::Used;
use crate::store::reservations::{self, Reserved};
use crate::store::usage::days::{self, DailyKey, DailySums};
use crate::store::usage::recording::Telling;
use crate::store::usage::totals::LAST;
use catalog::Kind;
use db::Tx;
use kernel::clock::{MINUTE_MS, Month, Time};
use kernel::ids::{OrganizationId, ReservationId};
use kernel::money::{Nano, Pico};
use trail::Trail;

/// Before every month.
const FIRST: Month = Month::from_unix_months(i64::MIN);

/// Maximum number of attempts, each of which may find that a month was just closed, that a correction was
/// just made, or that some events are known.
const ATTEMPTS: usize = 8;

/// The reason why a transaction wasn't committed.
#[derive(Debug)]
pub(super) enum Stopped {
    Database(db::Error),
    /// An assumption about wallets or events was wrong; another attempt may succeed.
    Assumption,
    /// The amounts overflow a daily row or a wallet.
    NoRoom,
}

impl Stopped {
    /// Returns `true` if the works would fail one by one too.
    pub(super) fn is_final(&self, pieces: usize) -> bool {
        match self {
            Self::Database(
                db::Error::Unavailable(_) | db::Error::StorageFull(_) | db::Error::ReadOnly(_),
            ) => true,
            Self::Database(_) | Self::Assumption => pieces == 1,
            Self::NoRoom => false,
        }
    }

    pub(super) fn into_error(self) -> db::Error {
        match self {
            Self::Database(error) => error,
            Self::Assumption => {
                db::Error::Internal("months went on being closed under a transaction".to_owned())
            }
            Self::NoRoom => db::Error::Internal("the books have no room for an amount".to_owned()),
        }
    }
}

impl From<db::Error> for Stopped {
    fn from(error: db::Error) -> Self {
        Self::Database(error)
    }
}

/// Does the works in one transaction. Returns one answer each, in their order, after the commit.
pub(super) async fn run(billing: &Billing, works: &[&Work]) -> Result<Vec<Answer>, Stopped> {
    let mut telling = Telling::Count;
    for _ in 0..ATTEMPTS {
        let mut tx = billing.db.write().await?;
        match attempt(billing, &mut tx, works, telling).await {
            Ok(answers) => {
                tx.commit().await?;
                return Ok(answers);
            }
            Err(Stopped::Assumption) => telling = Telling::Rows,
            Err(stopped) => return Err(stopped),
        }
    }
    Err(Stopped::Assumption)
}

/// Does the works, without the commit. After an error nothing may be committed.
async fn attempt(
    billing: &Billing,
    tx: &mut Tx,
    works: &[&Work],
    telling: Telling,
) -> Result<Vec<Answer>, Stopped> {
    let now = billing.clock.now();
    let events: Vec<&UsageEvent> = works.iter().flat_map(|work| work.events()).collect();
    let months = assumptions::open_months(billing, tx, &events).await?;
    let recording = Recording { months: &months, telling, now };
    let recorded = events::record(billing, tx, &events, recording).await?.ok_or(Stopped::Assumption)?;
    let charges = add_to_days(tx, &recorded.counted, &months).await?;
    let named = named_reservations(tx, works).await?;

    let trail = Trail::system();
    let mut purses =
        Purses::lock(billing, &trail, tx, organizations(&recorded.counted, &named, works), now).await?;
    if !purses.hold(&recorded.counted, &months) || !corrections::hold(tx, &recorded.counted).await? {
        return Err(Stopped::Assumption);
    }
    if !purses.have_room(&charges) {
        return Err(Stopped::NoRoom);
    }
    let mut ended = end_reservations(tx, &recorded.counted, &named, works).await?;
    for reserved in ended.values() {
        purses.give_back(reserved)?;
    }
    let shared_now = billing.clock_guard.shared_now();
    let expires_at = shared_now.plus_ms(billing.settings.reservation_minutes.saturating_mul(MINUTE_MS));
    let extended = extend(tx, works, &ended, expires_at).await?;
    let captured = captured(&recorded.counted, &ended);
    purses.charge(tx, &charges, &captured).await?;
    let reserved = purses.reserve(tx, works, now, Life { shared_now, expires_at }).await?;
    purses.write(tx).await?;

    let mut outcomes = recorded.outcomes.into_iter();
    let mut reserved = reserved.into_iter();
    // A capture ends a reservation before a release does.
    for Counted { event, reservation_id, .. } in &recorded.counted {
        let whose = Some(event.payer.organization_id);
        if let Some(id) = reservation_id
            && ended.get(id).map(|reserved| reserved.organization_id) == whose
        {
            ended.remove(id);
        }
    }
    let answers = works.iter().map(|work| {
        Ok::<_, Stopped>(match work {
            Work::Record(events) => Answer::Recorded(outcomes.by_ref().take(events.len()).collect()),
            Work::Reserve { .. } => Answer::Reserved(reserved.next().ok_or_else(lost)?),
            Work::Extend(id) => Answer::Extended(extended.get(id).map(|reserved| Reservation {
                id: *id,
                amount: reserved.amount,
                expires_at,
            })),
            Work::Release(id) => Answer::Released(ended.remove(id).is_some()),
        })
    });
    answers.collect()
}

fn lost() -> db::Error {
    db::Error::Internal("a reservation has no answer".to_owned())
}

/// Returns the sum of the captured reservations of each organization.
fn captured(
    counted: &[Counted<'_>],
    ended: &BTreeMap<ReservationId, Reserved>,
) -> BTreeMap<OrganizationId, i128> {
    let ids: BTreeSet<_> = counted.iter().filter_map(|counted| counted.reservation_id).collect();
    let mut captured = BTreeMap::new();
    for reserved in ids.iter().filter_map(|id| ended.get(id)) {
        *captured.entry(reserved.organization_id).or_default() += reserved.amount.units();
    }
    captured
}

/// The charges and refunds of wallets.
#[derive(Default)]
pub(super) struct Charges {
    /// The rise of what is posted for the daily rows of a billed month; negative for corrections.
    pub(super) rises: BTreeMap<(OrganizationId, Month), i128>,
    /// Usage of closed months that is taken back.
    pub(super) credited: BTreeMap<(OrganizationId, Month), Credited>,
}

/// Usage of a closed month that is taken back.
#[derive(Default)]
pub(super) struct Credited {
    pub(super) used: Vec<Used>,
    /// The corrections, by source and id.
    pub(super) corrections: Vec<(String, String)>,
}

/// Adds the new events to their daily rows.
async fn add_to_days(
    tx: &mut Tx,
    counted: &[Counted<'_>],
    months: &BTreeMap<OrganizationId, Month>,
) -> Result<Charges, Stopped> {
    let mut sums: BTreeMap<DailyKey<'_>, DailySums> = BTreeMap::new();
    let mut taken_back: BTreeMap<(DailyKey<'_>, Month), (Kind, DailySums)> = BTreeMap::new();
    let mut charges = Charges::default();
    for Counted { event, billed_month, .. } in counted {
        let id = event.payer.organization_id;
        let open = months.get(&id).copied().unwrap_or(*billed_month);
        // A row of a closed month never changes: its corrections are added to the open month.
        let key = DailyKey::of(event, open.max(*billed_month));
        let day = sums.entry(key).or_default();
        *day = day.plus(event).ok_or(Stopped::NoRoom)?;
        if *billed_month < open {
            let (_, taken) =
                taken_back.entry((key, *billed_month)).or_insert((event.kind, DailySums::default()));
            *taken = taken.plus(event).ok_or(Stopped::NoRoom)?;
            let credited = charges.credited.entry((id, *billed_month)).or_default();
            credited.corrections.push((event.source.to_string(), event.event_id.to_string()));
        }
    }
    let sums: Vec<_> = sums.into_iter().collect();
    let before = days::add(tx, &sums).await?.ok_or(Stopped::NoRoom)?;
    for ((key, sums), before) in sums.iter().zip(before) {
        let mut amount = before.units() + sums.amount.units();
        let theirs = taken_back.range((*key, FIRST)..=(*key, LAST));
        for ((_, month), (kind, taken)) in theirs.rev() {
            let with = Pico::from_units(amount).floor_nano().units();
            amount -= taken.amount.units();
            let posted = Nano::from_units(with - Pico::from_units(amount).floor_nano().units());
            let credited = charges.credited.entry((key.organization_id, *month)).or_default();
            credited.used.push(key.used(*kind, taken, posted));
        }
        let rise = Pico::from_units(amount).floor_nano().units() - before.floor_nano().units();
        *charges.rises.entry((key.organization_id, key.month)).or_default() += rise;
    }
    Ok(charges)
}

/// Returns the organizations of the reservations that are to be extended or released. Unknown reservations
/// are left out.
async fn named_reservations(
    tx: &mut Tx,
    works: &[&Work],
) -> Result<BTreeMap<ReservationId, OrganizationId>, db::Error> {
    let named: BTreeSet<ReservationId> = works
        .iter()
        .filter_map(|work| match work {
            Work::Extend(id) | Work::Release(id) => Some(*id),
            Work::Record(_) | Work::Reserve { .. } => None,
        })
        .collect();
    let named: Vec<_> = named.into_iter().collect();
    let found = reservations::find(tx, &named).await?;
    Ok(found.into_iter().map(|reserved| (reserved.id, reserved.organization_id)).collect())
}

/// Returns the organizations whose wallets must be locked.
fn organizations(
    counted: &[Counted<'_>],
    named: &BTreeMap<ReservationId, OrganizationId>,
    works: &[&Work],
) -> BTreeSet<OrganizationId> {
    let mut organizations: BTreeSet<_> =
        counted.iter().map(|counted| counted.event.payer.organization_id).collect();
    organizations.extend(named.values().copied());
    organizations.extend(works.iter().filter_map(|work| match work {
        Work::Reserve { new, .. } => Some(new.organization_id),
        Work::Record(_) | Work::Extend(_) | Work::Release(_) => None,
    }));
    organizations
}

/// Ends the reservations that are captured or released, and returns those that existed.
async fn end_reservations(
    tx: &mut Tx,
    counted: &[Counted<'_>],
    named: &BTreeMap<ReservationId, OrganizationId>,
    works: &[&Work],
) -> Result<BTreeMap<ReservationId, Reserved>, db::Error> {
    let captured = counted
        .iter()
        .filter_map(|counted| counted.reservation_id.map(|id| (id, counted.event.payer.organization_id)));
    let released = works.iter().filter_map(|work| match work {
        Work::Release(id) => named.get(id).map(|whose| (*id, *whose)),
        Work::Record(_) | Work::Reserve { .. } | Work::Extend(_) => None,
    });
    let ending: BTreeSet<_> = captured.chain(released).collect();
    let ending: Vec<_> = ending.into_iter().collect();
    let ended = reservations::end(tx, &ending).await?;
    Ok(ended.into_iter().map(|reserved| (reserved.id, reserved)).collect())
}

/// Extends the reservations that weren't ended by another work.
async fn extend(
    tx: &mut Tx,
    works: &[&Work],
    ended: &BTreeMap<ReservationId, Reserved>,
    expires_at: Time,
) -> Result<BTreeMap<ReservationId, Reserved>, db::Error> {
    let ids: BTreeSet<_> = works
        .iter()
        .filter_map(|work| match work {
            Work::Extend(id) if !ended.contains_key(id) => Some(*id),
            _ => None,
        })
        .collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let extended = reservations::extend(tx, &ids, expires_at).await?;
    Ok(extended.into_iter().map(|reserved| (reserved.id, reserved)).collect())
}
