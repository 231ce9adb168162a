//! Counts of reported usage events by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::events::Reason;
use metrics::{Kind, Text};

/// Counters of reported usage events, by outcome.
#[derive(Debug, Default)]
pub struct UsageEvents {
    accepted: AtomicU64,
    duplicate: AtomicU64,
    /// In the order of [`Reason::ALL`].
    refused: [AtomicU64; Reason::ALL.len()],
}

impl UsageEvents {
    /// Counts an event that is new.
    pub fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a duplicate.
    pub fn duplicate(&self) {
        self.duplicate.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refused event.
    pub fn refused(&self, reason: Reason) {
        let counters = Reason::ALL.iter().zip(&self.refused);
        for (_, counter) in counters.filter(|(other, _)| **other == reason) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn render(&self, text: &mut Text) {
        const NAME: &str = "tollkeeper_usage_events_total";
        text.family(
            NAME,
            Kind::Counter,
            "Reported usage events: accepted, duplicate, or refused with a code.",
        );
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.sample(NAME, &[("result", "accepted"), ("code", "")], of(&self.accepted));
        text.sample(NAME, &[("result", "duplicate"), ("code", "")], of(&self.duplicate));
        for (reason, counter) in Reason::ALL.iter().zip(&self.refused) {
            if of(counter) > 0 {
                text.sample(NAME, &[("result", "refused"), ("code", reason.as_str())], of(counter));
            }
        }
    }
}
