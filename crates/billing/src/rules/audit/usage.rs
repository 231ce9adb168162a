//! Checks of daily rows against the events that they sum up.

use std::collections::BTreeMap;
use std::fmt;

use super::{Drift, Invariant, compare, decimal_text};
use catalog::PriceBook;
use kernel::clock::{Day, Month, Time};
use kernel::money::{Nano, Pico};

/// The key by which events are summed up. A day may be billed in several months, so a key may have several
/// rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey {
    pub project_id: String,
    pub day: Day,
    /// The caller, an API key or a user.
    pub api_key_id: String,
    pub model: String,
    /// The instant from which on its price is in force, in unix milliseconds.
    pub price_version: i64,
    pub kind: String,
}

impl fmt::Display for DailyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project_id, day, api_key_id, model, price_version, kind } = self;
        write!(f, "{day} {project_id} {api_key_id} {model} {kind} price {price_version}")
    }
}

/// Sums of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageSums {
    /// The number of events, without corrections.
    pub requests: i128,
    pub prompt_tokens: i128,
    pub completion_tokens: i128,
    /// The part of the prompt's tokens that came from the upstream's cache.
    pub cached_prompt_tokens: i128,
    /// The list price.
    pub amount: Pico,
}

impl UsageSums {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_prompt_tokens = self.cached_prompt_tokens.saturating_add(other.cached_prompt_tokens);
        self.amount = Pico::from_units(self.amount.units().saturating_add(other.amount.units()));
    }
}

impl fmt::Display for UsageSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, prompt_tokens, completion_tokens, cached_prompt_tokens, amount } = self;
        write!(f, "{requests} requests, {prompt_tokens} ")?;
        if *cached_prompt_tokens != 0 {
            write!(f, "({cached_prompt_tokens} cached) ")?;
        }
        write!(f, "+ {completion_tokens} tokens, {amount}")
    }
}

/// A stored daily row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DailyRow {
    pub key: DailyKey,
    /// The month in which it is billed.
    pub month: Month,
    pub sums: UsageSums,
    /// The amount that the wallet was charged.
    pub posted: Nano,
}

/// A stored total usage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TotalRow {
    /// The id of the project or API key.
    pub subject_id: String,
    pub requests: i64,
    pub tokens: i64,
}

/// A stored event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRow {
    pub source: String,
    pub event_id: String,
    pub key: DailyKey,
    /// The usage that it adds; a correction adds negative amounts, and no request.
    pub sums: UsageSums,
    /// The month in which it is billed; `None` for versions that didn't record it.
    pub billed_month: Option<Month>,
    /// The same for the event that has the price: the event itself, or the one that it corrects.
    pub rated_month: Option<Month>,
}

/// Checks the amount of an event against its tokens and its recorded price. Versions that didn't record the
/// billed month didn't record prices either.
pub fn event(event: &EventRow, prices: &PriceBook) -> Option<Drift> {
    event.rated_month?;
    let EventRow { source, event_id, key, sums, .. } = event;
    let subject = || format!("{source}/{event_id}");
    let Some(price) = prices.price(&key.model, key.price_version) else {
        let version = Time::from_unix_ms(key.price_version);
        let expected = format!("a price of {} from {version}", key.model);
        return compare(Invariant::EventPrice, &subject(), expected, "none");
    };
    let cost = |price: Pico, tokens: i128| price.units().checked_mul(tokens);
    let uncached = sums.prompt_tokens.saturating_sub(sums.cached_prompt_tokens);
    let amounts = [
        cost(price.prompt, uncached),
        cost(price.cached_prompt_or_prompt(), sums.cached_prompt_tokens),
        cost(price.completion, sums.completion_tokens),
    ];
    let amount = amounts.into_iter().try_fold(0_i128, |sum, amount| sum.checked_add(amount?));
    if amount == Some(sums.amount.units()) {
        return None;
    }
    compare(Invariant::EventAmount, &subject(), decimal_text::<12>(amount), sums.amount)
}

/// The prefix of the ids of people, who have no totals.
const USER: &str = "user_";

fn compare_totals(id: &str, expected: (i128, i128), found: (i128, i128)) -> Option<Drift> {
    let text = |(requests, tokens)| format!("{requests} requests, {tokens} tokens");
    compare(Invariant::UsageTotal, id, text(expected), text(found))
}

/// The sums of the rows and of the events with one key.
#[derive(Clone, Debug, Default)]
struct Sums {
    rows: UsageSums,
    events: UsageSums,
    /// The months in which the rows are billed.
    months: Vec<Month>,
}

/// The usage of one organization, collected row by row.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    days: BTreeMap<DailyKey, Sums>,
    /// Posted amounts by billed month.
    posted: BTreeMap<Month, i128>,
    /// The amount that credit notes posted.
    credited: i128,
    /// Requests and tokens of all daily rows, by the id of their project and of their API key. Totals that
    /// were compared are removed.
    totals: BTreeMap<String, (i128, i128)>,
}

impl Usage {
    /// Adds a daily row, and checks its posted amount.
    pub fn daily(&mut self, row: DailyRow) -> Option<Drift> {
        let subject = format!("{} billed in {}", row.key, row.month);
        let posted = self.posted.entry(row.month).or_default();
        *posted = posted.saturating_add(row.posted.units());
        let drift = compare(Invariant::DailyPosted, &subject, row.sums.amount.floor_nano(), row.posted);
        let tokens = row.sums.prompt_tokens.saturating_add(row.sums.completion_tokens);
        for id in [&row.key.project_id, &row.key.api_key_id].into_iter().filter(|id| !id.starts_with(USER)) {
            let sum = self.totals.entry(id.clone()).or_default();
            *sum = (sum.0.saturating_add(row.sums.requests), sum.1.saturating_add(tokens));
        }
        let sums = self.days.entry(row.key).or_default();
        sums.rows.add(row.sums);
        sums.months.push(row.month);
        drift
    }

    /// Checks a total, after all daily rows. Daily rows are kept for ever, so the comparison is exact.
    pub fn total(&mut self, row: &TotalRow) -> Option<Drift> {
        let expected = self.totals.remove(&row.subject_id).unwrap_or_default();
        compare_totals(&row.subject_id, expected, (row.requests.into(), row.tokens.into()))
    }

    /// Returns the drifts of totals that don't exist.
    pub fn missing_totals(&self) -> Vec<Drift> {
        self.totals.iter().filter_map(|(id, expected)| compare_totals(id, *expected, (0, 0))).collect()
    }

    /// Adds an event, after all daily rows, and checks its month.
    pub fn event(&mut self, event: &EventRow) -> Option<Drift> {
        let sums = self.days.entry(event.key.clone()).or_default();
        sums.events.add(event.sums);
        let month = event.billed_month.filter(|month| !sums.months.contains(month))?;
        let subject = format!("{}/{}", event.source, event.event_id);
        compare(Invariant::EventMonth, &subject, format!("a row billed in {month}"), "none")
    }

    /// Subtracts credit notes from what is billed in a month: the amount that they posted while it was open.
    pub fn subtract_credit_notes(&mut self, booked: Month, posted: Nano) {
        self.credited = self.credited.saturating_add(posted.units());
        let sum = self.posted.entry(booked).or_default();
        *sum = sum.saturating_sub(posted.units());
    }

    /// Returns the posted amounts by billed month.
    pub fn posted(&self) -> &BTreeMap<Month, i128> {
        &self.posted
    }

    /// Checks every day against its events. Days before `from` are left out, as their events may have been
    /// deleted.
    pub fn finish(&self, from: Time) -> Vec<Drift> {
        let days = self.days.iter().filter(|(key, _)| key.day.start() >= from);
        days.filter_map(|(key, Sums { rows, events, .. })| {
            compare(Invariant::DailyUsage, &key.to_string(), events, rows)
        })
        .collect()
    }

    /// Returns the amount that credit notes posted for usage; negative for refunds.
    pub fn credited(&self) -> i128 {
        self.credited
    }

    /// Returns the sum of all posted amounts.
    pub fn posted_total(&self) -> i128 {
        self.posted.values().fold(self.credited, |sum, posted| sum.saturating_add(*posted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daily_rows_sum_up_events_and_post_whole_nanos() {
        let day = Day::parse("2026-03-09").unwrap();
        let key = |day| DailyKey {
            project_id: "p".into(),
            day,
            api_key_id: "k".into(),
            model: "m".into(),
            price_version: 5,
            kind: "chat".into(),
        };
        let sums = |requests, tokens, pico| UsageSums {
            requests,
            prompt_tokens: tokens,
            completion_tokens: tokens * 3,
            cached_prompt_tokens: tokens / 2,
            amount: Pico::from_units(pico),
        };
        let row = |sums: UsageSums, months, posted| DailyRow {
            key: key(day),
            month: day.month().plus(months),
            sums,
            posted: Nano::from_units(posted),
        };
        let event = |sums| EventRow {
            source: "s".into(),
            event_id: "e".into(),
            key: key(day),
            sums,
            billed_month: Some(day.month()),
            rated_month: None,
        };
        let mut usage = Usage::default();
        assert_eq!(usage.daily(row(sums(2, 20, 2_999), 0, 2)), None);
        // A correction after the month was closed: negative, rounded down.
        assert_eq!(usage.daily(row(sums(0, -5, -1), 1, -1)), None);
        assert_eq!(usage.event(&event(sums(1, 12, 1_500))), None);
        assert_eq!(usage.event(&event(sums(1, 8, 1_499))), None);
        assert_eq!(
            usage.finish(day.start())[0].invariant,
            Invariant::DailyUsage,
            "the correction's event is missing"
        );
        assert_eq!(usage.event(&event(sums(0, -5, -1))), None);
        assert_eq!(usage.finish(day.start()), []);
        assert_eq!((usage.posted()[&day.month()], usage.posted_total()), (2, 1));

        let foreign_entries =
            EventRow { billed_month: Some(day.month().plus(9)), ..event(UsageSums::default()) };
        let drift = usage.event(&foreign_entries).unwrap();
        assert_eq!(
            (drift.invariant, drift.expected.as_str()),
            (Invariant::EventMonth, "a row billed in 2026-12")
        );

        let off = usage.daily(row(sums(0, 0, 1_000), 2, 0)).unwrap();
        assert_eq!(
            (off.invariant, off.expected.as_str(), off.found.as_str()),
            (Invariant::DailyPosted, "0.000000001", "0")
        );
        let drift = &usage.finish(day.start())[0];
        assert_eq!(drift.subject, "2026-03-09 p k m chat price 5");
        assert_eq!(drift.expected, "2 requests, 15 (8 cached) + 45 tokens, 0.000000002998");
        assert_eq!(drift.found, "2 requests, 15 (8 cached) + 45 tokens, 0.000000003998");
        assert_eq!(usage.finish(day.start().plus_ms(1)), [], "events of that day may be gone");
    }

    #[test]
    fn credit_notes_leave_the_total() {
        let month = Month::from_unix_months(672);
        let mut usage = Usage { posted: [(month, 50), (month.plus(1), 7)].into(), ..Usage::default() };
        assert_eq!((usage.credited(), usage.posted_total()), (0, 57));
        // Notes posted a refund of 9 in January and a charge of 4 in February. They aren't on the invoices of
        // these months.
        usage.subtract_credit_notes(month, Nano::from_units(-9));
        usage.subtract_credit_notes(month.plus(1), Nano::from_units(4));
        assert_eq!(*usage.posted(), [(month, 59), (month.plus(1), 3)].into());
        assert_eq!((usage.credited(), usage.posted_total()), (-5, 57));
    }

    #[test]
    fn totals_are_the_sums_of_daily_rows() {
        let day = Day::parse("2026-03-09").unwrap();
        let row = |caller: &str, requests, tokens| DailyRow {
            key: DailyKey {
                project_id: "p".into(),
                day,
                api_key_id: caller.into(),
                model: "m".into(),
                price_version: 5,
                kind: "chat".into(),
            },
            month: day.month(),
            sums: UsageSums { requests, prompt_tokens: tokens, completion_tokens: 1, ..UsageSums::default() },
            posted: Nano::ZERO,
        };
        let mut usage = Usage::default();
        for row in [row("k", 2, 20), row("k", 0, -5), row("user_1", 1, 3)] {
            assert_eq!(usage.daily(row), None);
        }
        let total = |id: &str, requests, tokens| TotalRow { subject_id: id.into(), requests, tokens };
        for row in [total("p", 3, 22), total("p", 2, 21), total("user_1", 1, 4), total("x", 0, 1)] {
            let drift = usage.clone().total(&row).unwrap();
            assert_eq!((drift.invariant, drift.subject), (Invariant::UsageTotal, row.subject_id));
        }
        assert_eq!(usage.total(&total("p", 3, 21)), None);
        let missing: Vec<_> = usage.missing_totals().iter().map(ToString::to_string).collect();
        let due =
            "all organizations  usage_total  k: expected 2 requests, 17 tokens, found 0 requests, 0 tokens";
        assert_eq!(missing, [due]);
    }

    #[test]
    fn event_amount_is_tokens_times_price() {
        use catalog::Price;
        let day = Day::parse("2026-03-09").unwrap();
        let price = Price {
            effective_at: Time::from_unix_ms(5),
            prompt: Pico::from_units(2),
            cached_prompt: Some(Pico::from_units(1)),
            completion: Pico::from_units(3),
        };
        let uncached = Price { effective_at: Time::from_unix_ms(4), cached_prompt: None, ..price.clone() };
        let book = PriceBook::new([("m".to_owned(), price), ("m".to_owned(), uncached)], []);
        let check_cached = |version: i64, tokens: i128, cached: i128, pico: i128, months: Option<Month>| {
            let key = DailyKey {
                project_id: "p".into(),
                day,
                api_key_id: "k".into(),
                model: "m".into(),
                price_version: version,
                kind: "chat".into(),
            };
            let sums = UsageSums {
                requests: 1,
                prompt_tokens: tokens,
                completion_tokens: tokens,
                cached_prompt_tokens: cached,
                amount: Pico::from_units(pico),
            };
            let (source, event_id) = ("s".into(), "e".into());
            let row = EventRow { source, event_id, key, sums, billed_month: months, rated_month: months };
            event(&row, &book).map(|drift| (drift.invariant, drift.subject, drift.expected))
        };
        let check = |version, tokens, pico, months| check_cached(version, tokens, 0, pico, months);
        let month = Some(day.month());
        assert!(check(5, 7, 35, month).is_none() && check(5, -7, -35, month).is_none());
        assert!(check(5, 7, 36, None).is_none() && check(6, 7, 35, None).is_none());
        let off = check(5, 7, 36, month).unwrap();
        assert_eq!(off, (Invariant::EventAmount, "s/e".into(), "0.000000000035".into()));
        assert_eq!(check(6, 7, 35, month).unwrap().0, Invariant::EventPrice);
        // 5 x 2 + 2 x 1 + 7 x 3; a correction; a price without one for cached tokens.
        assert!(check_cached(5, 7, 2, 33, month).is_none() && check_cached(5, -7, -2, -33, month).is_none());
        assert!(check_cached(4, 7, 2, 35, month).is_none());
        assert_eq!(check_cached(5, 7, 3, 33, month).unwrap().2, "0.000000000032");
    }
}
