//! Counters of webhooks.

use metrics::{IntCounter, IntCounterVec, Registered};

use crate::client::Outcome;

/// Counters of this process.
#[derive(Debug)]
pub(crate) struct Counters {
    attempts: IntCounterVec,
    /// Deliveries that failed at their last attempt.
    pub(crate) given_up: IntCounter,
    /// Webhooks that were disabled.
    pub(crate) disabled: IntCounter,
}

impl Counters {
    pub(crate) fn new(registered: &Registered) -> Self {
        let attempts = registered.counters(
            "tollkeeper_webhook_attempts_total",
            "Attempts to deliver an event to a webhook, by outcome.",
            &["outcome"],
        );
        // Create each series at startup.
        for outcome in OUTCOMES {
            attempts.with_label_values(&[outcome.word()]);
        }
        Self {
            attempts,
            given_up: registered.counter(
                "tollkeeper_webhook_deliveries_given_up_total",
                "Deliveries given up after the last attempt.",
            ),
            disabled: registered.counter(
                "tollkeeper_webhooks_disabled_total",
                "Webhooks disabled because they failed or their receiver is gone.",
            ),
        }
    }

    pub(crate) fn count_attempt(&self, outcome: Outcome) {
        self.attempts.with_label_values(&[outcome.as_str()]).inc();
    }
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Succeeded,
    Outcome::Refused,
    Outcome::NotReachable,
    Outcome::NotConnected,
    Outcome::TlsFailed,
    Outcome::NoAnswer,
    Outcome::Timeout,
];
