//! Failovers between two clusters in both directions: the primary dies, its standby is promoted, and clients
//! switch over.

use std::time::{Duration, Instant};

use super::{database_of, load};
use support::chance::{Chance, first_seed, number};
use support::postgres::Cluster;
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

#[on_postgres]
fn answered_requests_survive_a_failover(_: Database) {
    let Some(mut primary) = Cluster::primary() else { return };
    let failovers = number("TOLLKEEPER_TEST_KILLS").unwrap_or(2);
    let runtime = runtime();
    let of_primary = runtime.block_on(primary.empty_database());
    let mut standby = primary.standby();
    // The URL has the format of libpq.
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{}?target_session_attrs=read-write",
        primary.port(),
        standby.port(),
        database_of(&of_primary)
    );
    let folder = Folder::new();
    let start = load::start(&folder, &url);
    let mut chance = Chance::new(first_seed());
    let (mut longest_promotion, mut longest) = (Duration::ZERO, Duration::ZERO);
    load::under_load(&format!("{failovers} failovers"), &start, |load| {
        let mut ids = Vec::new();
        for number in 0..failovers {
            runtime.block_on(primary.wait_for_a_standby());
            std::thread::sleep(Duration::from_millis(chance.below(600) as u64));
            primary.kill();
            let began = Instant::now();
            runtime.block_on(standby.admin("SELECT pg_promote()"));
            longest_promotion = longest_promotion.max(began.elapsed());
            longest = longest.max(load.wait_for_answer(&format!("failover-{number}")));
            ids.push(format!("failover-{number}"));
            // The dead primary returns as the standby of the new one.
            primary.follow(&standby);
            std::mem::swap(&mut primary, &mut standby);
        }
        ids
    });
    println!(
        "the longest promotion {longest_promotion:?}, the longest wait for an answer after one {longest:?}"
    );
}
