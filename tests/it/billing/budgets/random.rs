//! Compares budgets with a model: random histories of two organizations on two servers over one database.
//!
//! The model keeps lists of what was accepted, and adds up each sum anew by the words of the contract
//! (docs/contract/billing.md#budgets). After every step each budget's figures equal the model's to the last digit, each
//! decision is the one that they allow, and exactly the thresholds that were reached are recorded, and mailed once.
//!
//! On a difference the test prints the history; `TOLLKEEPER_TEST_SEED` repeats it before the others.
//! `TOLLKEEPER_TEST_HISTORIES` sets the number of histories on `SQLite`.

mod model;
mod steps;

use std::collections::BTreeMap;

use self::steps::History;
use crate::support::chance::{first_seed, number};
use crate::support::postgres::Cluster;
use crate::support::world::{Folder, World, runtime};

/// The number of histories on `SQLite`; PostgreSQL runs a fourth of them.
const HISTORIES: u64 = 16;
const POSTGRES_DIVISOR: u64 = 4;
const STEPS: usize = 120;

/// Prices with fractions of a nano, and room for many calls at once.
const CATALOG: &str = r#"
[[models]]
id = "talk"
kind = "chat"
description = "Talk"
owned_by = "test"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 1000000
max_concurrent_requests = 100000
prices = [
  { effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002000001", completion_tokens = "0.000006000333" },
]
"#;

#[test]
fn budgets_match_the_model() {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    std::fs::write(&catalog, CATALOG).unwrap();
    let settings = [
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000"),
        ("TOLLKEEPER_BILLING__FURTHER_CREDIT_LIMIT", "1000000"),
    ];
    runtime().block_on(async {
        let histories = number("TOLLKEEPER_TEST_HISTORIES").unwrap_or(HISTORIES);
        play("sqlite", &settings, histories).await;
        if Cluster::shared().is_some() {
            play("postgres", &settings, histories.div_ceil(POSTGRES_DIVISOR)).await;
        }
    });
}

/// Runs the histories, each on its own database.
async fn play(backend: &'static str, settings: &[(&str, &str)], histories: u64) {
    let (begin, started) = (first_seed(), std::time::Instant::now());
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    for number in 0..histories {
        let url = match Cluster::shared() {
            Some(cluster) if backend == "postgres" => Some(cluster.new_database().await),
            _ => None,
        };
        let world = World::new(backend, url, settings).await;
        let mut history = History::begin(&world, begin.wrapping_add(number)).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.finish().await;
        for (what, times) in &history.tally {
            *tally.entry(*what).or_default() += times;
        }
    }
    println!("{backend}: {histories} histories of {STEPS} steps, {:?}: {tally:?}", started.elapsed());
    let rare = [
        "allowed",
        "refused",
        "refused by several",
        "captured for more",
        "late in an earlier period",
        "credit note",
        "threshold",
        "threshold by a change",
        "expired",
    ];
    let missing: Vec<_> = rare.iter().filter(|what| !tally.contains_key(**what)).collect();
    assert!(missing.is_empty() || histories < HISTORIES, "never happened: {missing:?}");
}
