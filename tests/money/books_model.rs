//! Compares money with a model: random histories of an organization's balance on two servers with one
//! database, and the answers of every endpoint.
//!
//! A seed determines a history of reservations, captures, repeated and conflicting reports, late events,
//! corrections, releases, expiries, credits, payments, void invoices, changed prices, ends of months, and
//! days without activity. Each answer must equal the answer of books that are kept as plain lists
//! ([`books::Books`]). After each history the audit must pass, every figure of the API must equal the model's
//! to the last digit, and all documents together must charge the contract's prices ([`contract`]), in any
//! order of events.
//!
//! If they differ, the test prints the history. `TOLLKEEPER_TEST_SEED` runs that history first
//! ([`support::seeds`]).

mod books;
mod contract;
mod documents;
mod exports;
mod figures;
mod history;
mod lots;
mod operator;
mod prices;

use std::collections::BTreeMap;
use std::path::Path;

use self::history::{CATALOG, History};
use support::seeds::Seeds;
use support::world::Folder;
use support::{Database, on_each_database};

/// The number of histories in a complete run.
const HISTORIES_ON_SQLITE: u64 = 100;
const HISTORIES_ON_POSTGRES: u64 = 25;
const STEPS: usize = 100;

#[on_each_database]
fn money_matches_the_model(database: Database) {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    std::fs::write(&catalog, CATALOG).unwrap();
    let settings = [
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0.02"),
    ];
    database.block_on(play(database, &settings, &catalog));
}

/// Runs the histories. Each has its own database, because a history closes every month of every organization.
async fn play(database: Database, settings: &[(&str, &str)], catalog: &Path) {
    let (seeds, started) = (
        Seeds::of("books_model", database.choose(HISTORIES_ON_SQLITE, HISTORIES_ON_POSTGRES)),
        std::time::Instant::now(),
    );
    let mut tally = BTreeMap::new();
    for &seed in &seeds.seeds {
        std::fs::write(catalog, CATALOG).unwrap();
        let world = database.world(settings).await;
        let mut history = History::begin(&world, catalog, seed).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.check().await;
        for (what, times) in &history.tally {
            *tally.entry(*what).or_insert(0) += times;
        }
    }
    println!("{database:?}: {} histories of {STEPS} steps, {:?}: {tally:?}", seeds.len(), started.elapsed());
    let rare = [
        "bill",
        "cached",
        "parts",
        "parts taken back",
        "conditional price",
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
    assert!(missing.is_empty() || !seeds.is_complete, "never happened: {missing:?}");
}
