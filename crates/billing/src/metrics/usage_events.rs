//! Counts of reported usage events by outcome.

use crate::rules::events::Reason;
use metrics::{IntCounter, IntCounterVec, Registered};

/// Counters of reported usage events, by outcome.
#[derive(Debug)]
pub struct UsageEvents {
    all: IntCounterVec,
    accepted: IntCounter,
    duplicate: IntCounter,
}

impl UsageEvents {
    pub(super) fn new(registered: &Registered) -> Self {
        let help = "Reported usage events: accepted, duplicate, or refused with a code.";
        let all = registered.counters("tollkeeper_usage_events_total", help, &["result", "code"]);
        let [accepted, duplicate] =
            ["accepted", "duplicate"].map(|result| all.with_label_values(&[result, ""]));
        Self { all, accepted, duplicate }
    }

    /// Counts an event that is new.
    pub fn accepted(&self) {
        self.accepted.inc();
    }

    /// Counts a duplicate.
    pub fn duplicate(&self) {
        self.duplicate.inc();
    }

    /// Counts a refused event.
    pub fn refused(&self, reason: Reason) {
        self.all.with_label_values(&["refused", reason.as_str()]).inc();
    }
}
