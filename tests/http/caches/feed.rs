//! The change feed: its order, its gaps, and failures to read it.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{HOUR_MS, SECOND_MS};
use tollkeeper::db::{Change, sql};
use tollkeeper::ids::{ApiKeyId, ProjectId};
use tollkeeper::jobs;

use tollkeeper::cluster::feed::{FRESH_MS, TRUST_MS};
use tollkeeper::cluster::{changes, heartbeat};

use support::http::Call;
use support::postgres::Cluster;
use support::process::{Start, until};
use support::twin::{Twin, settle};
use support::world::{World, runtime};
use support::{Database, on_each_database, on_postgres};

/// The log of this thread, at level INFO and above.
#[derive(Clone, Default)]
pub(super) struct LogLines(Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LogLines {
    /// Captures the log while the guard lives.
    pub(super) fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        tracing::subscriber::set_default(log.finish())
    }

    /// Returns the lines so far.
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns level and message of each line, without the cause, and clears the log.
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_ours = lines.filter(|line| line["target"] == "cluster::feed");
        of_ours
            .map(|line| {
                let message =
                    line["message"].as_str().unwrap().split(": database").next().unwrap().to_owned();
                format!("{} {}", line["level"].as_str().unwrap(), message.split(": internal").next().unwrap())
            })
            .collect()
    }
}

/// Records a change of an object that isn't cached.
async fn record(world: &World) -> i64 {
    let now = world.clock.now();
    let mut tx = world.app.db.write().await.unwrap();
    let change = Change::ApiKey(ApiKeyId::new(now, &world.app.random));
    changes::record(&mut tx, change, now).await.unwrap();
    tx.commit().await.unwrap();
    newest(world).await
}

async fn newest(world: &World) -> i64 {
    changes::newest(&mut world.app.db.read().await.unwrap()).await.unwrap()
}

/// Returns the number of statements of a call with this key on this replica.
async fn count_statements(replica: &Twin, key: &str) -> u64 {
    let before = replica.app.db.statement_count();
    replica.get("/v1/models").bearer(key).bare().await;
    replica.app.db.statement_count() - before
}

#[on_each_database]
async fn change_is_applied_after_its_commit_only(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    world.get("/v1/models").bearer(&key).bare().await;
    assert_eq!((count_statements(&replica, &key).await, count_statements(&replica, &key).await), (1, 0));
    let project = Change::Project(ProjectId::parse(&place.project).unwrap());
    let here = async || {
        let before = world.app.db.statement_count();
        world.get("/v1/models").bearer(&key).bare().await;
        world.app.db.statement_count() - before
    };

    // After a rollback, nothing has changed.
    let mut tx = world.app.db.write().await.unwrap();
    changes::record(&mut tx, project, world.clock.now()).await.unwrap();
    drop(tx);
    assert_eq!((here().await, newest(&world).await), (0, 0));

    let mut tx = world.app.db.write().await.unwrap();
    changes::record(&mut tx, project, world.clock.now()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((here().await, here().await), (1, 0), "on this replica without reading the feed");
    assert_eq!(count_statements(&replica, &key).await, 0);
    settle(&replica).await;
    assert_eq!((count_statements(&replica, &key).await, count_statements(&replica, &key).await), (1, 0));
    assert_eq!((replica.app.feed.position(), replica.app.feed.applied()), (1, 1));
    // Without new changes, no cache entry is dropped.
    settle(&replica).await;
    assert_eq!((count_statements(&replica, &key).await, replica.app.feed.restarts()), (0, 0));
}

#[on_each_database]
async fn all_pages_are_read(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let mut tx = world.app.db.write().await.unwrap();
    for _ in 0..2_500 {
        let change = Change::ApiKey(ApiKeyId::new(world.clock.now(), &world.app.random));
        changes::record(&mut tx, change, world.clock.now()).await.unwrap();
    }
    tx.commit().await.unwrap();
    settle(&replica).await;
    assert_eq!((replica.app.feed.position(), replica.app.feed.applied()), (2_500, 2_500));
}

#[on_each_database]
async fn gap_drops_all_cache_entries(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let restarted = async |how: &str, restarts: u64| {
        settle(&replica).await;
        assert_eq!(
            (count_statements(&replica, &key).await, count_statements(&replica, &key).await),
            (1, 0),
            "{how}"
        );
        assert_eq!(
            (replica.app.feed.restarts(), replica.app.feed.position()),
            (restarts, newest(&world).await),
            "{how}"
        );
    };
    assert_eq!((count_statements(&replica, &key).await, count_statements(&replica, &key).await), (1, 0));

    // The replica slept for more than an hour: the sweep has removed unread changes.
    record(&world).await;
    world.clock.advance_ms(HOUR_MS + 1);
    tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
    restarted("all rows were removed", 1).await;

    record(&world).await;
    world.clock.advance_ms(HOUR_MS + 1);
    record(&world).await;
    tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
    restarted("the oldest row was removed", 2).await;

    for (text, how) in [
        ("UPDATE change_position SET position = position - 2 WHERE id = 1", "a restored backup"),
        ("UPDATE change_position SET position = position + 7 WHERE id = 1", "a jump"),
    ] {
        let mut tx = world.app.db.write().await.unwrap();
        sql(text).execute(&mut tx).await.unwrap();
        sql("DELETE FROM changes").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        restarted(how, if how == "a jump" { 4 } else { 3 }).await;
    }
}

/// A failover may lose a change that could be read, and other changes take its position.
#[on_each_database]
async fn lost_change_drops_all_cache_entries(world: World) {
    let [_, replica] = Twin::both(&world).await;
    for later in 0..2 {
        let position = record(&world).await;
        settle(&replica).await;
        let before = replica.app.feed.restarts();
        let other = ApiKeyId::new(world.clock.now(), &world.app.random);
        let mut tx = world.app.db.write().await.unwrap();
        sql("UPDATE changes SET subject = $2 WHERE position = $1")
            .bind(position)
            .bind(other.to_string())
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        for _ in 0..later {
            record(&world).await;
        }
        for _ in 0..2 {
            settle(&replica).await;
            assert_eq!(replica.app.feed.restarts() - before, 1, "with {later} later ones");
        }
    }
}

#[on_each_database]
async fn unknown_change_drops_all_cache_entries(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    assert_eq!((count_statements(&replica, &key).await, count_statements(&replica, &key).await), (1, 0));
    record(&world).await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE changes SET subject = 'as a newer version may write it'").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    settle(&replica).await;
    assert_eq!((count_statements(&replica, &key).await, count_statements(&replica, &key).await), (1, 0));
    assert_eq!((replica.app.feed.restarts(), replica.app.feed.position()), (0, 1));
}

#[on_each_database]
async fn changes_stay_in_the_feed_for_an_hour(world: World) {
    let [_, replica] = Twin::both(&world).await;
    record(&world).await;
    world.clock.advance_ms(HOUR_MS);
    tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
    settle(&replica).await;
    assert_eq!((replica.app.feed.applied(), replica.app.feed.restarts()), (1, 0));
}

/// Returns the time in milliseconds for which caches are trusted without another read of the feed. On
/// PostgreSQL, a read includes the heartbeat.
fn trusted_ms(world: &World) -> i64 {
    if world.app.db.is_postgres() { FRESH_MS } else { TRUST_MS }
}

#[on_each_database]
async fn caches_are_not_trusted_after_seconds_without_the_feed(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let statements = async |path: &str, bearer: &str| {
        let before = replica.app.db.statement_count();
        replica.get(path).bearer(bearer).bare().await;
        replica.app.db.statement_count() - before
    };
    for bearer in [&key, &ada.access_token] {
        assert_eq!(statements("/v1/models", bearer).await, 1);
    }
    // The feed can't be read, but everything else can.
    let hide = async |from: &str, to: &str| {
        let mut tx = world.app.db.write().await.unwrap();
        sql(format!("ALTER TABLE {from} RENAME TO {to}")).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    hide("change_position", "hidden").await;
    let lines = LogLines::default();
    let log = lines.capture();
    replica.app.feed.catch_up().await.unwrap_err();
    world.clock.advance_ms(trusted_ms(&world) - 1);
    replica.app.feed.catch_up().await.unwrap_err();
    for bearer in [&key, &ada.access_token] {
        assert_eq!(statements("/v1/models", bearer).await, 0, "still trusted");
    }
    assert_eq!(lines.take(), Vec::<String>::new());
    world.clock.advance_ms(1);
    for _ in 0..3 {
        replica.app.feed.catch_up().await.unwrap_err();
    }
    let line = "WARN the feed of changes can't be read: until it can, sessions and keys are read from the \
                database on each request";
    assert_eq!(lines.take(), [line]);
    for bearer in [&key, &ada.access_token] {
        assert_eq!((statements("/v1/models", bearer).await, statements("/v1/models", bearer).await), (1, 1));
    }
    // The end of a session is noticed without the feed.
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE sessions SET ended_at = $2 WHERE id = $1")
        .bind(ada.session_id)
        .bind(world.clock.now())
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(replica.get("/v1/models").bearer(&ada.access_token).send().await.status, 401);

    hide("hidden", "change_position").await;
    for _ in 0..2 {
        settle(&replica).await;
    }
    assert_eq!(lines.take(), ["INFO the feed of changes is read again: memory is trusted"]);
    drop(log);
    assert_eq!((statements("/v1/models", &key).await, replica.app.feed.restarts()), (0, 0), "trusted again");
}

/// A primary that was replaced without noticing still answers reads, but can't commit a heartbeat if it has a
/// synchronous standby. Here, another transaction locks the row instead.
#[on_each_database]
async fn memory_needs_heartbeats_on_postgres(world: World) {
    let (feed, is_postgres) = (&world.app.feed, world.app.db.is_postgres());
    let number = async || {
        let mut tx = world.app.db.read().await.unwrap();
        heartbeat::get(&mut tx, 0).await.unwrap().number
    };
    world.clock.advance_ms(SECOND_MS);
    let before = number().await;
    feed.catch_up().await.unwrap();
    assert_eq!(number().await - before, i64::from(is_postgres), "one a second");
    feed.catch_up().await.unwrap();
    assert_eq!(number().await - before, i64::from(is_postgres), "and no more");
    if !is_postgres {
        return;
    }
    let mut other = world.app.db.write().await.unwrap();
    sql("UPDATE heartbeat SET timeline = 0 WHERE id = 1").execute(&mut other).await.unwrap();
    let lines = LogLines::default();
    let log = lines.capture();
    world.clock.advance_ms(FRESH_MS - 1);
    feed.catch_up().await.unwrap();
    assert!(feed.is_trusted(world.clock.now()));
    world.clock.advance_ms(1);
    feed.catch_up().await.unwrap();
    assert!(!feed.is_trusted(world.clock.now()), "the feed was read, but has no heartbeat");
    let logged = lines.take();
    assert!(logged.len() == 1 && logged[0].contains("committed no heartbeat for 3 s"), "{logged:?}");
    assert!(world.get("/readyz").send().await.text.contains("feed"));
    drop(other);
    while !feed.is_trusted(world.clock.now()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        feed.catch_up().await.unwrap();
    }
    assert_eq!(lines.take(), ["INFO the feed of changes is read again: memory is trusted"]);
    drop(log);
}

/// A heartbeat doesn't make caches trusted until the changes that were read with it are applied.
#[on_postgres]
async fn heartbeat_counts_once_its_changes_are_applied(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let feed = &replica.app.feed;
    let change = async |statement: String| {
        let mut tx = world.app.db.write().await.unwrap();
        sql(statement).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    record(&world).await;
    change("ALTER TABLE changes RENAME TO hidden".to_owned()).await;
    for _ in 0..FRESH_MS / SECOND_MS {
        world.clock.advance_ms(SECOND_MS);
        change("UPDATE heartbeat SET number = number + 1 WHERE id = 1".to_owned()).await;
        feed.catch_up().await.unwrap_err();
    }
    assert!(!feed.is_trusted(world.clock.now()), "a change is missing in memory");

    change("ALTER TABLE hidden RENAME TO changes".to_owned()).await;
    for _ in 0..2 {
        world.clock.advance_ms(SECOND_MS);
        change("UPDATE heartbeat SET number = number + 1 WHERE id = 1".to_owned()).await;
        feed.catch_up().await.unwrap();
    }
    assert!(feed.is_trusted(world.clock.now()));
}

/// Only one of several replicas that start together writes the heartbeat.
#[on_postgres]
async fn memory_is_trusted_from_the_start_beside_another_replica(world: World) {
    let mut other = world.app.db.write().await.unwrap();
    sql("UPDATE heartbeat SET number = number + 1 WHERE id = 1").execute(&mut other).await.unwrap();
    let commit = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        other.commit().await.unwrap();
    };
    let ((), [_, replica]) = tokio::join!(commit, Twin::both(&world));
    assert!(replica.app.feed.is_trusted(world.clock.now()));
}

#[on_each_database]
async fn clock_jump_costs_queries_but_not_correctness(world: World) {
    let (feed, limit_ms) = (&world.app.feed, trusted_ms(&world));
    for (moved_ms, trusted) in [
        (0, true),
        (limit_ms - 1, true),
        (1, false),
        (-limit_ms - 1_000, true),
        (-1, false),
        (limit_ms, true),
    ] {
        world.clock.advance_ms(moved_ms);
        assert_eq!(feed.is_trusted(world.clock.now()), trusted, "{moved_ms}");
    }
}

/// The row that assigns positions is locked only at the commit. If it were locked earlier, a transaction that
/// holds it and waits for another row would deadlock with a transaction that holds that row and waits for a
/// position.
#[on_postgres]
fn recorded_change_does_not_block_other_commits(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    runtime().block_on(async {
        let world = World::new("postgres", Some(cluster.new_database().await), &[]).await;
        let now = world.clock.now();
        let change = || Change::ApiKey(ApiKeyId::new(now, &world.app.random));
        let before = newest(&world).await;
        let mut first = world.app.db.write().await.unwrap();
        changes::record(&mut first, change(), now).await.unwrap();
        // Sends the deferred statements.
        changes::newest(&mut first).await.unwrap();
        let second = async {
            let mut second = world.app.db.write().await.unwrap();
            changes::record(&mut second, change(), now).await.unwrap();
            second.commit().await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(5), second).await.expect("waits for no other transaction");
        first.commit().await.unwrap();
        assert_eq!(newest(&world).await, before + 2);
    });
}

#[on_postgres]
fn no_position_is_skipped_under_32_writers(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    runtime().block_on(async {
        let world = World::new("postgres", Some(cluster.new_database().await), &[]).await;
        let world = Arc::new(world);
        let [_, replica] = Twin::both(&world).await;
        let done = Arc::new(AtomicBool::new(false));
        let follower = tokio::spawn({
            let done = Arc::clone(&done);
            async move {
                loop {
                    let last = done.load(Ordering::SeqCst);
                    settle(&replica).await;
                    if last {
                        return replica.app;
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        let writers: Vec<_> = (0..32)
            .map(|writer| {
                let world = Arc::clone(&world);
                tokio::spawn(async move {
                    for round in 0..25 {
                        let now = world.clock.now();
                        let mut tx = world.app.db.write().await.unwrap();
                        for _ in 0..=(writer % 3) {
                            let change = Change::ApiKey(ApiKeyId::new(now, &world.app.random));
                            changes::record(&mut tx, change, now).await.unwrap();
                        }
                        // Some transactions roll back: their positions are assigned again.
                        if (writer + round) % 5 == 0 { drop(tx) } else { tx.commit().await.unwrap() }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        done.store(true, Ordering::SeqCst);
        let app = follower.await.unwrap();
        let newest = newest(&world).await;
        assert!(newest > 32 * 20, "{newest}");
        assert_eq!((app.feed.position(), app.feed.restarts()), (newest, 0));
        assert_eq!(i64::try_from(app.feed.applied()).unwrap(), newest);
    });
}

#[on_each_database]
fn two_processes_follow_each_others_changes(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let (one, other) = (start.run(), start.run());
        let ada = one.sign_up("ada");
        let place = one.settle(&ada);
        let session = one.log_in("ada");
        let statuses = || {
            let of = |bearer: &str| other.get("/v1/models").bearer(bearer).send().status;
            (of(&session.access_token), of(&place.key))
        };
        assert_eq!(statuses(), (200, 200));
        one.post("/v1/auth/logout", &json!({})).bearer(&session.access_token).data();
        assert!(until(|| statuses() == (401, 200)), "{:?}\n{}", statuses(), other.log());
    });
}

/// Returns how often the job has read the feed.
async fn turns(world: &World) -> u64 {
    let call = Call::new(&world.service, Method::GET, "/metrics");
    let metrics = call.bearer(world.app.api.service_token.expose()).send().await.text;
    let row =
        metrics.lines().find_map(|line| line.strip_prefix("tollkeeper_job_runs_total{job=\"changes\"} "));
    row.expect("the job has a row").parse().unwrap()
}

#[on_each_database]
async fn feed_is_read_five_times_a_second(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let project = ProjectId::parse(&place.project).unwrap();
    let jobs = tokio::spawn(jobs::run(world.app.clone()));
    let began = Instant::now();
    for _ in 0..300 {
        let mut tx = world.app.db.write().await.unwrap();
        changes::record(&mut tx, Change::Project(project), world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
    }
    // Many changes share a read, and the last change is read as well.
    let newest = changes::newest(&mut world.app.db.read().await.unwrap()).await.unwrap();
    assert!(until(|| world.app.feed.position() == newest));
    let turns = turns(&world).await;
    jobs.abort();
    // The limit grows with the elapsed time, so that the test passes on slow machines.
    let most = began.elapsed().as_millis() / 200 + 2;
    assert!(turns >= 1 && u128::from(turns) <= most, "{turns} turns, at most {most}");
}
