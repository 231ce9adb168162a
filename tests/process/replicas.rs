//! Replicas: mostly three processes with one database, and clients that use another replica for each request.
//! The replicas share their state, and nothing is spent, counted or done twice.

mod budgets;
mod gateway_spending;
mod jobs;
mod journey;
mod limits;
mod revocation;
mod slow_bodies;
mod spending;

use support::Database;
use support::chance::number;
use support::replicas::Replicas;
use support::world::Folder;

const REPLICAS: usize = 3;

/// Returns the number of repetitions of each test. An environment variable increases it.
fn trials() -> u64 {
    number("TOLLKEEPER_TEST_TRIALS").unwrap_or(1)
}

/// Runs a test on each database with three configured replicas and their folder.
fn run_on(database: Database, test: impl Fn(&str, Replicas, &Folder)) {
    database.run_processes(|url, folder| {
        let backend = if url.is_some() { "postgres" } else { "sqlite" };
        test(backend, Replicas::new(REPLICAS, url, folder).generous(folder), folder);
    });
}
