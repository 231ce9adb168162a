//! The metrics in the Prometheus text format.

use std::time::Duration;

use billing::metrics::{LastAudit, last_audit};
use metrics::{Kind, Milliseconds, Process, Queue, Text};

use crate::Monitor;

/// How long the database may take to answer. After that the other metrics are written without its own: they
/// matter most while the database is unavailable.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the metrics of this process, and those that are read from the database.
pub(super) async fn render(monitor: &Monitor) -> String {
    let process = tokio::task::spawn_blocking(Process::read).await.unwrap_or_default();
    let is_ready = monitor.frame.is_ready();
    let stored = if is_ready {
        tokio::time::timeout(DATABASE_TIMEOUT, read_database(monitor)).await.ok()
    } else {
        None
    };
    let mut text = Text::new();
    build_info(monitor, &mut text);
    monitor.metrics.render(&mut text);
    monitor.billing.metrics.render(&mut text);
    monitor.metrics.jobs.render_leases(monitor.clock_guard.shared_now(), &mut text);
    queues(monitor, &mut text);
    memory(monitor, &mut text);
    connections(monitor, &mut text);
    feed(monitor, &mut text);
    clock(monitor, &mut text);
    let stored = stored.and_then(Result::ok);
    text.gauge("tollkeeper_database_up", "1 while the database answers.", u8::from(stored.is_some()));
    if let Some(stored) = stored {
        stored.render(monitor, &mut text);
    }
    process.render(monitor.started_at.unix_ms(), &mut text);
    text.into_string()
}

/// The metrics that are read from the database and are the same on all replicas.
struct DatabaseMetrics {
    newest: i64,
    mails: i64,
    oldest_mail_age_ms: i64,
    audit: LastAudit,
}

async fn read_database(monitor: &Monitor) -> Result<DatabaseMetrics, db::Error> {
    let mut tx = monitor.db.read().await?;
    let newest = cluster::changes::newest(&mut tx).await?;
    let (mails, oldest) = mail::store::outbox::waiting(&mut tx).await?;
    let now = monitor.clock.now();
    let oldest_mail_age_ms = oldest.map_or(0, |oldest| (now.unix_ms() - oldest.unix_ms()).max(0));
    drop(tx);
    let audit = last_audit(&monitor.billing).await?;
    Ok(DatabaseMetrics { newest, mails, oldest_mail_age_ms, audit })
}

impl DatabaseMetrics {
    fn render(&self, monitor: &Monitor, text: &mut Text) {
        let lag = self.newest - monitor.feed.position();
        text.gauge("tollkeeper_changes_lag", "Changes that this replica has not applied yet.", lag);
        text.gauge("tollkeeper_mails_waiting", "Mails in the outbox.", self.mails);
        text.gauge(
            "tollkeeper_mails_oldest_age_seconds",
            "The age of the oldest mail in the outbox; 0 without one.",
            Milliseconds(self.oldest_mail_age_ms),
        );
        self.audit.render(text);
    }
}

fn build_info(monitor: &Monitor, text: &mut Text) {
    let database = if monitor.db.is_postgres() { "postgres" } else { "sqlite" };
    text.family("tollkeeper_build_info", Kind::Gauge, "The version and the database; always 1.");
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("database", database)];
    text.sample("tollkeeper_build_info", &labels, 1);
    let ready = u8::from(monitor.frame.is_ready());
    text.gauge("tollkeeper_booted", "1 once the start has finished.", ready);
}

fn queues(monitor: &Monitor, text: &mut Text) {
    use std::sync::atomic::Ordering::Relaxed;
    let (hashes, max_hashes) = monitor.accounts.hasher.load();
    let refused = monitor.metrics.errors.of(kernel::error::Code::PasswordQueueFull);
    let (uses, max_uses) = monitor.keys.last_uses.load();
    let (body_bytes, max_body_bytes) = monitor.frame.body_budget.load();
    let mut queues: Vec<Queue> = billing::metrics::queues(&monitor.billing).to_vec();
    queues.extend([
        ("passwords", hashes, max_hashes, Some(refused)),
        ("last_uses", uses, max_uses, None),
        ("request_body_bytes", body_bytes, max_body_bytes, Some(monitor.frame.body_budget.refused())),
    ]);
    for (what, load) in monitor.frame.tracer.iter().flat_map(|tracer| tracer.load()) {
        queues.push((what, load.waiting, load.max, None));
        let names = match what {
            "traces" => ["tollkeeper_traces_sent_total", "tollkeeper_traces_lost_total"],
            _ => ["tollkeeper_log_lines_sent_total", "tollkeeper_log_lines_lost_total"],
        };
        text.counter(names[0], "Items that the collector has accepted.", load.sent);
        text.counter(names[1], "Items that were dropped.", load.lost);
    }
    if let Some((waiting, max, dropped)) = logging::load() {
        queues.push(("log", waiting, max, u64::try_from(dropped).ok()));
    }
    for (name, traffic) in
        [("public_connections", &monitor.metrics.public), ("service_connections", &monitor.metrics.service)]
    {
        if let Some((connections, max)) = traffic.connections() {
            queues.push((name, connections, max, Some(traffic.full.load(Relaxed))));
        }
    }
    let help = "The length of a queue.";
    let lengths = queues.iter().map(|(name, length, ..)| (*name, *length));
    text.each(("tollkeeper_queue_length", Kind::Gauge, help), "queue", lengths);
    let max = queues.iter().map(|(name, _, max, _)| (*name, *max));
    text.each(("tollkeeper_queue_capacity", Kind::Gauge, "The capacity of a queue."), "queue", max);
    let refused = queues.iter().filter_map(|(name, _, _, refused)| Some((*name, (*refused)?)));
    let help = "How often a queue was full.";
    text.each(("tollkeeper_queue_full_total", Kind::Counter, help), "queue", refused);
}

fn memory(monitor: &Monitor, text: &mut Text) {
    let (keys, key_bytes) = monitor.keys.keyring.size();
    text.gauge("tollkeeper_keys_held", "API keys in memory.", keys);
    text.gauge("tollkeeper_keys_held_bytes", "The memory that these keys take, in bytes, about.", key_bytes);
    let rows = [
        ("api_keys", keys),
        ("unknown_api_keys", monitor.keys.keyring.unknown_count()),
        ("sessions", monitor.accounts.sessions.len()),
        ("verified_tokens", monitor.accounts.signing_keys.verified_count()),
        ("rate_meters", monitor.limiter.len()),
        ("shared_rate_meters", monitor.keys.rates.len()),
    ];
    let rows = rows.into_iter().chain(billing::metrics::caches(&monitor.billing));
    let help = "Entries in memory.";
    text.each(("tollkeeper_cache_entries", Kind::Gauge, help), "cache", rows);
}

/// A metric of the connection pools: its name, its help text and its value.
type ConnectionMetric = (&'static str, &'static str, fn(&db::Connections) -> usize);

fn connections(monitor: &Monitor, text: &mut Text) {
    let pools = monitor.db.connections();
    let families: [ConnectionMetric; 4] = [
        ("tollkeeper_db_connections_open", "Connections to the database.", |pool| pool.open),
        (
            "tollkeeper_db_connections_in_use",
            "Connections in use; shared ones count while they are open.",
            |pool| pool.in_use,
        ),
        ("tollkeeper_db_connections_max", "The most connections to the database.", |pool| pool.max),
        (
            "tollkeeper_db_connections_waiting",
            "Callers that wait for a connection; PostgreSQL's writes only.",
            |pool| pool.waiting,
        ),
    ];
    for (name, help, of) in families {
        text.each((name, Kind::Gauge, help), "purpose", pools.iter().map(|pool| (pool.purpose, of(pool))));
    }
    text.counter(
        "tollkeeper_db_statements_total",
        "Statements sent to the database.",
        monitor.db.statement_count(),
    );
    text.counter(
        "tollkeeper_db_batched_reads_total",
        "Reads that were answered together with others, by one statement.",
        monitor.db.batched_reads(),
    );
}

fn feed(monitor: &Monitor, text: &mut Text) {
    let now = monitor.clock.now();
    text.counter("tollkeeper_changes_applied_total", "Changes read from the feed.", monitor.feed.applied());
    text.counter(
        "tollkeeper_changes_gaps_total",
        "Gaps in the feed, after which everything in memory is read again.",
        monitor.feed.restarts(),
    );
    let position = monitor.feed.position();
    text.gauge("tollkeeper_changes_position", "The last change that this replica has applied.", position);
    if let Some(age_ms) = monitor.feed.age_ms(now) {
        let help = "The age of the last successful read of the feed.";
        text.gauge("tollkeeper_changes_age_seconds", help, Milliseconds(age_ms));
    }
    text.gauge(
        "tollkeeper_memory_trusted",
        "1 while the feed is read; 0 while sessions and keys are read on each request.",
        u8::from(monitor.feed.is_trusted(now)),
    );
    text.counter(
        "tollkeeper_catalog_reloads_total",
        "Catalogs that came into force.",
        monitor.catalog.reloads(),
    );
    text.gauge(
        "tollkeeper_catalog_refused",
        "1 while the catalog file is refused and the previous one stays in force.",
        u8::from(monitor.catalog.is_refused()),
    );
}

fn clock(monitor: &Monitor, text: &mut Text) {
    text.gauge(
        "tollkeeper_clock_trusted",
        "1 while this machine's clock is trusted; 0 while nothing is closed, removed or ended by it.",
        u8::from(monitor.clock_guard.is_trusted()),
    );
    let offsets = monitor.clock_guard.offsets();
    let known = [("steady", offsets.steady_ms), ("database", offsets.database_ms)];
    let rows = known.into_iter().filter_map(|(against, ms)| Some((against, Milliseconds(ms?))));
    let help = "How far this machine's clock is ahead of its steady clock, and of the database's clock.";
    text.each(("tollkeeper_clock_offset_seconds", Kind::Gauge, help), "against", rows);
}
