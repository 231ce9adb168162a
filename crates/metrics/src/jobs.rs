//! Counters of background jobs.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::text::{Kind, Seconds, Text};
use kernel::clock::Time;
use kernel::stopwatch::Stopwatch;

/// A background job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// Reads the changes of other replicas.
    Changes,
    /// Sends mails.
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
}

impl Job {
    const ALL: [Self; 8] = [
        Self::Changes,
        Self::Mail,
        Self::LastUses,
        Self::Reservations,
        Self::Sweep,
        Self::Billing,
        Self::Retention,
        Self::Audit,
    ];
    /// The jobs that one replica at a time does.
    const LEASED: [Self; 2] = [Self::Billing, Self::Audit];

    /// Returns the word in metrics, and in the database if the job has a lease.
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
        }
    }
}

/// The counters of one job.
#[derive(Debug, Default)]
pub struct JobCounters {
    runs: AtomicU64,
    failures: AtomicU64,
    /// When it last ran, in Unix milliseconds; 0 for never.
    ran_at_ms: AtomicI64,
    succeeded_at_ms: AtomicI64,
    took_ns: AtomicU64,
    /// Until when this replica has the lease, in Unix milliseconds; 0 without one.
    leased_until_ms: AtomicI64,
}

impl JobCounters {
    /// Counts a run that has just ended.
    pub fn note<T, E>(&self, watch: Stopwatch, now: Time, outcome: &Result<T, E>) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.took_ns.store(watch.elapsed_ns(), Ordering::Relaxed);
        self.ran_at_ms.store(now.unix_ms(), Ordering::Relaxed);
        if outcome.is_ok() {
            self.succeeded_at_ms.store(now.unix_ms(), Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Stores until when this replica has the lease of the job; `None` if it doesn't have it.
    pub fn note_lease(&self, until: Option<Time>) {
        self.leased_until_ms.store(until.map_or(0, Time::unix_ms), Ordering::Relaxed);
    }
}

/// A metric of each job: its name, its help text, and its counter.
type Row<T> = (&'static str, &'static str, fn(&JobCounters) -> &T);

/// The counters of all jobs.
#[derive(Debug, Default)]
pub struct Jobs([JobCounters; Job::ALL.len()]);

impl Jobs {
    /// Returns the counters of a job.
    pub fn of(&self, job: Job) -> &JobCounters {
        let [changes, mail, last_uses, reservations, sweep, billing, retention, audit] = &self.0;
        match job {
            Job::Changes => changes,
            Job::Mail => mail,
            Job::LastUses => last_uses,
            Job::Reservations => reservations,
            Job::Sweep => sweep,
            Job::Billing => billing,
            Job::Retention => retention,
            Job::Audit => audit,
        }
    }

    pub(super) fn render(&self, text: &mut Text) {
        let all = || Job::ALL.iter().map(|job| (job.as_str(), self.of(*job)));
        let counters: [Row<AtomicU64>; 2] = [
            ("tollkeeper_job_runs_total", "Turns of a job.", |job| &job.runs),
            ("tollkeeper_job_failures_total", "Turns that failed.", |job| &job.failures),
        ];
        for (name, help, of) in counters {
            let rows = all().map(|(word, job)| (word, of(job).load(Ordering::Relaxed)));
            text.each((name, Kind::Counter, help), "job", rows);
        }
        let times: [Row<AtomicI64>; 2] = [
            ("tollkeeper_job_last_run_timestamp_seconds", "When the last turn ended.", |job| &job.ran_at_ms),
            ("tollkeeper_job_last_success_timestamp_seconds", "When a turn last succeeded.", |job| {
                &job.succeeded_at_ms
            }),
        ];
        for (name, help, of) in times {
            let ran = all().filter(|(_, job)| of(job).load(Ordering::Relaxed) != 0);
            let rows = ran.map(|(word, job)| (word, seconds(of(job).load(Ordering::Relaxed))));
            text.each((name, Kind::Gauge, help), "job", rows);
        }
        let took = all().filter(|(_, job)| job.runs.load(Ordering::Relaxed) > 0);
        let rows = took.map(|(word, job)| (word, Seconds(job.took_ns.load(Ordering::Relaxed))));
        let family = ("tollkeeper_job_last_duration_seconds", Kind::Gauge, "How long the last turn took.");
        text.each(family, "job", rows);
    }

    /// Writes which leased jobs this replica does.
    pub fn render_leases(&self, now: Time, text: &mut Text) {
        let rows = Job::LEASED.map(|job| {
            let until_ms = self.of(job).leased_until_ms.load(Ordering::Relaxed);
            (job.as_str(), u8::from(until_ms > now.unix_ms()))
        });
        let help = "1 on the replica that does the job, as far as it knows.";
        text.each(("tollkeeper_job_leader", Kind::Gauge, help), "job", rows);
    }
}

/// Formats Unix milliseconds in seconds, exactly.
fn seconds(unix_ms: i64) -> String {
    format!("{}.{:03}", unix_ms.div_euclid(1_000), unix_ms.rem_euclid(1_000))
}
