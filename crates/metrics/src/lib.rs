//! Counters and measurements of this process, for `/metrics`.
//!
//! A request costs a few additions and one read of the clock. No function takes a lock, allocates or looks up
//! a label while a request waits. Each label has a fixed set of values, so that the number of series is
//! bounded.

mod codes;
mod jobs;
mod logins;
mod process;
mod requests;
mod text;

use std::sync::Arc;

pub use codes::{Caller, Codes, Decisions};
pub use jobs::{Job, Jobs};
pub use logins::Logins;
pub use process::Process;
pub use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec};
pub use requests::{RouteMetrics, Traffic};
pub use text::{Registered, seconds, seconds_of_ns};

/// The counters of this process.
#[derive(Debug)]
pub struct Metrics {
    /// All metrics. Subjects add their own.
    pub registered: Registered,
    /// Requests of the public listener.
    pub public: Traffic,
    /// Requests of the service listener.
    pub service: Traffic,
    /// Error responses.
    pub errors: Codes,
    /// Decisions about model calls.
    pub decisions: Decisions,
    /// Logins by outcome.
    pub logins: Logins,
    /// Background jobs.
    pub jobs: Arc<Jobs>,
    /// E-mails handed to the mail server or written to the folder.
    pub mails_sent: IntCounter,
    /// Failed attempts that will be repeated.
    pub mails_failed: IntCounter,
    /// E-mails given up after a day, or because the recipient was refused.
    pub mails_given_up: IntCounter,
    /// Notices that were dropped because too many e-mails were sent.
    pub mails_suppressed: SuppressedMails,
}

impl Default for Metrics {
    fn default() -> Self {
        let all = Registered::default();
        let [public, service] = Traffic::of_listeners(&all);
        Self {
            public,
            service,
            errors: Codes::of_answers(&all),
            decisions: Decisions::new(&all),
            logins: Logins::new(&all),
            jobs: Arc::new(Jobs::new(&all)),
            mails_sent: all.counter("tollkeeper_mails_sent_total", "Mails sent."),
            mails_failed: all
                .counter("tollkeeper_mails_failed_total", "Attempts to send an e-mail that failed."),
            mails_given_up: all.counter("tollkeeper_mails_given_up_total", "E-mails that were given up."),
            mails_suppressed: SuppressedMails::new(&all),
            registered: all,
        }
    }
}

/// The limit that caused a notice to be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailLimit {
    /// The limit of the user who caused it.
    Account,
    /// The limit of the client's address.
    Address,
    /// The limit of its recipient.
    Recipient,
}

impl MailLimit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Address => "address",
            Self::Recipient => "recipient",
        }
    }
}

/// Dropped notices, by limit.
#[derive(Debug)]
pub struct SuppressedMails(IntCounterVec);

impl SuppressedMails {
    fn new(registered: &Registered) -> Self {
        let help = "Notices that were dropped because too many e-mails were sent within an hour.";
        let suppressed = Self(registered.counters("tollkeeper_mails_suppressed_total", help, &["reason"]));
        // Create the series of every limit at startup.
        for limit in [MailLimit::Account, MailLimit::Address, MailLimit::Recipient] {
            suppressed.add(limit, 0);
        }
        suppressed
    }

    /// Counts dropped notices.
    pub fn add(&self, limit: MailLimit, mails: usize) {
        self.0.with_label_values(&[limit.as_str()]).inc_by(u64::try_from(mails).unwrap_or(u64::MAX));
    }
}

/// A queue: its name, its length, its capacity, and the number of times that it was full.
pub type Queue = (&'static str, usize, usize, Option<u64>);
