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
//! Programs of others that only Python has: a validator of OpenAPI, the official SDK of OpenAI.
use super::process::{run_to_end, skipped};
/// A command that starts Python (`TOLLKEEPER_TEST_PYTHON`, or `python3`) without this process's environment, so that no
/// proxy comes between. `None`, and a printed reason, when it can't import the module; a failure when
/// `TOLLKEEPER_TEST_REQUIRE` asks for `python`.
pub fn python(module: &str, package: &str, what: &str) -> Option<Command> {
    let interpreter = std::env::var("TOLLKEEPER_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let command = || {
        let mut command = Command::new(&interpreter);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let there = command().arg("--version").output().is_ok_and(|output| output.status.success());
    let mut probe = command();
    probe.args(["-c", &format!("import {module}")]);
    if there && run_to_end(probe).code == Some(0) {
        return Some(command());
    }
    let why = format!(
        "{interpreter} can't import {module}; `pip install {package}`, in a virtual environment named by \
         TOLLKEEPER_TEST_PYTHON"
    assert!(!required.contains("python"), "TOLLKEEPER_TEST_REQUIRE asks for python: {what}: {why}");
    skipped(what, &why);
    None
}
