//! Counters of payments.

use std::sync::{Mutex, PoisonError};

use kernel::clock::MINUTE_MS;
use metrics::{IntCounter, IntCounterVec, Registered};

/// Counters of this process.
#[derive(Debug)]
pub(crate) struct Counters {
    payments: IntCounterVec,
    events: IntCounterVec,
    /// Requests to Stripe without a response, or with an unreadable one.
    pub(crate) unreachable: IntCounter,
    /// Automatic top-ups that were paused.
    pub(crate) paused: IntCounter,
    /// Refused events since the last log line, and that line's time on the monotonic clock.
    untold: Mutex<(u64, Option<i64>)>,
}

/// Minimum time between log lines about refused events.
const TOLD_EVERY_MS: i64 = MINUTE_MS;

/// The outcome of a payment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Refunded,
    Disputed,
    /// Stripe's payment doesn't match the request.
    Mismatched,
}

/// The outcome of an event from Stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handling {
    Received,
    /// The signature isn't valid.
    Refused,
    Done,
    /// Processing failed and will be retried.
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
        let payments =
            registered.counters("tollkeeper_payments_total", "Payments, by outcome.", &["outcome"]);
        let events = registered.counters(
            "tollkeeper_stripe_events_total",
            "Events from Stripe, by outcome.",
            &["result"],
        );
        // Create each series at startup.
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
                "Requests to Stripe without a readable response.",
            ),
            untold: Mutex::default(),
            paused: registered
                .counter("tollkeeper_auto_top_ups_paused_total", "Automatic top-ups that were paused."),
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.payments.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Counts a refused event. Anyone can send such events, so they are logged at most once per minute. If a
    /// log line is due, returns the number of refused events since the last one.
    pub(crate) fn refuse_event(&self, now_ms: i64) -> Option<u64> {
        self.count_event(Handling::Refused);
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, told_at_ms) = *untold;
        let is_due = told_at_ms.is_none_or(|at_ms| now_ms - at_ms >= TOLD_EVERY_MS);
        *untold = if is_due { (0, Some(now_ms)) } else { (count + 1, told_at_ms) };
        is_due.then_some(count + 1)
    }

    pub(crate) fn count_event(&self, handling: Handling) {
        self.events.with_label_values(&[handling.as_str()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_events_are_told_once_a_minute() {
        let counters = Counters::new(&Registered::default());
        let reported: Vec<_> =
            [0, 1, 59_999, 60_000, 60_001, 200_000].map(|now_ms| counters.refuse_event(now_ms)).to_vec();
        assert_eq!(reported, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
