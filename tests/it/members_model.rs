//! Members held against a model: random histories of what people do to an organization, its projects and each other, at the
//! same time on two servers over one database.
//!
//! What is asked is dealt to several tasks by a seed; what comes first is the machine's affair. The audit trail tells
//! afterwards, because each change is recorded in its own transaction under the organization's lock. Played in this order
//! through a model with rules of its own ([`model::State::decide`]), each change must have been allowed to who made it at
//! that moment, so nobody ever held a role that no authorized caller gave, and there was always an owner. Every other
//! answer must be what the model says in one of the states between the begin and the end of its call. In the end lists,
//! counts and details are what the model has, for everybody who may read them.
//!
//! Where they differ, the test prints the history; `TOLLKEEPER_TEST_SEED` asks for the same again, before the others.
//! `TOLLKEEPER_TEST_HISTORIES` sets how many there are on `SQLite`; 1,000 of them take four minutes of processor time.

mod checks;
mod history;
mod model;

use std::sync::Arc;

use self::checks::{Figures, compare, replay};
use self::history::{History, number_entries};
use crate::support::chance::{first_seed, number};
use crate::support::twin::Twin;
use crate::support::world::on_each_database_with;

/// Histories on `SQLite`. A call of PostgreSQL takes twice as long, so there a fifth of them.
const HISTORIES: u64 = 50;
const POSTGRES_HAS_ONE_IN: u64 = 5;
const STEPS: usize = 200;
const TASKS: usize = 4;

#[test]
fn members_are_what_the_model_says() {
    on_each_database_with(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world| {
        number_entries(&world).await;
        let twins = Twin::both_with_cheap_hashes(&world).await;
        let mut histories = number("TOLLKEEPER_TEST_HISTORIES").unwrap_or(HISTORIES);
        if world.app.db.is_postgres() {
            histories = histories.div_ceil(POSTGRES_HAS_ONE_IN);
        }
        let (begin, mut figures) = (first_seed(), Figures::default());
        let started = std::time::Instant::now();
        for number in 0..histories {
            let seed = begin.wrapping_add(number);
            let history = History::begin(&world, &twins, seed).await;
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
            "{}: {histories} histories, {calls} calls ({by_keys} by keys): {changes} changes, {refusals} refusals, \
             {raced} answers in a race; {deleted} organizations deleted; {reads} reads compared; {:?}",
            world.backend,
            started.elapsed()
        );
        assert_eq!(calls as u64, histories * STEPS as u64);
    });
}
