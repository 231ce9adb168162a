//! Connections to PostgreSQL that an administrator or the network ends under load.

use std::time::Duration;

use super::load;
use super::wire::{Wire, through};
use support::chance::{Chance, first_seed, number};
use support::postgres::Cluster;
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// Terminates all connections of the servers, or one in three.
const TERMINATE: [&str; 2] = [
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'tollkeeper'",
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
     WHERE application_name = 'tollkeeper' AND random() < 0.34",
];

#[on_postgres]
fn answered_requests_survive_terminated_connections(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let times = number("TOLLKEEPER_TEST_KILLS").unwrap_or(3) * 5;
    let runtime = runtime();
    let (folder, url) = (Folder::new(), runtime.block_on(cluster.empty_database()));
    let start = load::start(&folder, &url);
    let mut chance = Chance::new(first_seed());
    let mut ended = 0;
    load::under_load(&format!("connections terminated {times} times"), &start, |load| {
        let mut ids = Vec::new();
        for time in 0..times {
            std::thread::sleep(Duration::from_millis(chance.below(200) as u64));
            ended += runtime.block_on(cluster.ask(chance.one_of(&TERMINATE)));
            if time % 5 == 4 {
                load.wait_for_answer(&format!("cut-{time}"));
                ids.push(format!("cut-{time}"));
            }
        }
        ids
    });
    assert!(ended > 0);
    println!("{ended} connections were terminated");
}

#[on_postgres]
fn answered_requests_survive_a_cut_network(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let times = number("TOLLKEEPER_TEST_KILLS").unwrap_or(3) * 5;
    let (folder, direct) = (Folder::new(), runtime().block_on(cluster.empty_database()));
    let wire = Wire::to(&cluster.socket());
    let start = load::start(&folder, &through(&wire, &direct));
    let mut chance = Chance::new(first_seed());
    let mut ended = 0;
    load::under_load(&format!("connection cut {times} times"), &start, |load| {
        let mut ids = Vec::new();
        for time in 0..times {
            std::thread::sleep(Duration::from_millis(chance.below(200) as u64));
            ended += wire.cut();
            if time % 5 == 4 {
                load.wait_for_answer(&format!("cut-{time}"));
                ids.push(format!("cut-{time}"));
            }
        }
        ids
    });
    assert!(ended > 0);
    println!("{ended} connections were cut");
}
