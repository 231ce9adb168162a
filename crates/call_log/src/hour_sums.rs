//! The sums of the calls of an hour.

use kernel::clock::{HOUR_MS, Time};
use kernel::money::Pico;

use crate::entries::{NewCall, Usage};
use crate::rules::histograms::{BUCKETS, bucket_of};
use crate::store::calls::Numbers;

/// The key of a row: an hour since 1970, and numbers of names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HourKey {
    pub organization: i64,
    pub hour: i64,
    pub project: i64,
    pub caller: i64,
    pub model: i64,
    /// 0 for calls without an error.
    pub code: i64,
}

impl HourKey {
    pub(crate) fn of(call: &NewCall, numbers: Numbers) -> Self {
        Self {
            organization: numbers.organization,
            hour: Self::hour_of(call.time()),
            project: numbers.project,
            caller: numbers.caller,
            model: numbers.model,
            code: numbers.code,
        }
    }

    /// Returns the hour of a time, since 1970.
    pub fn hour_of(time: Time) -> i64 {
        time.unix_ms().div_euclid(HOUR_MS)
    }
}

/// Sums of calls.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HourSums {
    pub calls: i64,
    pub prompt_tokens: i64,
    pub cached_prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The list price.
    pub amount: Pico,
    /// The completion tokens of calls whose duration is known.
    pub timed_tokens: i64,
    /// The duration of these calls.
    pub timed_ms: i64,
    /// The numbers of calls by the time to the first event.
    pub first_events: [i64; BUCKETS],
    /// The numbers of calls by their duration.
    pub durations: [i64; BUCKETS],
}

impl HourSums {
    /// Returns the sums of a call. Refused and failed calls have no durations.
    pub fn of(call: &NewCall) -> Self {
        let mut sums = Self { calls: 1, ..Self::of_usage(call.usage) };
        if call.usage.events == 0 {
            return sums;
        }
        if let Some(ms) = call.course.first_event_ms {
            count(&mut sums.first_events, ms);
        }
        if let Some(ms) = call.course.duration_ms {
            count(&mut sums.durations, ms);
            sums.timed_tokens = call.usage.completion_tokens;
            sums.timed_ms = ms;
        }
        sums
    }

    /// Returns the sums of a later charge of a call, which isn't another call.
    pub fn of_usage(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            cached_prompt_tokens: usage.cached_prompt_tokens.unwrap_or_default(),
            completion_tokens: usage.completion_tokens,
            amount: usage.amount,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.cached_prompt_tokens = self.cached_prompt_tokens.saturating_add(other.cached_prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.amount = self.amount.checked_add(other.amount).unwrap_or(self.amount);
        self.timed_tokens = self.timed_tokens.saturating_add(other.timed_tokens);
        self.timed_ms = self.timed_ms.saturating_add(other.timed_ms);
        for (sum, more) in self.first_events.iter_mut().zip(other.first_events) {
            *sum += more;
        }
        for (sum, more) in self.durations.iter_mut().zip(other.durations) {
            *sum += more;
        }
    }
}

fn count(buckets: &mut [i64; BUCKETS], ms: i64) {
    if let Some(count) = buckets.get_mut(bucket_of(ms)) {
        *count += 1;
    }
}
