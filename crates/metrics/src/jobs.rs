//! Counters of background jobs.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus::{GaugeVec, IntCounterVec};

use super::text::{Registered, seconds, seconds_of_ns};
use kernel::clock::Time;
use kernel::stopwatch::Stopwatch;

/// A background job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// Reads the changes of other replicas.
    Changes,
    /// Sends e-mails.
    Mail,
    /// Writes the last uses of keys.
    LastUses,
    /// Ends expired reservations.
    Reservations,
    /// Removes expired rows.
    Sweep,
    /// Closes months and expires credits.
    Billing,
    /// Removes old usage events.
    Retention,
    /// Audits the books.
    Audit,
    /// Sends alerts about budgets and balances.
    Alerts,
    /// Sends events to webhooks.
    Webhooks,
    /// Processes payments.
    Payments,
    /// Writes files of charges.
    Exports,
    /// Writes refused calls and sums of the call log.
    CallLog,
}

impl Job {
    const ALL: [Self; 13] = [
        Self::Changes,
        Self::Mail,
        Self::LastUses,
        Self::Reservations,
        Self::Sweep,
        Self::Billing,
        Self::Retention,
        Self::Audit,
        Self::Alerts,
        Self::Webhooks,
        Self::Payments,
        Self::Exports,
        Self::CallLog,
    ];

    /// Returns the job's name in metrics, and in the database if the job has a lease.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Mail => "mail",
            Self::LastUses => "last_uses",
            Self::Reservations => "reservations",
            Self::Sweep => "sweep",
            Self::Billing => "billing",
            Self::Retention => "retention",
            Self::Audit => "audit",
            Self::Alerts => "alerts",
            Self::Webhooks => "webhooks",
            Self::Payments => "payments",
            Self::Exports => "exports",
            Self::CallLog => "call_log",
        }
    }
}

/// The counters of all jobs.
#[derive(Debug)]
pub struct Jobs {
    runs: IntCounterVec,
    failures: IntCounterVec,
    ran_at: GaugeVec,
    succeeded_at: GaugeVec,
    took: GaugeVec,
    /// The jobs that run on one replica at a time, and the end of this replica's lease, in milliseconds of
    /// the machine's monotonic clock; 0 without a lease.
    leases: [(Job, AtomicI64); 4],
}

impl Jobs {
    pub(super) fn new(registered: &Registered) -> Self {
        let counters = |name, help| registered.counters(name, help, &["job"]);
        let gauges = |name, help| registered.gauges(name, help, &["job"]);
        let jobs = Self {
            runs: counters("tollkeeper_job_runs_total", "Runs of a job."),
            failures: counters("tollkeeper_job_failures_total", "Turns that failed."),
            ran_at: gauges("tollkeeper_job_last_run_timestamp_seconds", "The end of the last run."),
            succeeded_at: gauges(
                "tollkeeper_job_last_success_timestamp_seconds",
                "The end of the last successful run.",
            ),
            took: gauges("tollkeeper_job_last_duration_seconds", "The duration of the last run."),
            leases: [Job::Billing, Job::Audit, Job::Payments, Job::Exports]
                .map(|job| (job, AtomicI64::new(0))),
        };
        // Create the counters of every job at startup.
        for job in Job::ALL {
            jobs.runs.with_label_values(&[job.as_str()]);
            jobs.failures.with_label_values(&[job.as_str()]);
        }
        jobs
    }

    /// Counts a run that has just ended.
    pub fn note<T, E>(&self, job: Job, watch: Stopwatch, now: Time, outcome: &Result<T, E>) {
        let (job, now) = ([job.as_str()], seconds(now.unix_ms()));
        self.runs.with_label_values(&job).inc();
        self.took.with_label_values(&job).set(seconds_of_ns(watch.elapsed_ns()));
        self.ran_at.with_label_values(&job).set(now);
        if outcome.is_ok() {
            self.succeeded_at.with_label_values(&job).set(now);
        } else {
            self.failures.with_label_values(&job).inc();
        }
    }

    /// Stores the end of this replica's lease of a job, by the monotonic clock; `None` if it doesn't have the
    /// lease.
    pub fn note_lease(&self, job: Job, until_ms: Option<i64>) {
        for (_, stored_ms) in self.leases.iter().filter(|(leased, _)| *leased == job) {
            stored_ms.store(until_ms.unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Adds the leased jobs that this replica runs at this time of the monotonic clock.
    pub fn add_leases(&self, steady_ms: i64, values: &Registered) {
        let rows = self
            .leases
            .iter()
            .map(|(job, until_ms)| (job.as_str(), u8::from(until_ms.load(Ordering::Relaxed) > steady_ms)));
        let help = "1 on the replica that runs the job, according to that replica.";
        values.gauge_each("tollkeeper_job_leader", help, "job", rows);
    }
}
