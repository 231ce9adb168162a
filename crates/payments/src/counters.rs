//! The counters of payments.

use metrics::{IntCounter, IntCounterVec, Registered};

/// The counters of this process.
#[derive(Debug)]
pub(crate) struct Counters {
    payments: IntCounterVec,
    events: IntCounterVec,
    /// Requests to Stripe that weren't answered, or whose answer can't be read.
    pub(crate) unreachable: IntCounter,
    /// Automatic top-ups that were paused.
    pub(crate) paused: IntCounter,
}

/// What has become of a payment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Refunded,
    Disputed,
    /// What Stripe says of it isn't what was asked for.
    Mismatched,
}

/// What has become of an event of Stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handling {
    Received,
    /// Its signature isn't good.
    Refused,
    Done,
    /// It is tried again later.
    Failed,
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Succeeded, Outcome::Failed, Outcome::Refunded, Outcome::Disputed, Outcome::Mismatched];
const HANDLINGS: [Handling; 4] = [Handling::Received, Handling::Refused, Handling::Done, Handling::Failed];

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refunded => "refunded",
            Self::Disputed => "disputed",
            Self::Mismatched => "mismatched",
        }
    }
}

impl Handling {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Refused => "refused",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl Counters {
    pub(crate) fn new(registered: &Registered) -> Self {
        let payments = registered.counters(
            "tollkeeper_payments_total",
            "Payments by what has become of them.",
            &["outcome"],
        );
        let events = registered.counters(
            "tollkeeper_stripe_events_total",
            "Events of Stripe, by what was done.",
            &["result"],
        );
        // Every word has a series from the start.
        for outcome in OUTCOMES {
            payments.with_label_values(&[outcome.as_str()]);
        }
        for handling in HANDLINGS {
            events.with_label_values(&[handling.as_str()]);
        }
        Self {
            payments,
            events,
            unreachable: registered.counter(
                "tollkeeper_stripe_failures_total",
                "Requests to Stripe without an answer that can be read.",
            ),
            paused: registered
                .counter("tollkeeper_auto_top_ups_paused_total", "Automatic top-ups that were paused."),
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.payments.with_label_values(&[outcome.as_str()]).inc();
    }

    pub(crate) fn count_event(&self, handling: Handling) {
        self.events.with_label_values(&[handling.as_str()]).inc();
    }
}
