//! What is counted, for `/metrics` in the Prometheus text format (version 0.0.4).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::catalog::CurrentCatalog;
use crate::live::feed::Feed;

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Mails handed to the mail server or written to the folder.
    pub mails_sent: AtomicU64,
    /// Attempts that failed and will be made again.
    pub mails_failed: AtomicU64,
    /// Mails given up after a day, or because the recipient was refused.
    pub mails_given_up: AtomicU64,
}

/// A value at this moment: its name, what it says, the value.
pub type Gauge = (&'static str, &'static str, i64);

impl Metrics {
    /// The counters of this process, those of its followed feed and of its catalog, and what was measured for this answer.
    pub fn render(&self, feed: &Feed, catalog: &CurrentCatalog, gauges: &[Gauge]) -> String {
        let mut text = String::new();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = [
            ("tollkeeper_mails_sent_total", "Mails that left.", of(&self.mails_sent)),
            ("tollkeeper_mails_failed_total", "Attempts to send a mail that failed.", of(&self.mails_failed)),
            ("tollkeeper_mails_given_up_total", "Mails that were given up.", of(&self.mails_given_up)),
            ("tollkeeper_changes_applied_total", "Changes read from the feed.", feed.applied()),
            (
                "tollkeeper_changes_gaps_total",
                "Times that the feed had a gap and everything held was let go of.",
                feed.restarts(),
            ),
            (
                "tollkeeper_catalog_reloads_total",
                "Times that another catalog came in force.",
                catalog.reloads(),
            ),
        ];
        for (name, help, value) in counters {
            // Writing to a string can't fail.
            write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n").ok();
        }
        for (name, help, value) in gauges {
            write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n").ok();
        }
        text
    }
}
