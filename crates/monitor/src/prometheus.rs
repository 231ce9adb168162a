//! The metrics in the Prometheus text format.

use std::time::Duration;

use billing::metrics::{LastAudit, last_audit};
use metrics::{Process, Queue, Registered, seconds};

use crate::Monitor;

/// Timeout of the database. After this time, the metrics are returned without those that need the database,
/// so that the other metrics stay available while the database isn't.
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
    let values = Registered::default();
    build_info(monitor, &values);
    monitor.metrics.jobs.add_leases(monitor.clock.steady_ms(), &values);
    queues(monitor, &values);
    memory(monitor, &values);
    connections(monitor, &values);
    feed(monitor, &values);
    clock(monitor, &values);
    let stored = stored.and_then(Result::ok);
    values.gauge("tollkeeper_database_up", "1 while the database answers.", u8::from(stored.is_some()));
    if let Some(stored) = stored {
        stored.add_to(monitor, &values);
    }
    process.add_to(monitor.started_at, &values);
    monitor.metrics.registered.to_text(&values)
}

/// The metrics that are read from the database, which are the same on all replicas.
struct DatabaseMetrics {
    newest: i64,
    mails: i64,
    oldest_mail_age_ms: i64,
    deliveries: i64,
    audit: LastAudit,
}

async fn read_database(monitor: &Monitor) -> Result<DatabaseMetrics, db::Error> {
    let mut tx = monitor.db.read().await?;
    let newest = cluster::changes::newest(&mut tx).await?;
    let (mails, oldest) = mail::store::outbox::waiting(&mut tx).await?;
    let deliveries = webhooks::store::deliveries::count_pending(&mut tx).await?;
    let now = monitor.clock.now();
    let oldest_mail_age_ms = oldest.map_or(0, |oldest| (now.unix_ms() - oldest.unix_ms()).max(0));
    drop(tx);
    let audit = last_audit(&monitor.billing).await?;
    Ok(DatabaseMetrics { newest, mails, oldest_mail_age_ms, deliveries, audit })
}

impl DatabaseMetrics {
    fn add_to(&self, monitor: &Monitor, values: &Registered) {
        let lag = self.newest - monitor.feed.position();
        values.gauge("tollkeeper_changes_lag", "Changes that this replica has not applied yet.", lag);
        values.gauge("tollkeeper_mails_waiting", "E-mails in the outbox.", self.mails);
        let help = "The age of the oldest e-mail in the outbox; 0 if it is empty.";
        values.seconds("tollkeeper_mails_oldest_age_seconds", help, self.oldest_mail_age_ms);
        let help = "Deliveries of webhooks that wait for an attempt.";
        values.gauge("tollkeeper_webhook_deliveries_waiting", help, self.deliveries);
        self.audit.add_to(values);
    }
}

fn build_info(monitor: &Monitor, values: &Registered) {
    let database = if monitor.db.is_postgres() { "postgres" } else { "sqlite" };
    let help = "The version and the database; always 1.";
    let build = values.gauges("tollkeeper_build_info", help, &["version", "database"]);
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), database]).set(1.0);
    let ready = u8::from(monitor.frame.is_ready());
    values.gauge("tollkeeper_booted", "1 once the start has finished.", ready);
}

fn queues(monitor: &Monitor, values: &Registered) {
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
        values.count(names[0], "Items that the collector has accepted.", load.sent);
        values.count(names[1], "Items that were dropped.", load.lost);
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
    let lengths = queues.iter().map(|(name, length, ..)| (*name, *length));
    values.gauge_each("tollkeeper_queue_length", "The length of a queue.", "queue", lengths);
    let max = queues.iter().map(|(name, _, max, _)| (*name, *max));
    values.gauge_each("tollkeeper_queue_capacity", "The capacity of a queue.", "queue", max);
    let full = values.counters(
        "tollkeeper_queue_full_total",
        "The number of times that a queue was full.",
        &["queue"],
    );
    for (name, _, _, refused) in queues {
        if let Some(refused) = refused {
            full.with_label_values(&[name]).inc_by(refused);
        }
    }
}

fn memory(monitor: &Monitor, values: &Registered) {
    let (keys, key_bytes) = monitor.keys.keyring.size();
    values.gauge("tollkeeper_keys_held", "API keys in memory.", keys);
    values.gauge("tollkeeper_keys_held_bytes", "The approximate memory of these keys, in bytes.", key_bytes);
    let rows = [
        ("api_keys", keys),
        ("unknown_api_keys", monitor.keys.keyring.unknown_count()),
        ("sessions", monitor.accounts.sessions.len()),
        ("verified_tokens", monitor.accounts.signing_keys.verified_count()),
        ("rate_meters", monitor.limiter.len()),
        ("shared_rate_meters", monitor.keys.rates.len()),
    ];
    let rows = rows.into_iter().chain(billing::metrics::caches(&monitor.billing));
    values.gauge_each("tollkeeper_cache_entries", "Entries in memory.", "cache", rows);
}

/// A metric of the connection pools: its name, its help text and its value.
type ConnectionMetric = (&'static str, &'static str, fn(&db::Connections) -> usize);

fn connections(monitor: &Monitor, values: &Registered) {
    let pools = monitor.db.connections();
    let families: [ConnectionMetric; 4] = [
        ("tollkeeper_db_connections_open", "Connections to the database.", |pool| pool.open),
        (
            "tollkeeper_db_connections_in_use",
            "Connections in use; shared ones count while they are open.",
            |pool| pool.in_use,
        ),
        ("tollkeeper_db_connections_max", "Maximum number of connections to the database.", |pool| pool.max),
        (
            "tollkeeper_db_connections_waiting",
            "Callers that wait for a connection; PostgreSQL's writes only.",
            |pool| pool.waiting,
        ),
    ];
    for (name, help, of) in families {
        values.gauge_each(name, help, "purpose", pools.iter().map(|pool| (pool.purpose, of(pool))));
    }
    values.count(
        "tollkeeper_db_statements_total",
        "Statements sent to the database.",
        monitor.db.statement_count(),
    );
}

fn feed(monitor: &Monitor, values: &Registered) {
    let now = monitor.clock.now();
    values.count("tollkeeper_changes_applied_total", "Changes read from the feed.", monitor.feed.applied());
    values.count(
        "tollkeeper_changes_gaps_total",
        "Gaps in the feed, after which everything in memory is read again.",
        monitor.feed.restarts(),
    );
    let position = monitor.feed.position();
    values.gauge("tollkeeper_changes_position", "The last change that this replica has applied.", position);
    if let Some(age_ms) = monitor.feed.age_ms(now) {
        let help = "The age of the last successful read of the feed.";
        values.seconds("tollkeeper_changes_age_seconds", help, age_ms);
    }
    values.gauge(
        "tollkeeper_memory_trusted",
        "1 while the feed is read; 0 while sessions and keys are read on each request.",
        u8::from(monitor.feed.is_trusted(now)),
    );
    values.count(
        "tollkeeper_catalog_reloads_total",
        "Catalogs that came into force.",
        monitor.catalog.reloads(),
    );
    values.gauge(
        "tollkeeper_catalog_refused",
        "1 while the catalog file is refused and the previous one stays in force.",
        u8::from(monitor.catalog.is_refused()),
    );
}

fn clock(monitor: &Monitor, values: &Registered) {
    values.gauge(
        "tollkeeper_clock_trusted",
        "1 while this machine's clock is trusted; 0 while it isn't, so no month is closed and nothing \
         expires or is deleted.",
        u8::from(monitor.clock_guard.is_trusted()),
    );
    let offsets = monitor.clock_guard.offsets();
    let help = "How far this machine's clock is ahead of its steady clock, and of the database's clock.";
    let ahead = values.gauges("tollkeeper_clock_offset_seconds", help, &["against"]);
    for (against, ms) in [("steady", offsets.steady_ms), ("database", offsets.database_ms)] {
        if let Some(ms) = ms {
            ahead.with_label_values(&[against]).set(seconds(ms));
        }
    }
}
