//! PostgreSQL is killed under load and started again.

use std::time::Duration;

use super::{database_of, load};
use support::chance::{Chance, first_seed, number};
use support::postgres::Cluster;
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// Kills PostgreSQL under load and starts it again. Everything that was answered must be recorded.
fn kill_under_load(cluster: &Cluster, url: &str) {
    let kills = number("TOLLKEEPER_TEST_KILLS").unwrap_or(3);
    let folder = Folder::new();
    let start = load::start(&folder, url);
    let mut chance = Chance::new(first_seed());
    let mut longest = Duration::ZERO;
    load::under_load(&format!("{kills} kills of PostgreSQL"), &start, |load| {
        let trial = |kill: u64| {
            std::thread::sleep(Duration::from_millis(chance.below(600) as u64));
            cluster.kill();
            cluster.start();
            longest = longest.max(load.wait_for_answer(&format!("kill-{kill}")));
            format!("kill-{kill}")
        };
        (0..kills).map(trial).collect()
    });
    println!("the longest wait for an answer once PostgreSQL was started again: {longest:?}");
}

#[on_postgres]
fn answered_requests_survive_a_crash_of_postgres(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let url = runtime().block_on(cluster.empty_database());
    kill_under_load(&cluster, &url);
}

/// The role, and then the database, has `synchronous_commit = off`. With this default, PostgreSQL would
/// answer commits that it has only in memory, in this test for up to ten seconds.
#[on_postgres]
fn asynchronous_commit_of_a_role_or_database_loses_nothing(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    for whose in ["ROLE postgres", "DATABASE"] {
        let url = runtime().block_on(async {
            let url = cluster.empty_database().await;
            let whose = whose.replace("DATABASE", &format!("DATABASE {}", database_of(&url)));
            cluster.admin("ALTER SYSTEM SET wal_writer_delay = '10s'").await;
            cluster.admin("SELECT pg_reload_conf()").await;
            cluster.admin("ALTER ROLE postgres RESET synchronous_commit").await;
            cluster.admin(&format!("ALTER {whose} SET synchronous_commit = off")).await;
            url
        });
        kill_under_load(&cluster, &url);
    }
}
