//! Usage: events and daily rows at their price (docs/contract/billing.md#rating).

use std::collections::BTreeMap;

use kernel::clock::{Day, HOUR_MS, Time};

use super::evidence::{DayRow, EventsRow};
use super::prices::{PriceList, Tokens};
use super::{finding, pico};
use crate::rules::audit::{Drift, Invariant};

/// How long after it was recorded every server has a price for certain, in milliseconds.
const KNOWN_MS: i64 = HOUR_MS;

/// Usage that has one price: of one day, model and kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct UseKey {
    pub day: Day,
    pub model: String,
    pub kind: String,
    pub version: i64,
}

impl std::fmt::Display for UseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { day, model, kind, version } = self;
        write!(f, "{day} {model} {kind} price {version}")
    }
}

/// Tokens, and what they cost in picos.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub tokens: Tokens,
    pub amount: i128,
}

impl Used {
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.plus(other.tokens, 1), amount: self.amount.saturating_add(other.amount) }
    }
}

impl std::fmt::Display for Used {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tokens { prompt, cached, completion } = self.tokens;
        write!(f, "{prompt} ({cached} cached) + {completion} tokens for {}", pico(self.amount))
    }
}

/// Checks the amount of daily rows against the price of their tokens, in each month in which they are billed. One whose price
/// the database doesn't have keeps the amount that was recorded.
pub fn days(days: &[DayRow], prices: &PriceList) -> Vec<Drift> {
    let check = |row: &DayRow| {
        let expected = prices.price(&row.key.model, row.key.version)?.of(row.used.tokens);
        if expected == Some(row.used.amount) {
            return None;
        }
        let expected = expected.map_or_else(|| "more than 128 bits".to_owned(), pico);
        let subject = format!("{} billed in {}", row.key, row.month);
        Some(finding(Invariant::RecountDay, subject, expected, pico(row.used.amount)))
    };
    days.iter().filter_map(check).collect()
}

/// Checks events: they have the price in force at their time, cost what it says, and are all that is in the daily rows. Days
/// before `from` may have lost their events by age.
pub fn events(events: &[EventsRow], days: &[DayRow], prices: &PriceList, from: Time) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut sums: BTreeMap<&UseKey, (Used, Used)> = BTreeMap::new();
    for row in days {
        let (of_days, _) = sums.entry(&row.key).or_default();
        *of_days = of_days.plus(row.used);
    }
    for row in events {
        let (_, of_events) = sums.entry(&row.key).or_default();
        *of_events = of_events.plus(row.used);
        drifts.extend(event_prices(row, prices));
    }
    for (key, (of_days, of_events)) in sums {
        if key.day.start() >= from && of_days != of_events {
            drifts.push(finding(Invariant::RecountEvents, key, of_events, of_days));
        }
    }
    drifts
}

/// Checks the price of the events of one key, unless a version recorded them that didn't keep prices.
fn event_prices(row: &EventsRow, prices: &PriceList) -> Option<Drift> {
    if row.without_month > 0 {
        return None;
    }
    let price = prices.price(&row.key.model, row.key.version)?;
    let expected = price.of(row.used.tokens);
    if expected != Some(row.used.amount) {
        let expected = expected.map_or_else(|| "more than 128 bits".to_owned(), pico);
        return Some(finding(Invariant::RecountPrice, &row.key, expected, pico(row.used.amount)));
    }
    // One that is newer may not have been known to the server that has priced the first of them.
    let known_by = row.first_received_at.plus_ms(-KNOWN_MS);
    if price.recorded_at > known_by {
        return None;
    }
    // The first and the last of them: versions don't overlap.
    let in_force = |at| prices.version_at(&row.key.model, at, known_by);
    let other = [row.first_at, row.last_at].into_iter().find_map(|at| {
        let version = in_force(at).filter(|version| *version != row.key.version)?;
        Some((at, version))
    });
    let (at, version) = other?;
    let expected = format!("the price from {} on, in force at {at}", Time::from_unix_ms(version));
    let found = format!("the one from {} on", Time::from_unix_ms(row.key.version));
    Some(finding(Invariant::RecountPrice, &row.key, expected, found))
}
