//! Daily rows and the events that they add up.

use std::collections::BTreeMap;
use std::fmt;

use super::{Drift, What, compare, shown};
use crate::clock::{Day, Month, Time};
use crate::money::{Nano, Pico};

/// What events are added up by. A day may be billed in several months, so a key may have several rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey {
    /// The project.
    pub project_id: String,
    /// The day.
    pub day: Day,
    /// Whose use it was.
    pub api_key_id: String,
    /// The model.
    pub model: String,
    /// Since when its price was in force, in unix milliseconds.
    pub price_version: i64,
    /// Chat or embeddings.
    pub kind: String,
}

impl fmt::Display for DailyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project_id, day, api_key_id, model, price_version, kind } = self;
        write!(f, "{day} {project_id} {api_key_id} {model} {kind} price {price_version}")
    }
}

/// What was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageSums {
    /// Events, without corrections.
    pub requests: i128,
    /// Tokens in.
    pub prompt_tokens: i128,
    /// Tokens out.
    pub completion_tokens: i128,
    /// At list price.
    pub amount: Pico,
}

impl UsageSums {
    fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.amount = Pico::from_units(self.amount.units().saturating_add(other.amount.units()));
    }
}

impl fmt::Display for UsageSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, prompt_tokens, completion_tokens, amount } = self;
        write!(f, "{requests} requests, {prompt_tokens} + {completion_tokens} tokens, {amount}")
    }
}

/// A daily row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DailyRow {
    /// What it is for.
    pub key: DailyKey,
    /// In which month it is billed.
    pub month: Month,
    /// What was used.
    pub sums: UsageSums,
    /// What the wallet was charged for it.
    pub posted: Nano,
}

/// An event, as far as it is added up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRow {
    /// Unique within the organization, with the next one.
    pub source: String,
    /// Unique within the source.
    pub event_id: String,
    /// Where it belongs.
    pub key: DailyKey,
    /// What it adds; a correction adds less than nothing, and no request.
    pub sums: UsageSums,
}

/// The usage of one organization, row by row.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// What rows say and what events say.
    days: BTreeMap<DailyKey, (UsageSums, UsageSums)>,
    /// What was posted, by the month in which it is billed.
    posted: BTreeMap<Month, i128>,
    /// What credit notes posted.
    credited: i128,
}

impl Usage {
    /// Takes a daily row in, and checks what can be told from it alone.
    pub fn daily(&mut self, row: DailyRow) -> Option<Drift> {
        let subject = format!("{} billed in {}", row.key, row.month);
        let posted = self.posted.entry(row.month).or_default();
        *posted = posted.saturating_add(row.posted.units());
        let drift = compare(What::DailyPosted, &subject, row.sums.amount.floor_nano(), row.posted);
        self.days.entry(row.key).or_default().0.add(row.sums);
        drift
    }

    /// Takes an event in.
    pub fn event(&mut self, event: EventRow) {
        self.days.entry(event.key).or_default().1.add(event.sums);
    }

    /// Takes credit notes off what is billed in a month: what they posted while it was the first open one.
    pub fn without_credited(&mut self, booked: Month, posted: Nano) {
        self.credited = self.credited.saturating_add(posted.units());
        let sum = self.posted.entry(booked).or_default();
        *sum = sum.saturating_sub(posted.units());
    }

    /// What was posted, by the month in which it is billed.
    pub fn posted(&self) -> &BTreeMap<Month, i128> {
        &self.posted
    }

    /// Every day that doesn't add up its events. Days that began before `from` are left out: their events may be gone.
    pub fn finish(&self, from: Time) -> Vec<Drift> {
        let days = self.days.iter().filter(|(key, _)| key.day.start() >= from);
        days.filter_map(|(key, (rows, events))| compare(What::DailyUsage, &key.to_string(), events, rows))
            .collect()
    }

    /// What was posted in all.
    pub fn posted_in_all(&self) -> i128 {
        self.posted.values().fold(self.credited, |sum, posted| sum.saturating_add(*posted))
    }
}

/// What was posted in a month, in words.
pub(super) fn shown_month(posted: i128) -> String {
    shown::<9>(Some(posted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_add_up_their_events_and_post_whole_nanos() {
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
            amount: Pico::from_units(pico),
        };
        let row = |sums: UsageSums, months, posted| DailyRow {
            key: key(day),
            month: day.month().plus(months),
            sums,
            posted: Nano::from_units(posted),
        };
        let event = |sums| EventRow { source: "s".into(), event_id: "e".into(), key: key(day), sums };
        let mut usage = Usage::default();
        assert_eq!(usage.daily(row(sums(2, 20, 2_999), 0, 2)), None);
        // A correction after the month was closed: less than nothing, rounded down.
        assert_eq!(usage.daily(row(sums(0, -5, -1), 1, -1)), None);
        usage.event(event(sums(1, 12, 1_500)));
        usage.event(event(sums(1, 8, 1_499)));
        assert_eq!(usage.finish(day.start())[0].what, What::DailyUsage, "the correction's event is missing");
        usage.event(event(sums(0, -5, -1)));
        assert_eq!(usage.finish(day.start()), []);
        assert_eq!((usage.posted()[&day.month()], usage.posted_in_all()), (2, 1));
        assert_eq!((Usage::default().posted_in_all(), shown_month(1_500_000_000).as_str()), (0, "1.5"));

        let off = usage.daily(row(sums(0, 0, 1_000), 2, 0)).unwrap();
        assert_eq!(
            (off.what, off.expected.as_str(), off.found.as_str()),
            (What::DailyPosted, "0.000000001", "0")
        );
        let drift = &usage.finish(day.start())[0];
        assert_eq!(drift.subject, "2026-03-09 p k m chat price 5");
        assert_eq!(drift.expected, "2 requests, 15 + 45 tokens, 0.000000002998");
        assert_eq!(drift.found, "2 requests, 15 + 45 tokens, 0.000000003998");
        assert_eq!(usage.finish(day.start().plus_ms(1)), [], "events of that day may be gone");
    }
}
