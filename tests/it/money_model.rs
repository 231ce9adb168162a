//! Compares money with a model: random histories of an organization's balance, on two servers over one
//! database, and the answers of every endpoint.
//!
//! A seed determines a history: reservations, captures, repeated and conflicting reports, late events,
//! corrections, releases, expiries, credit, payments, void invoices, changed prices, ends of months, days on
//! which nothing runs. Each answer must equal the one of books kept as plain lists ([`books::Books`]). After
//! each history the audit passes, every figure of the API equals the model's to the last digit, and all
//! documents together charge what the contract says ([`contract`]), in any order of events.
//!
//! On a difference the test prints the history; `TOLLKEEPER_TEST_SEED` repeats it before the others.
//! `TOLLKEEPER_TEST_HISTORIES` sets the number of histories on `SQLite`.

mod books;
mod contract;
mod documents;
mod exports;
mod figures;
mod history;
mod lots;
mod operator;

use std::collections::BTreeMap;
use std::path::Path;

use self::history::{CATALOG, History};
use crate::support::chance::{first_seed, number};
use crate::support::postgres::Cluster;
use crate::support::world::{Folder, World, runtime};

/// The number of histories on `SQLite`; PostgreSQL runs a fourth of them.
const HISTORIES: u64 = 100;
const POSTGRES_DIVISOR: u64 = 4;
const STEPS: usize = 100;

#[test]
fn money_matches_the_model() {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    std::fs::write(&catalog, CATALOG).unwrap();
    let settings = [
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0.02"),
    ];
    runtime().block_on(async {
        let histories = number("TOLLKEEPER_TEST_HISTORIES").unwrap_or(HISTORIES);
        play("sqlite", &settings, &catalog, histories).await;
        if Cluster::shared().is_some() {
            play("postgres", &settings, &catalog, histories.div_ceil(POSTGRES_DIVISOR)).await;
        }
    });
}

/// Runs the histories, each on its own database, because every history closes every month of every
/// organization.
async fn play(backend: &'static str, settings: &[(&str, &str)], catalog: &Path, histories: u64) {
    let (begin, started) = (first_seed(), std::time::Instant::now());
    let mut tally = BTreeMap::new();
    for number in 0..histories {
        std::fs::write(catalog, CATALOG).unwrap();
        let url = match Cluster::shared() {
            Some(cluster) if backend == "postgres" => Some(cluster.new_database().await),
            _ => None,
        };
        let world = World::new(backend, url, settings).await;
        let mut history = History::begin(&world, catalog, begin.wrapping_add(number)).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.check().await;
        for (what, times) in &history.tally {
            *tally.entry(*what).or_insert(0) += times;
        }
    }
    println!("{backend}: {histories} histories of {STEPS} steps, {:?}: {tally:?}", started.elapsed());
    let rare = [
        "bill",
        "cached",
        "late",
        "correction",
        "credit note",
        "dearer by a correction",
        "insufficient_quota",
        "expired credit",
        "paid by credit",
        "paid from outside",
        "void",
    ];
    let missing: Vec<_> = rare.iter().filter(|what| !tally.contains_key(**what)).collect();
    assert!(missing.is_empty() || histories < HISTORIES, "never happened: {missing:?}");
}
