//! Counters of billing, and its figures for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::{Durations, Kind, Sizes, Text, UsageEvents};

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
