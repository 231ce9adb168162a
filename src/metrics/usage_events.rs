//! Counts of reported usage events by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use super::text::{Kind, Text};

/// How many usage events were accepted, were there already, or were refused for which reason.
#[derive(Debug)]
pub struct UsageEvents {
    accepted: AtomicU64,
    duplicate: AtomicU64,
    /// By the code of the reason.
    refused: Vec<(&'static str, AtomicU64)>,
}

impl UsageEvents {
    /// Counters at zero; these codes are all that an event is refused with.
    pub fn new(codes: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            accepted: AtomicU64::default(),
            duplicate: AtomicU64::default(),
            refused: codes.into_iter().map(|code| (code, AtomicU64::default())).collect(),
        }
    }

    /// Counts one that counts from now on.
    pub fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that counted already.
    pub fn duplicate(&self) {
        self.duplicate.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that doesn't count.
    pub fn refused(&self, code: &'static str) {
        for (_, counter) in self.refused.iter().filter(|(other, _)| *other == code) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn render(&self, text: &mut Text) {
        const NAME: &str = "tollkeeper_usage_events_total";
        text.family(
            NAME,
            Kind::Counter,
            "Reported usage events: accepted, duplicate, or refused with a code.",
        );
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.sample(NAME, &[("result", "accepted"), ("code", "")], of(&self.accepted));
        text.sample(NAME, &[("result", "duplicate"), ("code", "")], of(&self.duplicate));
        for (code, counter) in &self.refused {
            if of(counter) > 0 {
                text.sample(NAME, &[("result", "refused"), ("code", code)], of(counter));
            }
        }
    }
}
