//! PostgreSQL is killed under load and started again.

use std::time::Duration;

use super::load;
use crate::support::chance::{Chance, first_seed, number};
use crate::support::postgres::Cluster;
use crate::support::world::{Folder, runtime};

#[test]
fn answered_requests_survive_a_crash_of_postgres() {
    let Some(cluster) = Cluster::private() else { return };
    let kills = number("TOLLKEEPER_TEST_KILLS").unwrap_or(3);
    let (folder, url) = (Folder::new(), runtime().block_on(cluster.empty_database()));
    let start = load::start(&folder, &url);
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
