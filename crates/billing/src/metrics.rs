//! Counters of billing, and its figures for `/metrics`.

mod usage_events;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Billing;
use crate::store;
use metrics::{Durations, Kind, Milliseconds, Queue, Sizes, Text};

use crate::store::audit_state::AuditState;

pub use usage_events::UsageEvents;

/// What this process has counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reported usage events by outcome.
    pub usage_events: UsageEvents,
    /// Transactions of the books.
    pub books: Rounds,
}

/// The transactions that take many pieces of work of the books at once.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Pieces of work in one.
    pub sizes: Sizes,
    /// From its first statement to its commit.
    pub durations: Durations,
    /// Those that came to nothing, so that their pieces were tried one by one or refused.
    pub failed: AtomicU64,
    /// Pieces of work that found the queue full.
    pub refused: AtomicU64,
}

impl Counters {
    /// Writes the counters.
    pub fn render(&self, text: &mut Text) {
        self.usage_events.render(text);
        self.books.render(text);
    }
}

impl Rounds {
    fn render(&self, text: &mut Text) {
        text.family(
            "tollkeeper_books_round_pieces",
            Kind::Histogram,
            "Pieces of work that one transaction of the books takes.",
        );
        self.sizes.render("tollkeeper_books_round_pieces", &[], text);
        text.family(
            "tollkeeper_books_round_duration_seconds",
            Kind::Histogram,
            "How long one transaction of the books takes, its commit included.",
        );
        self.durations.render("tollkeeper_books_round_duration_seconds", &[], text);
        text.counter(
            "tollkeeper_books_rounds_failed_total",
            "Transactions of the books that came to nothing.",
            self.failed.load(Ordering::Relaxed),
        );
    }
}

/// Returns the queue to the books, counted in pieces of work and in bytes.
pub fn queues(billing: &Billing) -> [Queue; 2] {
    let [(pieces, most_pieces), (bytes, most_bytes)] = billing.books.load();
    let refused = billing.metrics.books.refused.load(Ordering::Relaxed);
    [("books", pieces, most_pieces, Some(refused)), ("books_bytes", bytes, most_bytes, None)]
}

/// Returns what is held in memory: names and numbers of entries.
pub fn caches(billing: &Billing) -> [(&'static str, usize); 3] {
    let (payers, months) = billing.books.remembered();
    [("payers", payers), ("open_months", months), ("usage_totals", billing.usage_totals.len())]
}

/// The last audit by a server, as the database has it, so that it is the same on all replicas.
#[derive(Clone, Copy, Debug)]
pub struct LastAudit(Option<AuditState>);

/// Reads the state of the audit.
///
/// # Errors
/// The database's.
pub async fn last_audit(billing: &Billing) -> Result<LastAudit, db::Error> {
    Ok(LastAudit(store::audit_state::get(&mut billing.db.read().await?).await?))
}

impl LastAudit {
    /// Writes it; nothing before the first audit has ended.
    pub fn render(self, text: &mut Text) {
        let Some((audit, ended_at)) = self.0.and_then(|audit| Some((audit, audit.ended_at?))) else {
            return;
        };
        text.gauge(
            "tollkeeper_audit_drifts",
            "What the last audit by a server found not to add up; each is a mistake.",
            audit.drifts,
        );
        text.gauge("tollkeeper_audit_organizations", "Organizations that it checked.", audit.organizations);
        text.gauge(
            "tollkeeper_audit_ended_timestamp_seconds",
            "When it ended, in seconds since 1970.",
            Milliseconds(ended_at.unix_ms()),
        );
    }
}
