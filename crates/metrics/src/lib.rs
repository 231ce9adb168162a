//! Counters and measurements of this process, for `/metrics`.
//!
//! A request costs a few relaxed additions and one read of the clock: nothing here takes a lock, allocates or
//! looks up a text while a request waits. Each label has a fixed set of values, so that the number of series
//! is bounded.

mod codes;
mod histogram;
mod jobs;
mod logins;
mod process;
mod requests;
mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use codes::{Caller, Codes, Decisions};
pub use histogram::{Durations, Histogram, Sizes};
pub use jobs::{Job, JobCounters, Jobs};
pub use logins::Logins;
pub use process::Process;
pub use requests::{RouteMetrics, Routes, Traffic};
pub use text::{Kind, Text};

/// The counters of this process.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Requests of the public listener.
    pub public: Traffic,
    /// Requests of the service listener.
    pub service: Traffic,
    /// Answers that were errors.
    pub errors: Codes,
    /// Decisions about model calls.
    pub decisions: Decisions,
    /// Logins by outcome.
    pub logins: Logins,
    /// Background jobs.
    pub jobs: Arc<Jobs>,
    /// Mails handed to the mail server or written to the folder.
    pub mails_sent: AtomicU64,
    /// Failed attempts that will be repeated.
    pub mails_failed: AtomicU64,
    /// Mails given up after a day, or because the recipient was refused.
    pub mails_given_up: AtomicU64,
    /// Notices that were dropped because too many mails were sent.
    pub mails_suppressed: SuppressedMails,
}

/// The limit by which a notice was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailLimit {
    /// The limit of the person who caused it.
    Account,
    /// The limit of the client's address.
    Address,
    /// The limit of its recipient.
    Recipient,
}

/// Dropped notices, by limit.
#[derive(Debug, Default)]
pub struct SuppressedMails {
    account: AtomicU64,
    address: AtomicU64,
    recipient: AtomicU64,
}

impl SuppressedMails {
    /// Counts dropped notices.
    pub fn add(&self, limit: MailLimit, mails: usize) {
        let mails = u64::try_from(mails).unwrap_or(u64::MAX);
        match limit {
            MailLimit::Account => &self.account,
            MailLimit::Address => &self.address,
            MailLimit::Recipient => &self.recipient,
        }
        .fetch_add(mails, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Writes all counters.
    pub fn render(&self, text: &mut Text) {
        requests::render(&[("public", &self.public), ("service", &self.service)], text);
        self.errors.render(text);
        self.decisions.render(text);
        self.logins.render(text);
        self.jobs.render(text);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.counter("tollkeeper_mails_sent_total", "Mails that left.", of(&self.mails_sent));
        text.counter(
            "tollkeeper_mails_failed_total",
            "Attempts to send a mail that failed.",
            of(&self.mails_failed),
        );
        text.counter(
            "tollkeeper_mails_given_up_total",
            "Mails that were given up.",
            of(&self.mails_given_up),
        );
        let suppressed = &self.mails_suppressed;
        let reasons = [
            ("account", &suppressed.account),
            ("address", &suppressed.address),
            ("recipient", &suppressed.recipient),
        ];
        let help = "Notices that were dropped because too many mails were sent within an hour.";
        let name = "tollkeeper_mails_suppressed_total";
        text.each(
            (name, Kind::Counter, help),
            "reason",
            reasons.map(|(reason, counter)| (reason, of(counter))),
        );
    }
}

/// A queue: its name, its length, its capacity, and how often it was full.
pub type Queue = (&'static str, usize, usize, Option<u64>);

/// Milliseconds, formatted in seconds, exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Milliseconds(pub i64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.div_euclid(1_000), self.0.rem_euclid(1_000))
    }
}
