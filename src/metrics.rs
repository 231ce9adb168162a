//! What is counted and measured, for `/metrics`.
//!
//! A request costs a few relaxed additions and one reading of the clock: nothing here takes a lock, allocates or looks a
//! text up while a request waits. Each label has a fixed set of values, so that the number of series is bounded.

mod codes;
mod histogram;
mod jobs;
mod logins;
mod process;
mod requests;
mod text;
mod usage_events;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use codes::{Asked, Codes, Decisions};
pub use histogram::{Durations, Histogram, Sizes};
pub use jobs::{Job, JobCounters, Jobs};
pub use logins::Logins;
pub use process::Process;
pub use requests::{Measured, Routes, Traffic};
pub use text::{Kind, Text};
pub use usage_events::UsageEvents;

/// The counters of this process.
#[derive(Debug)]
pub struct Metrics {
    /// What came through the public listener.
    pub public: Traffic,
    /// What came through the service listener.
    pub service: Traffic,
    /// Answers that were errors.
    pub errors: Codes,
    /// What was decided about model calls.
    pub decisions: Decisions,
    /// Reported usage events by outcome.
    pub usage_events: UsageEvents,
    /// Logins by outcome.
    pub logins: Logins,
    /// How the books are written.
    pub books: Rounds,
    /// What goes on without a request.
    pub jobs: Jobs,
    /// Mails handed to the mail server or written to the folder.
    pub mails_sent: AtomicU64,
    /// Attempts that failed and will be made again.
    pub mails_failed: AtomicU64,
    /// Mails given up after a day, or because the recipient was refused.
    pub mails_given_up: AtomicU64,
    /// Notices that were dropped because too many mails were sent.
    pub mails_suppressed: SuppressedMails,
}

/// The limit that a dropped notice met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailLimit {
    /// Of the person who caused it.
    Account,
    /// Of the client's address.
    Address,
    /// Of its recipient.
    Recipient,
}

/// Notices that were dropped, by the limit that they met.
#[derive(Debug, Default)]
pub struct SuppressedMails {
    account: AtomicU64,
    address: AtomicU64,
    recipient: AtomicU64,
}

impl SuppressedMails {
    /// Counts so many.
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

impl Metrics {
    /// Counters at zero, with one for each of these reasons for which a usage event may be refused.
    pub fn new(usage_refusals: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            public: Traffic::default(),
            service: Traffic::default(),
            errors: Codes::default(),
            decisions: Decisions::default(),
            usage_events: UsageEvents::new(usage_refusals),
            logins: Logins::default(),
            books: Rounds::default(),
            jobs: Jobs::default(),
            mails_sent: AtomicU64::default(),
            mails_failed: AtomicU64::default(),
            mails_given_up: AtomicU64::default(),
            mails_suppressed: SuppressedMails::default(),
        }
    }

    /// Writes what this process has counted.
    pub fn render(&self, text: &mut Text) {
        requests::render(&[("public", &self.public), ("service", &self.service)], text);
        self.errors.render(text);
        self.decisions.render(text);
        self.usage_events.render(text);
        self.logins.render(text);
        self.books.render(text);
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

/// How long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// From now on.
    #[allow(
        clippy::disallowed_methods,
        reason = "how long something took is no business of the injected clock"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
