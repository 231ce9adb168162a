//! Programs of others that only Python has: a validator of OpenAPI, the official SDK of OpenAI. Tests that need one run
//! where it is, and say so where it isn't.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{run_to_end, skipped};

/// A Python (`TOLLKEEPER_TEST_PYTHON`, or `python3`) that can import this module.
pub fn with(module: &str) -> Option<PathBuf> {
    let interpreter = std::env::var_os("TOLLKEEPER_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let there = command(Path::new(&interpreter)).arg("--version").output();
    let mut probe = command(Path::new(&interpreter));
    probe.args(["-c", &format!("import {module}")]);
    let usable = there.is_ok_and(|output| output.status.success()) && run_to_end(probe).code == Some(0);
    usable.then(|| PathBuf::from(interpreter))
}

/// A command that starts a Python that can import this module, without this process's environment, so that no proxy comes
/// between. `None`, and a printed reason, when there is none; a failure when `TOLLKEEPER_TEST_REQUIRE` asks for `python`.
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

/// Says that something was skipped; a failure when `TOLLKEEPER_TEST_REQUIRE` asks for `python`.
pub fn skip(what: &str, why: &str) {
    skip_for_want_of("python", what, why);
}

/// The same for another word of `TOLLKEEPER_TEST_REQUIRE`.
pub fn skip_for_want_of(word: &str, what: &str, why: &str) {
    let required = std::env::var("TOLLKEEPER_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.contains(word), "TOLLKEEPER_TEST_REQUIRE asks for {word}: {what}: {why}");
    skipped(what, why);
}

fn command(interpreter: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
