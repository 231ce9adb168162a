//! Compares members with a model: random histories of concurrent calls that change an organization, its
//! projects and members, on two servers with one database.
//!
//! A seed distributes the calls over several tasks; their interleaving depends on the machine. The audit
//! trail shows the order afterward, because each change is recorded in its own transaction under the
//! organization's lock. The changes are replayed in this order through a model with its own rules
//! ([`model::State::decide`]): each change must have been allowed for its caller at that time. Therefore no
//! member ever held a role that no authorized caller gave, and the organization always had an owner. Every
//! other answer must equal the model's answer in one of the states between the beginning and the end of its
//! call. At the end, lists, counts and details must equal the model's for every member who may read them.
//!
//! On a mismatch, the test prints the history; `TOLLKEEPER_TEST_SEED` repeats it before the others
//! ([`support::seeds`]).

mod checks;
mod history;
mod model;

use std::sync::Arc;

use self::checks::{Figures, compare, replay};
use self::history::{History, number_entries};
use support::Database;
use support::on_each_database;
use support::seeds::Seeds;
use support::twin::Twin;
use support::world::World;

/// The number of histories in a complete run. Calls take twice as long on PostgreSQL.
const HISTORIES_ON_SQLITE: u64 = 50;
const HISTORIES_ON_POSTGRES: u64 = 10;
const STEPS: usize = 200;
const TASKS: usize = 4;

#[on_each_database]
fn members_match_the_model(database: Database) {
    database.run(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world| {
        play(
            &world,
            &Seeds::of("members_model", database.choose(HISTORIES_ON_SQLITE, HISTORIES_ON_POSTGRES)),
        )
        .await;
    });
}

async fn play(world: &World, seeds: &Seeds) {
    number_entries(world).await;
    let twins = Twin::both_with_cheap_hashes(world).await;
    let mut figures = Figures::default();
    let started = std::time::Instant::now();
    for &seed in &seeds.seeds {
        let history = History::begin(world, &twins, seed).await;
        let history = Arc::new(history);
        let hands = history.deal(TASKS, STEPS);
        let tasks: Vec<_> =
            hands.into_iter().map(|hand| tokio::spawn(Arc::clone(&history).play(hand))).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        let entries = history.entries().await;
        let state = replay(&history, &all, &entries, &mut figures);
        if let Err(what) = compare(&history, &state, &mut figures).await {
            history.fail(&what, &all, &entries);
        }
    }
    let Figures { calls, changes, refusals, by_keys, raced, deleted, reads } = figures;
    println!(
        "{}: {} histories, {calls} calls ({by_keys} by keys): {changes} changes, {refusals} refusals, \
         {raced} answers in a race; {deleted} organizations deleted; {reads} reads compared; {:?}",
        world.backend,
        seeds.len(),
        started.elapsed()
    );
    assert_eq!(calls as u64, seeds.len() * STEPS as u64);
}
