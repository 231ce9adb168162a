//! Billing counters and values for `/metrics`.

mod usage_events;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Billing, store};
use metrics::{Histogram, IntCounter, Queue, Registered};

use crate::store::audit_state::AuditState;

pub use usage_events::UsageEvents;

/// The counters of this process.
#[derive(Debug)]
pub struct Counters {
    /// Reported usage events by outcome.
    pub usage_events: UsageEvents,
    /// Transactions of the write queue.
    pub books: BatchMetrics,
    /// Gateway calls that were interrupted, and charged for their last stored progress.
    pub interrupted_calls: IntCounter,
}

/// Counters of the transactions that run the queued operations.
#[derive(Debug)]
pub struct BatchMetrics {
    /// Operations per transaction.
    pub sizes: Histogram,
    /// Time from the first statement to the commit, in seconds.
    pub durations: Histogram,
    /// Failed transactions, whose operations were retried one by one or refused.
    pub failed: IntCounter,
    /// Operations that were refused because the queue was full or too slow.
    pub refused: AtomicU64,
}

impl Counters {
    /// Registers the counters.
    pub fn new(registered: &Registered) -> Self {
        let books = BatchMetrics {
            sizes: registered
                .sizes("tollkeeper_books_round_pieces", "Operations per transaction of the books."),
            durations: registered
                .durations(
                    "tollkeeper_books_round_duration_seconds",
                    "The duration of a transaction of the books, including its commit.",
                    &[],
                )
                .with_label_values::<&str>(&[]),
            failed: registered
                .counter("tollkeeper_books_rounds_failed_total", "Transactions of the books that failed."),
            refused: AtomicU64::new(0),
        };
        let interrupted_calls = registered.counter(
            "tollkeeper_interrupted_calls_total",
            "Calls that were cut off when their gateway stopped, and charged for their last stored progress.",
        );
        Self { usage_events: UsageEvents::new(registered), books, interrupted_calls }
    }
}

/// Returns the load of the write queue, in operations and in bytes.
pub fn queues(billing: &Billing) -> [Queue; 2] {
    let [(pieces, most_pieces), (bytes, most_bytes)] = billing.books.load();
    let refused = billing.metrics.books.refused.load(Ordering::Relaxed);
    [("books", pieces, most_pieces, Some(refused)), ("books_bytes", bytes, most_bytes, None)]
}

/// Returns the names and sizes of the caches.
pub fn caches(billing: &Billing) -> [(&'static str, usize); 2] {
    let (payers, months) = billing.books.cached();
    [("payers", payers), ("open_months", months)]
}

/// The last regular audit, read from the database so that all replicas report the same.
#[derive(Clone, Copy, Debug)]
pub struct LastAudit(Option<AuditState>);

/// Reads the result of the last regular audit.
///
/// # Errors
/// The database fails.
pub async fn last_audit(billing: &Billing) -> Result<LastAudit, db::Error> {
    Ok(LastAudit(store::audit_state::get(&mut billing.db().read().await?).await?))
}

impl LastAudit {
    /// Adds the result to the metrics, once the first audit has ended.
    pub fn add_to(self, values: &Registered) {
        let Some((audit, ended_at)) = self.0.and_then(|audit| Some((audit, audit.ended_at?))) else {
            return;
        };
        let help = "Sums that didn't add up in a server's last audit; each is a defect.";
        values.gauge("tollkeeper_audit_drifts", help, audit.drifts);
        let help = "Organizations that the last audit checked.";
        values.gauge("tollkeeper_audit_organizations", help, audit.organizations);
        let help = "The end of the last audit, in seconds since 1970.";
        values.seconds("tollkeeper_audit_ended_timestamp_seconds", help, ended_at.unix_ms());
    }
}
