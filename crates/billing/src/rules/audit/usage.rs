//! Compares daily rows with the sums of their events.

use std::collections::BTreeMap;
use std::fmt;

use super::{Drift, Invariant, compare, decimal_text};
use catalog::{Component, Parts, PriceBook};
use kernel::clock::{Day, Month, Time};
use kernel::money::{Nano, Pico};

/// The key by which events are grouped. A day may be billed in several months, so a key may have several
/// rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey {
    pub project_id: String,
    pub day: Day,
    /// The caller, an API key or a user.
    pub api_key_id: String,
    pub model: String,
    /// The version of the price.
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
    pub parts: Parts,
    /// The list price.
    pub amount: Pico,
}

impl UsageSums {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_prompt_tokens = self.cached_prompt_tokens.saturating_add(other.cached_prompt_tokens);
        self.add_parts(other.parts);
        self.amount = Pico::from_units(self.amount.units().saturating_add(other.amount.units()));
    }

    fn add_parts(&mut self, parts: Parts) {
        for (part, quantity) in parts.iter() {
            self.parts.set(part, self.parts.get(part).saturating_add(quantity));
        }
    }
}

impl fmt::Display for UsageSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, prompt_tokens, completion_tokens, cached_prompt_tokens, parts, amount } = self;
        write!(f, "{requests} requests, {prompt_tokens} ")?;
        if *cached_prompt_tokens != 0 {
            write!(f, "({cached_prompt_tokens} cached) ")?;
        }
        write!(f, "+ {completion_tokens} tokens, ")?;
        for (part, quantity) in parts.iter() {
            write!(f, "{} {quantity}, ", part.as_str())?;
        }
        write!(f, "{amount}")
    }
}

/// Compares the calls of a day in the call log with the usage of the daily rows. The log has no cached tokens
/// and parts of corrections, so these aren't compared.
pub fn call_log(day: Day, used: UsageSums, logged: UsageSums) -> Option<Drift> {
    let compared = |sums: UsageSums| UsageSums { cached_prompt_tokens: 0, parts: Parts::default(), ..sums };
    compare(Invariant::CallLog, &day.to_string(), compared(used), compared(logged))
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

/// The key of the sums of a project's day by model, or by caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SumKey {
    pub project_id: String,
    /// `model` or `caller`.
    pub grouped_by: String,
    pub day: Day,
    /// The name of the model, or the id of the caller.
    pub group_id: String,
    pub kind: String,
}

impl fmt::Display for SumKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project_id, grouped_by, day, group_id, kind } = self;
        write!(f, "{day} {project_id} {grouped_by} {group_id} {kind}")
    }
}

impl DailyKey {
    /// Returns the keys of the sums to which the row belongs.
    fn sum_keys(&self) -> [SumKey; 2] {
        [("model", &self.model), ("caller", &self.api_key_id)].map(|(grouped_by, group_id)| SumKey {
            project_id: self.project_id.clone(),
            grouped_by: grouped_by.to_owned(),
            day: self.day,
            group_id: group_id.clone(),
            kind: self.kind.clone(),
        })
    }
}

/// Stored sums of daily rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SumRow {
    pub key: SumKey,
    /// The sums. These rows store no cached tokens and no other parts.
    pub sums: UsageSums,
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
    /// The usage of the event. A correction has negative amounts, and counts as no request.
    pub sums: UsageSums,
    /// The month in which the event is billed; `None` if an older version stored the event without it.
    pub billed_month: Option<Month>,
    /// The billed month of the event whose price applies: this event, or the one that it corrects.
    pub rated_month: Option<Month>,
}

/// Checks the amount of an event against its tokens and its recorded price. Versions that didn't record the
/// billed month didn't record prices either.
pub fn event(event: &EventRow, prices: &PriceBook) -> Option<Drift> {
    event.rated_month?;
    let EventRow { source, event_id, key, sums, .. } = event;
    let subject = || format!("{source}/{event_id}");
    let Some(price) = prices.price(&key.model, key.price_version) else {
        // The version of a price without conditions is the time from which it applies.
        let expected = match key.price_version {
            version @ 0.. => format!("a price of {} from {}", key.model, Time::from_unix_ms(version)),
            version => format!("the price {version} of {}", key.model),
        };
        return compare(Invariant::EventPrice, &subject(), expected, "none");
    };
    let cost = |price: Pico, tokens: i128| price.units().checked_mul(tokens);
    let parts_of = |whole: Component| {
        let parts = sums.parts.iter().filter(|(part, _)| part.whole() == Some(whole));
        parts.fold(0_i128, |sum, (_, quantity)| sum + i128::from(quantity))
    };
    let prompt = sums.prompt_tokens.saturating_sub(sums.cached_prompt_tokens);
    let amounts = [
        cost(price.prompt, prompt.saturating_sub(parts_of(Component::Prompt))),
        cost(price.of(Component::CachedPrompt), sums.cached_prompt_tokens),
        cost(price.completion, sums.completion_tokens.saturating_sub(parts_of(Component::Completion))),
    ];
    let parts = sums.parts.iter().map(|(part, quantity)| cost(price.of(part), quantity.into()));
    let amount = amounts.into_iter().chain(parts).try_fold(0_i128, |sum, amount| sum.checked_add(amount?));
    if amount == Some(sums.amount.units()) {
        return None;
    }
    compare(Invariant::EventAmount, &subject(), decimal_text::<12>(amount), sums.amount)
}

/// The prefix of user ids. Users have no totals.
const USER_PREFIX: &str = "user_";

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
    /// Sums of the daily rows of one project by model, and by caller. Those that were compared are removed.
    sums: BTreeMap<SumKey, UsageSums>,
    /// The project of `sums`; the sums of earlier projects were compared.
    summed_project: Option<String>,
}

impl Usage {
    /// Adds a daily row, and checks its posted amount.
    pub fn daily(&mut self, row: DailyRow) -> Option<Drift> {
        let subject = format!("{} billed in {}", row.key, row.month);
        let posted = self.posted.entry(row.month).or_default();
        *posted = posted.saturating_add(row.posted.units());
        let drift = compare(Invariant::DailyPosted, &subject, row.sums.amount.floor_nano(), row.posted);
        let tokens = row.sums.prompt_tokens.saturating_add(row.sums.completion_tokens);
        for id in
            [&row.key.project_id, &row.key.api_key_id].into_iter().filter(|id| !id.starts_with(USER_PREFIX))
        {
            let sum = self.totals.entry(id.clone()).or_default();
            *sum = (sum.0.saturating_add(row.sums.requests), sum.1.saturating_add(tokens));
        }
        let sums = self.days.entry(row.key).or_default();
        sums.rows.add(row.sums);
        sums.months.push(row.month);
        drift
    }

    /// Adds parts of a daily row that was already added.
    pub fn daily_parts(&mut self, key: DailyKey, parts: Parts) {
        self.days.entry(key).or_default().rows.add_parts(parts);
    }

    /// Checks a stored row of sums. Call this after all daily rows are added, in the order of the keys.
    /// Returns the drift of this row, and of the missing rows before it.
    pub fn sum(&mut self, row: &SumRow) -> Vec<Drift> {
        let mut drifts = Vec::new();
        while self.summed_project.as_ref() < Some(&row.key.project_id)
            && self.sum_up_next_project(&mut drifts)
        {}
        let expected = self.sums.remove(&row.key).unwrap_or_default();
        drifts.extend(compare(Invariant::DailySums, &row.key.to_string(), expected, row.sums));
        drifts
    }

    /// Returns the drifts of the remaining missing rows. Call this after all stored rows are checked.
    pub fn missing_sums(&mut self) -> Vec<Drift> {
        let mut drifts = Vec::new();
        while self.sum_up_next_project(&mut drifts) {}
        drifts
    }

    /// Adds up the daily rows of the next project, and adds a drift for each sum of the previous project that
    /// isn't stored. Returns `false` if no project is left.
    fn sum_up_next_project(&mut self, drifts: &mut Vec<Drift>) -> bool {
        drifts.extend(std::mem::take(&mut self.sums).iter().filter_map(|(key, sums)| {
            compare(Invariant::DailySums, &key.to_string(), *sums, UsageSums::default())
        }));
        let first = DailyKey {
            // No id is between an id and the id with this byte appended.
            project_id: self.summed_project.as_ref().map(|id| format!("{id}\0")).unwrap_or_default(),
            day: Day::from_unix_days(i64::MIN),
            api_key_id: String::new(),
            model: String::new(),
            price_version: i64::MIN,
            kind: String::new(),
        };
        let mut days = self.days.range(first..).peekable();
        let Some(project_id) = days.peek().map(|(key, _)| key.project_id.clone()) else { return false };
        for (key, Sums { rows, .. }) in days.take_while(|(key, _)| key.project_id == project_id) {
            for sum_key in key.sum_keys() {
                self.sums.entry(sum_key).or_default().add(UsageSums {
                    cached_prompt_tokens: 0,
                    parts: Parts::default(),
                    ..*rows
                });
            }
        }
        self.summed_project = Some(project_id);
        true
    }

    /// Checks a stored total. Call this after all daily rows are added. Daily rows are kept forever, so the
    /// comparison is exact.
    pub fn total(&mut self, row: &TotalRow) -> Option<Drift> {
        let expected = self.totals.remove(&row.subject_id).unwrap_or_default();
        compare_totals(&row.subject_id, expected, (row.requests.into(), row.tokens.into()))
    }

    /// Returns the drifts of missing totals.
    pub fn missing_totals(&self) -> Vec<Drift> {
        self.totals.iter().filter_map(|(id, expected)| compare_totals(id, *expected, (0, 0))).collect()
    }

    /// Adds an event and checks its month. Call this after all daily rows are added.
    pub fn event(&mut self, event: &EventRow) -> Option<Drift> {
        let sums = self.days.entry(event.key.clone()).or_default();
        sums.events.add(event.sums);
        let month = event.billed_month.filter(|month| !sums.months.contains(month))?;
        let subject = format!("{}/{}", event.source, event.event_id);
        compare(Invariant::EventMonth, &subject, format!("a row billed in {month}"), "none")
    }

    /// Subtracts the amount that credit notes posted during an open month from the amount billed in that
    /// month.
    pub fn subtract_credit_notes(&mut self, booked: Month, posted: Nano) {
        self.credited = self.credited.saturating_add(posted.units());
        let sum = self.posted.entry(booked).or_default();
        *sum = sum.saturating_sub(posted.units());
    }

    /// Returns the posted amounts by billed month.
    pub fn posted(&self) -> &BTreeMap<Month, i128> {
        &self.posted
    }

    /// Checks every day against its events. Days before `from` are skipped, because their events may have
    /// been deleted.
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
mod tests;
