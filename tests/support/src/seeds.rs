//! The number of random sequences that a model runs, and their seeds.
//!
//! A test run first uses every seed that ever failed (`tests/support/seeds.txt`), and then a tenth of the
//! sequences, with seeds that depend on the commit. `TOLLKEEPER_TEST_SEQUENCES=all` runs all sequences, as
//! `.ci/nightly` does, and a number runs that many. `TOLLKEEPER_TEST_SEED` sets the first seed, to reproduce
//! a failure.

use std::process::Command;

use crate::chance::number;

/// Seeds that failed once: the model, the seed, and the reason.
const FAILED_ONCE: &str = include_str!("../seeds.txt");

/// The seeds of one test.
pub struct Seeds {
    pub seeds: Vec<u64>,
    /// Whether these are all sequences. If so, a test can expect that rare events have happened.
    pub is_complete: bool,
}

impl Seeds {
    /// Returns the seeds of a model that has `all` sequences in a complete run.
    pub fn of(model: &str, all: u64) -> Self {
        let wanted = match std::env::var("TOLLKEEPER_TEST_SEQUENCES") {
            Ok(word) if word == "all" => all,
            Ok(word) => word.parse().expect("TOLLKEEPER_TEST_SEQUENCES is `all` or a whole number"),
            Err(_) => all.div_ceil(10),
        };
        let first = number("TOLLKEEPER_TEST_SEED").unwrap_or_else(seed_of_commit);
        let mut seeds: Vec<u64> = failed_once(model).collect();
        seeds.extend((0..wanted).map(|number| first.wrapping_add(number)));
        Self { seeds, is_complete: wanted >= all }
    }

    pub fn len(&self) -> u64 {
        self.seeds.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }
}

/// Returns the seeds in the file for a model.
fn failed_once(model: &str) -> impl Iterator<Item = u64> {
    let lines = FAILED_ONCE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.filter_map(move |line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(model))
            .then(|| words.next().and_then(|seed| seed.parse().ok()).expect("a seed"))
    })
}

/// Returns a number that depends on the commit: the first digits of its hash, or 1 outside a repository.
fn seed_of_commit() -> u64 {
    let output = Command::new("git").args(["rev-parse", "--short=8", "HEAD"]).output();
    let hash = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let hash = hash.and_then(|hash| String::from_utf8(hash).ok());
    hash.and_then(|hash| u64::from_str_radix(hash.trim().get(..8)?, 16).ok()).unwrap_or(1)
}
