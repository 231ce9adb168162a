//! What is counted, for `/metrics` in the Prometheus text format (version 0.0.4).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

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

impl Metrics {
    /// The counters, and how many mails wait.
    pub fn render(&self, mails_waiting: i64) -> String {
        let mut text = String::new();
        let counters = [
            ("tollkeeper_mails_sent_total", "Mails that left.", &self.mails_sent),
            ("tollkeeper_mails_failed_total", "Attempts to send a mail that failed.", &self.mails_failed),
            ("tollkeeper_mails_given_up_total", "Mails that were given up.", &self.mails_given_up),
        ];
        for (name, help, counter) in counters {
            let value = counter.load(Ordering::Relaxed);
            // Writing to a string can't fail.
            write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n").ok();
        }
        let name = "tollkeeper_mails_waiting";
        write!(text, "# HELP {name} Mails in the outbox.\n# TYPE {name} gauge\n{name} {mails_waiting}\n")
            .ok();
        text
    }
}
