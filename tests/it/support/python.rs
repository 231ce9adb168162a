//! Tests that need other people's programs: they run where those are, and say so where they aren't.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A Python that can import this module: `TOLLKEEPER_TEST_PYTHON`, or `python3`.
pub fn with(module: &str) -> Option<PathBuf> {
    let python =
        std::env::var_os("TOLLKEEPER_TEST_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let output = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    output.is_ok_and(|output| output.status.success()).then_some(python)
}

/// Says, uncaptured, that something was skipped; a failure when `TOLLKEEPER_TEST_REQUIRE` names `python`.
pub fn skip(what: &str, why: &str) {
    let required = std::env::var("TOLLKEEPER_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == "python"),
        "{what}: {why}, and TOLLKEEPER_TEST_REQUIRE wants it"
    );
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}: {why}\n");
}
