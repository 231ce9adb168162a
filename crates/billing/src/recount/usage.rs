//! Checks of events and daily rows against their prices (docs/contract/billing.md#rating).

use std::collections::BTreeMap;

use kernel::clock::{HOUR_MS, MINUTE_MS, Time};

use super::conditions;
use super::evidence::{CallsRow, CreditedRow, DayRow, EventPlace, EventsRow};
use super::prices::{Price, PriceList};
use super::quantities::{REQUEST, UseKey, Used};
use super::{finding, pico};
use crate::rules::audit::{Drift, Invariant};

/// The time after which every server has a recorded price in its catalog, in milliseconds.
const KNOWN_MS: i64 = HOUR_MS;

/// Returns the cost of quantities at a price, if it differs from the recorded amount.
fn other_cost(price: &Price, used: &Used) -> Option<String> {
    let expected = price.of(&used.quantities);
    let is_other = expected != Some(used.amount);
    is_other.then(|| expected.map_or_else(|| "more than 128 bits".to_owned(), pico))
}

/// Checks the amount of daily rows against the price of their quantities, in each month in which they are
/// billed. Rows whose price isn't in the database aren't checked.
pub fn days(days: &[DayRow], prices: &PriceList) -> Vec<Drift> {
    let check = |row: &DayRow| {
        let expected = other_cost(prices.price(&row.key.model, row.key.version)?, &row.used)?;
        let subject = format!("{} billed in {}", row.key, row.month);
        Some(finding(Invariant::RecountDay, subject, expected, pico(row.used.amount)))
    };
    days.iter().filter_map(check).collect()
}

/// Checks the amounts of corrections of closed months in the same way.
pub fn credited(credited: &[CreditedRow], prices: &PriceList) -> Vec<Drift> {
    let check = |row: &CreditedRow| {
        let expected = other_cost(prices.price(&row.key.model, row.key.version)?, &row.used)?;
        let subject = format!("{} taken back in {}", row.key, row.booked_month);
        Some(finding(Invariant::RecountCreditNotes, subject, expected, pico(row.used.amount)))
    };
    credited.iter().filter_map(check).collect()
}

/// Checks events: each event has a price that was in force at its time and costs that price, and the sums of
/// the events equal the daily rows. Events of days before `from` may have been deleted because of their age.
pub fn events(events: &[EventsRow], days: &[DayRow], prices: &PriceList, from: Time) -> Vec<Drift> {
    let mut drifts = Vec::new();
    let mut sums: BTreeMap<&UseKey, (Used, Used)> = BTreeMap::new();
    for row in days {
        let (of_days, _) = sums.entry(&row.key).or_default();
        of_days.add(&row.used);
    }
    for row in events {
        let (_, of_events) = sums.entry(&row.key).or_default();
        of_events.add(&row.used);
        drifts.extend(event_prices(row, prices));
        let is_call = |(place, _): &(EventPlace, i128)| *place != EventPlace::Correction;
        if row.key.day.start() >= from && !row.requests.iter().any(is_call) {
            drifts.push(finding(
                Invariant::RecountPrice,
                &row.key,
                "a call at this price",
                "only corrections",
            ));
        }
    }
    for (key, (of_days, of_events)) in sums {
        if key.day.start() >= from && of_days != of_events {
            drifts.push(finding(Invariant::RecountEvents, key, of_events, of_days));
        }
    }
    drifts
}

/// Checks the price of the events of one key, unless they were recorded by a version that didn't keep prices.
fn event_prices(row: &EventsRow, prices: &PriceList) -> Option<Drift> {
    if row.without_month > 0 {
        return None;
    }
    let price = prices.price(&row.key.model, row.key.version)?;
    if let Some(expected) = other_cost(price, &row.used) {
        return Some(finding(Invariant::RecountPrice, &row.key, expected, pico(row.used.amount)));
    }
    if let Some(drift) = requests(row, price) {
        return Some(drift);
    }
    let known_by = row.first_received_at.plus_ms(-KNOWN_MS);
    // The server that priced the first event may not have had a newer price yet. Models that have prices with
    // conditions are checked by `choices`.
    if price.recorded_at > known_by || prices.is_conditional(&row.key.model) {
        return None;
    }
    // Versions don't overlap, so checking the first and the last event is enough.
    let in_force = |at| prices.in_force(&row.key.model, at, known_by).first().map(|(version, _)| *version);
    let other = [row.first_at, row.last_at].into_iter().find_map(|at| {
        let version = in_force(at).filter(|version| *version != row.key.version)?;
        Some((at, version))
    });
    let (at, version) = other?;
    let expected = format!("the price from {} on, in force at {at}", Time::from_unix_ms(version));
    let found = format!("the price from {} on", price.effective_at);
    Some(finding(Invariant::RecountPrice, &row.key, expected, found))
}

/// Checks the charged requests: a call is charged as one request if the price has a component for requests,
/// and otherwise as no request. The rest of a call is charged as a request only if the whole call is charged
/// again at another price.
fn requests(row: &EventsRow, price: &Price) -> Option<Drift> {
    let priced = i128::from(price.parts.contains_key(REQUEST));
    let is_right = |(place, requests): &&(EventPlace, i128)| match place {
        EventPlace::Call => *requests == priced,
        EventPlace::Rest => (0..=priced).contains(requests),
        EventPlace::Correction => (-priced..=0).contains(requests),
    };
    let (place, requests) = row.requests.iter().find(|seen| !is_right(seen))?;
    let expected = match place {
        EventPlace::Call => format!("{priced} requests charged for each call"),
        EventPlace::Rest => "at most one request charged for the rest of a call".to_owned(),
        EventPlace::Correction => "at most one request taken back".to_owned(),
    };
    Some(finding(Invariant::RecountPrice, &row.key, expected, requests))
}

/// Checks the price of each call to a model that has prices with conditions. The price must be one of those
/// that were the last to come into force before the call. Its hours must include the time of the call, its
/// `above` must be below the tokens of the prompt, and no price with a higher rank may apply.
///
/// The tier of an answer isn't stored: any tier is accepted, so the price of a wrong tier isn't detected. The
/// rest of a call has the price of its whole prompt, which the row doesn't contain, so only hours are
/// checked. A correction isn't checked, only the event that it corrects; [`events()`] checks that an event
/// has its price.
pub fn choices(calls: &[CallsRow], prices: &PriceList) -> Vec<Drift> {
    let mut drifts = BTreeMap::new();
    for row in calls {
        if let Some(found) = other_choice(row, prices) {
            drifts.entry(&row.key).or_insert(found);
        }
    }
    drifts.into_values().collect()
}

fn other_choice(row: &CallsRow, prices: &PriceList) -> Option<Drift> {
    let UseKey { model, version, .. } = &row.key;
    let known_by = row.first_received_at.plus_ms(-KNOWN_MS);
    let price = prices.price(model, *version)?;
    if row.without_month > 0 || price.recorded_at > known_by {
        return None;
    }
    // Prices that came into force together don't overlap with others, so checking the first and the last call
    // is enough.
    let (at, possible) = [row.first_at, row.last_at].into_iter().find_map(|at| {
        let possible = possible(row, at, &prices.in_force(model, at, known_by));
        (!possible.is_empty() && !possible.contains(version)).then_some((at, possible))
    })?;
    let prompts = match row.place {
        EventPlace::Call => format!(" of {} to {} prompt tokens", row.fewest_tokens, row.most_tokens),
        _ => String::new(),
    };
    let possible: Vec<_> = possible.iter().map(i64::to_string).collect();
    let expected = format!("one of the prices {} for calls{prompts} at {at}", possible.join(", "));
    Some(finding(Invariant::RecountPrice, &row.key, expected, format!("the price {version}")))
}

/// Returns the versions in force that may have applied to calls of one minute.
fn possible(row: &CallsRow, at: Time, in_force: &[(i64, &Price)]) -> Vec<i64> {
    let conditions: Vec<_> = in_force.iter().map(|(_, price)| &price.conditions).collect();
    let prompts = (row.fewest_tokens.into(), row.most_tokens.into());
    let prompts = (row.place == EventPlace::Call).then_some(prompts);
    let minute = at.unix_ms().div_euclid(MINUTE_MS);
    let is_possible =
        |price: &Price| conditions::is_possible(&price.conditions, &conditions, prompts, minute);
    in_force.iter().filter(|(_, price)| is_possible(price)).map(|(version, _)| *version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recount::conditions::Conditions;
    use crate::recount::quantities;
    use kernel::clock::DAY_MS;

    const BASE: i64 = 1_000;
    const LONG: i64 = -1;
    const NIGHT: i64 = -2;
    const FLEX: i64 = -3;

    /// Returns prices with the same start that were recorded long before, and one that was recorded later.
    fn prices() -> PriceList {
        let price = |(version, conditions, recorded_at)| {
            let price = Price {
                effective_at: Time::from_unix_ms(BASE),
                conditions: Conditions::parse(conditions).unwrap(),
                prompt: 1,
                cached: 1,
                completion: 1,
                parts: quantities::parse("request:5").unwrap(),
                recorded_at: Time::from_unix_ms(recorded_at),
            };
            (version, price)
        };
        let late = 3 * DAY_MS;
        let all = [
            (BASE, "", 0),
            (LONG, "above:100", 0),
            (NIGHT, "hours:0-360", 0),
            (FLEX, "tier:flex above:500", late),
        ];
        PriceList::of("m", all.map(price))
    }

    fn calls(version: i64, place: EventPlace, tokens: i64, at_ms: i64) -> CallsRow {
        let at = Time::from_unix_ms(at_ms);
        let key = UseKey { day: at.day(), model: "m".into(), kind: "chat".into(), version };
        CallsRow {
            key,
            place,
            fewest_tokens: tokens,
            most_tokens: tokens,
            without_month: 0,
            first_at: at,
            last_at: at,
            first_received_at: at,
        }
    }

    #[test]
    fn price_of_a_call_is_one_that_it_can_have_had() {
        let prices = prices();
        // The fifth day of unix time was a Monday.
        let (noon, night) = (4 * DAY_MS + 12 * HOUR_MS, 4 * DAY_MS + HOUR_MS);
        use EventPlace::{Call, Rest};
        let cases = [
            (BASE, Call, 100, noon, true),
            (BASE, Call, 101, noon, false),
            (LONG, Call, 101, night, true),
            (LONG, Call, 100, noon, false),
            (NIGHT, Call, 100, night, true),
            (NIGHT, Call, 100, noon, false),
            (BASE, Call, 100, night, false),
            (FLEX, Call, 501, noon, true),
            (FLEX, Call, 500, noon, false),
            // The row of the rest of a call doesn't contain the prompt.
            (LONG, Rest, 1, noon, true),
            (NIGHT, Rest, 1, noon, false),
            (BASE, Rest, 101, noon, true),
            // No price was in force at this time, so any price is accepted.
            (BASE, Call, 100, BASE - 1, true),
        ];
        for (version, place, tokens, at, is_right) in cases {
            let found = choices(&[calls(version, place, tokens, at)], &prices);
            assert_eq!(found.is_empty(), is_right, "{version} {place:?} {tokens} {at}: {found:?}");
        }
        // A price that the server may not have had yet doesn't count. A drift is reported once for all calls
        // of a day.
        let early = calls(FLEX, Call, 1, 3 * DAY_MS);
        assert_eq!(choices(&[early], &prices), []);
        let twice = [noon, noon + MINUTE_MS].map(|at| calls(LONG, Call, 1, at));
        assert_eq!(choices(&twice, &prices).len(), 1);
    }

    #[test]
    fn each_call_is_one_request() {
        let prices = prices();
        let price = prices.price("m", BASE).unwrap();
        let free = Price { parts: quantities::parse("").unwrap(), ..price.clone() };
        use EventPlace::{Call, Correction, Rest};
        let cases = [
            (Call, 1, true, false),
            (Call, 0, false, true),
            (Call, 2, false, false),
            (Rest, 0, true, true),
            (Rest, 1, true, false),
            (Rest, 2, false, false),
            (Correction, -1, true, false),
            (Correction, 0, true, true),
            (Correction, 1, false, false),
        ];
        for (place, count, with_price, without) in cases {
            let CallsRow { key, first_at, .. } = calls(BASE, place, 1, DAY_MS);
            let row = EventsRow {
                key,
                used: Used::default(),
                requests: [(place, count)].into(),
                without_month: 0,
                first_at,
                last_at: first_at,
                first_received_at: first_at,
            };
            let found = (requests(&row, price).is_none(), requests(&row, &free).is_none());
            assert_eq!(found, (with_price, without), "{place:?} {count}");
        }
    }
}
