//! Tests that run again with a pooler in front of every database.

use std::process::Command;

use crate::postgres::{Cluster, through_poolers};

/// Runs tests of this binary again with a pooler that shares its sessions by transaction: those whose names
/// contain one of `stories`.
///
/// # Panics
/// If one of them fails, or no test has the name of a story.
pub fn run_through_a_pooler(stories: &[&str]) {
    let Some(cluster) = Cluster::shared() else { return };
    if through_poolers().is_some() || cluster.pooler("transaction", 4).is_none() {
        return;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.env("TOLLKEEPER_TEST_POOLER", "4").args(stories).args(["--test-threads", "2"]);
    let ended = again.output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{output}");
    for story in stories {
        // Tests on SQLite pass without having run.
        let is_passed =
            |line: &str| line.contains(story) && line.contains("::postgres ") && line.ends_with("... ok");
        assert!(output.lines().any(is_passed), "no test passed that has `{story}` in its name:\n{output}");
    }
}
