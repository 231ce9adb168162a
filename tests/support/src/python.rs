//! External programs for Python: a validator of OpenAPI, OpenAI's SDK. Tests that need one are skipped with a
//! message where it is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{run_to_end, skipped};

/// Returns a Python (`TOLLKEEPER_TEST_PYTHON`, or `python3`) that can import this module.
pub fn with(module: &str) -> Option<PathBuf> {
    let interpreter = std::env::var_os("TOLLKEEPER_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let there = command(Path::new(&interpreter)).arg("--version").output();
    let mut probe = command(Path::new(&interpreter));
    probe.args(["-c", &format!("import {module}")]);
    let usable = there.is_ok_and(|output| output.status.success()) && run_to_end(probe).code == Some(0);
    usable.then(|| PathBuf::from(interpreter))
}

/// Returns a command that starts a Python that can import this module, without this process's environment, so
/// that no proxy is used. Without such a Python it prints the reason and returns `None`; it fails if
/// `TOLLKEEPER_TEST_REQUIRE` asks for `python`.
pub fn python(module: &str, package: &str, what: &str) -> Option<Command> {
    let Some(interpreter) = with(module) else {
        skip(
            what,
            &format!(
                "no Python that can import {module}: `pip install {package}`, in a virtual environment \
             whose interpreter TOLLKEEPER_TEST_PYTHON names"
            ),
        );
        return None;
    };
    Some(command(&interpreter))
}

/// Prints that something was skipped; fails if `TOLLKEEPER_TEST_REQUIRE` asks for `python`.
pub fn skip(what: &str, why: &str) {
    skip_without("python", what, why);
}

/// Like [`skip`], for another word of `TOLLKEEPER_TEST_REQUIRE`.
pub fn skip_without(word: &str, what: &str, why: &str) {
    let required = std::env::var("TOLLKEEPER_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.contains(word), "TOLLKEEPER_TEST_REQUIRE asks for {word}: {what}: {why}");
    skipped(what, why);
}

/// Returns a command that starts this Python without this process's environment.
pub fn command(interpreter: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
