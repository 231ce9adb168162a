//! Compares budgets with a model, in random histories of two organizations on two servers with one database.
//!
//! The model keeps lists of the accepted events, and adds up each sum anew as the contract describes
//! (docs/contract/billing.md#budgets). After every step each budget's figures must equal the model's to the
//! last digit, each decision must match them, and exactly the thresholds that were reached must be recorded
//! and announced by one e-mail.
//!
//! If they differ, the test prints the history. `TOLLKEEPER_TEST_SEED` runs that history first
//! ([`support::seeds`]).

mod model;
mod steps;

use std::collections::BTreeMap;

use self::steps::History;
use support::seeds::Seeds;
use support::world::Folder;
use support::{Database, on_each_database};

/// The number of histories in a complete run.
const HISTORIES_ON_SQLITE: u64 = 16;
const HISTORIES_ON_POSTGRES: u64 = 4;
const STEPS: usize = 120;

/// Prices with fractions of a nano, and limits that allow many concurrent calls.
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

#[on_each_database]
fn budgets_match_the_model(database: Database) {
    let folder = Folder::new();
    let catalog = folder.0.join("catalog.toml");
    std::fs::write(&catalog, CATALOG).unwrap();
    let settings = [
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000"),
        ("TOLLKEEPER_BILLING__FURTHER_CREDIT_LIMIT", "1000000"),
    ];
    database.block_on(play(database, &settings));
}

/// Runs the histories, each on its own database.
async fn play(database: Database, settings: &[(&str, &str)]) {
    let seeds = Seeds::of("budgets_model", database.choose(HISTORIES_ON_SQLITE, HISTORIES_ON_POSTGRES));
    let started = std::time::Instant::now();
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    for &seed in &seeds.seeds {
        let world = database.world(settings).await;
        let mut history = History::begin(&world, seed).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.finish().await;
        for (what, times) in &history.tally {
            *tally.entry(*what).or_default() += times;
        }
    }
    println!("{database:?}: {} histories of {STEPS} steps, {:?}: {tally:?}", seeds.len(), started.elapsed());
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
    assert!(missing.is_empty() || !seeds.is_complete, "never happened: {missing:?}");
}
