//! Money held against a model: random histories of what happens to an organization's balance, on two servers over one
//! database, and what every endpoint then says.
//!
//! A history is dealt by a seed: reservations, captures, repeated and contradicting reports, late events, corrections,
//! releases, expiries, credit, payments, void invoices, changed prices, ends of months, days on which nothing runs. Each
//! answer must be what books kept as plain lists say ([`books::Books`]); after each history the audit finds nothing, every
//! figure that the interface gives is the books' own, to the last digit, and all documents together charge what the contract
//! says ([`contract`]), whatever the order of things was.
//!
//! Where they differ, the test prints the history; `TOLLKEEPER_TEST_SEED` asks for the same again, before the others.
//! `TOLLKEEPER_TEST_HISTORIES` sets how many there are on `SQLite`.

mod books;
mod contract;
mod documents;
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

/// Histories on `SQLite`; on PostgreSQL a fourth of them.
const HISTORIES: u64 = 100;
const POSTGRES_HAS_ONE_IN: u64 = 4;
const STEPS: usize = 100;

#[test]
fn money_is_what_the_model_says() {
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
            play("postgres", &settings, &catalog, histories.div_ceil(POSTGRES_HAS_ONE_IN)).await;
        }
    });
}

/// Each history has a database of its own: every month of every organization in one is closed again and again.
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
