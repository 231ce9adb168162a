//! Shared rates: replicas together allow as many calls as a single replica, with few queries, and also while
//! the database is down.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::jobs::sweep::sweep;

use super::feed::LogLines;
use support::postgres::Cluster;
use support::twin::Twin;
use support::world::{World, catch_up, runtime};
use support::{Database, on_each_database, on_postgres};

/// The calls that a replica may borrow at once: five seconds of a rate of 600 per minute.
const LEASE: u32 = 600 / 12;

/// Runs a test on PostgreSQL only, because SQLite has only one server.
///
/// If the database takes half a second to answer, as it may on a busy machine, a replica counts alone, and
/// the borrowed calls count as used. A failure of such a run proves nothing, so the test runs again.
fn while_it_answers(postgres: Database, test: impl AsyncFn(World)) {
    postgres.block_on(async {
        for _ in 0..5 {
            let log = LogLines::default();
            let captured = log.capture();
            let world = postgres.world(&[]).await;
            let outcome = AssertUnwindSafe(test(world)).catch_unwind().await;
            drop(captured);
            match outcome {
                Ok(()) => return,
                Err(panic) if !log.text().contains("request rates can't be shared") => resume_unwind(panic),
                Err(_) => {}
            }
        }
        panic!("the database took too long in each of five runs");
    });
}

/// Creates a key with this rate; returns its secret.
async fn key(world: &World, rate: u32) -> String {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    world.key(&ada, &place, &json!({"name": "k", "restrictions": {"rate_limit": rate}})).await.1
}

/// Returns the status and, for a refusal, the milliseconds to wait.
async fn call(twin: &Twin, key: &str) -> (u16, i64) {
    let question = json!({"credential": key, "operation": "models"});
    let decision = twin.ask("/service/v1/authorize", &question).bare().await;
    let status = decision["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap();
    (status, decision["retry_after_ms"].as_i64().unwrap_or(0))
}

/// Makes calls until one is refused; returns the number of allowed calls, and the wait in milliseconds.
async fn drain(twin: &Twin, key: &str) -> (u32, i64) {
    let mut let_through = 0;
    loop {
        match call(twin, key).await {
            (200, _) => let_through += 1,
            (429, wait_ms) => return (let_through, wait_ms),
            other => panic!("{other:?}"),
        }
    }
}

async fn three_replicas(world: &World) -> Vec<Twin> {
    let [one, two] = Twin::both(world).await;
    let [_, three_replicas] = Twin::both(world).await;
    vec![one, two, three_replicas]
}

#[on_postgres]
fn three_replicas_share_one_limit_under_load(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = key(&world, 600).await;
        let replicas = three_replicas(&world).await;
        let mut let_through = 0;
        for turn in 0..240 {
            world.clock.advance_ms(250);
            for step in 0..9 {
                let replica = &replicas[(turn + step) % 3];
                let_through += u32::from(call(replica, &key).await.0 == 200);
            }
            for replica in &replicas {
                replica.app.keys.rates.return_leases(false).await;
            }
        }
        // 600 immediate calls and 600 within the minute are allowed; 2,160 calls were made.
        assert!(let_through <= 1_200 + LEASE, "{let_through}");
        assert!(let_through >= 1_200 - 3 * LEASE, "{let_through}");
    });
}

#[on_postgres]
fn calls_at_the_same_instant_share_one_limit(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = Arc::new(key(&world, 300).await);
        let replicas = Twin::both(&world).await;
        let calls = (0..800).map(|number| {
            let (replica, key) = (replicas[number % 2].clone(), Arc::clone(&key));
            tokio::spawn(async move { call(&replica, &key).await.0 == 200 })
        });
        let let_through: u32 =
            futures_util::future::join_all(calls).await.into_iter().map(|ok| u32::from(ok.unwrap())).sum();
        assert!((300 - 2 * 25..=300).contains(&let_through), "{let_through}");
    });
}

#[on_each_database]
async fn minute_at_the_rate_costs_few_statements(world: World) {
    let key = key(&world, 600).await;
    let replicas = if world.backend == "sqlite" {
        three_replicas(&world).await[..1].to_vec()
    } else {
        three_replicas(&world).await
    };
    for replica in &replicas {
        call(replica, &key).await;
    }
    let mut others = vec![0; replicas.len()];
    let before: Vec<_> = replicas.iter().map(|replica| replica.app.db.statement_count()).collect();
    for turn in 0..600 {
        world.clock.advance_ms(100);
        assert_eq!(call(&replicas[turn % replicas.len()], &key).await.0, 200, "{turn}");
        // Reads the feed as the job does, so that the key stays cached; this isn't counted.
        for (replica, others) in replicas.iter().zip(&mut others) {
            let before = replica.app.db.statement_count();
            catch_up(&replica.app).await;
            *others += replica.app.db.statement_count() - before;
        }
    }
    for ((replica, before), others) in replicas.iter().zip(before).zip(others) {
        let cost = replica.app.db.statement_count() - before - others;
        let due = if world.backend == "sqlite" { 0..=0 } else { 2..=34 };
        assert!(due.contains(&cost), "{}: {cost}", world.backend);
    }
}

#[on_postgres]
fn refusals_have_the_exact_wait(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = key(&world, 60).await;
        let [one, two] = Twin::both(&world).await;
        let (first, wait_ms) = drain(&one, &key).await;
        assert_eq!((first, wait_ms), (60, 1_000));
        // The other replica finds out with one query, and then refuses without a query.
        assert_eq!(call(&two, &key).await, (429, 1_000));
        let before = two.app.db.statement_count();
        world.clock.advance_ms(999);
        assert_eq!(call(&two, &key).await, (429, 1));
        assert_eq!(two.app.db.statement_count(), before);
        world.clock.advance_ms(1);
        assert_eq!(call(&two, &key).await.0, 200);
        assert_eq!(call(&one, &key).await, (429, 1_000));
    });
}

#[on_postgres]
fn calls_borrowed_by_a_dead_replica_are_returned(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = key(&world, 600).await;
        let [silent, other] = Twin::both(&world).await;
        for _ in 0..22 {
            assert_eq!(call(&silent, &key).await.0, 200);
        }
        let (let_through, _) = drain(&other, &key).await;
        assert!((600 - 22 - LEASE..=600 - 22).contains(&let_through), "{let_through}");
        // The silent replica doesn't report. Twelve seconds later, its borrowed calls count as used, and the
        // meter has drained.
        world.clock.advance_ms(12_000);
        let (let_through, _) = drain(&other, &key).await;
        assert!((100..=120).contains(&let_through), "{let_through}");
        // A running replica returns unused calls.
        world.clock.advance_ms(72_000);
        for _ in 0..22 {
            assert_eq!(call(&silent, &key).await.0, 200);
        }
        world.clock.advance_ms(5_000);
        assert_eq!(silent.app.keys.rates.return_leases(false).await, 1);
        assert_eq!(silent.app.keys.rates.return_leases(false).await, 0);
        let (let_through, _) = drain(&other, &key).await;
        assert!(let_through >= 600 - 22, "{let_through}");
    });
}

#[on_postgres]
fn model_rate_is_shared_and_refused_calls_are_returned(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = key(&world, 100).await;
        let [_, other] = Twin::both(&world).await;
        let ask = async |key: &str| -> Value {
            let body = json!({"credential": key, "operation": "chat", "model": "svc-1", "reserve": false});
            world.ask("/service/v1/authorize", &body).bare().await
        };
        for left in (0..60).rev() {
            let limits = ask(&key).await["limits"].take();
            assert_eq!(limits["model"]["remaining_requests"], left, "{limits}");
            assert_eq!(limits["api_key"]["remaining_requests"], left + 40, "{limits}");
        }
        for _ in 0..20 {
            assert_eq!(ask(&key).await["code"], "model_rate_limited");
        }
        // Refused calls don't count, on the other replica either.
        let (let_through, _) = drain(&other, &key).await;
        assert!((40 - 9..=40).contains(&let_through), "{let_through}");
    });
}

#[on_postgres]
fn replicas_count_alone_without_a_database_and_log_it_once(_: Database) {
    runtime().block_on(async {
        let Some(cluster) = Cluster::private() else { return };
        let world = World::new("postgres", Some(cluster.new_database().await), &[]).await;
        let key = key(&world, 60).await;
        let [one, two] = Twin::both(&world).await;
        for twin in [&one, &two] {
            for _ in 0..10 {
                assert_eq!(call(twin, &key).await.0, 200);
            }
        }
        let log = LogLines::default();
        let _captured = log.capture();
        cluster.stop();
        for twin in [&one, &two] {
            let (let_through, wait_ms) = drain(twin, &key).await;
            // The known calls of the other replica still count.
            assert!((40..=50).contains(&let_through), "{let_through}");
            assert_eq!(wait_ms, 1_000);
        }
        cluster.start();
        world.clock.advance_ms(2_000);
        for twin in [&one, &two] {
            catch_up(&twin.app).await;
        }
        let said = |what: &str| log.text().matches(what).count();
        assert_eq!(said("can't be shared: this replica counts for itself"), 2, "{}", log.text());
        let sum = drain(&one, &key).await.0 + drain(&two, &key).await.0;
        // Calls allowed without the database count now. The crash may have lost the first calls, because that
        // database doesn't wait for the disk.
        assert!(sum <= 2 + 20, "{sum}");
        assert_eq!(said("shared with other replicas again"), 2, "{}", log.text());
    });
}

#[on_postgres]
fn empty_meters_are_swept(postgres: Database) {
    while_it_answers(postgres, async |world| {
        let key = key(&world, 60).await;
        let [one, _] = Twin::both(&world).await;
        assert_eq!(call(&one, &key).await.0, 200);
        let rows = async || -> i64 {
            let (count,) = sql("SELECT COUNT(*) AS n FROM rate_meters")
                .one(&mut world.app.db.read().await.unwrap())
                .await
                .unwrap();
            count
        };
        sweep(&world.app).await.unwrap();
        assert_eq!((rows().await, one.app.keys.rates.len()), (1, 1));
        world.clock.advance_ms(120_001);
        sweep(&world.app).await.unwrap();
        assert_eq!((rows().await, one.app.keys.rates.len()), (0, 0));
    });
}
