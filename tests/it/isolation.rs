//! Three replicas over one database, each a process, and clients that never come back to the one that answered last: what one
//! replica is told holds for all of them, and nothing is spent, counted or done twice.

mod jobs;
mod journey;
mod limits;
mod revocation;
mod slow_bodies;
mod spending;

use crate::support::chance::number;
use crate::support::process::on_each_database_url;
use crate::support::replicas::Replicas;
use crate::support::world::Folder;

/// How many replicas.
const REPLICAS: usize = 3;

/// How often each test does what it tests: few in the suite, many by hand.
fn trials() -> u64 {
    number("TOLLKEEPER_TEST_TRIALS").unwrap_or(1)
}

/// Runs a test with three replicas to be started, on each database: the word for it, and the folder of all.
fn on_each(test: impl Fn(&str, Replicas, &Folder)) {
    on_each_database_url(|url, folder| {
        let backend = if url.is_some() { "postgres" } else { "sqlite" };
        test(backend, Replicas::new(REPLICAS, url, folder).generous(folder), folder);
    });
}
