//! External programs for Python, such as a validator for OpenAPI and OpenAI's SDK. Where such a program is
//! missing, the tests that need it are skipped with a message.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{run_to_end, skipped};

/// Returns a Python interpreter (`TOLLKEEPER_TEST_PYTHON`, or `python3`) that can import this module.
pub fn with(module: &str) -> Option<PathBuf> {
    let interpreter = std::env::var_os("TOLLKEEPER_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let there = command(Path::new(&interpreter)).arg("--version").output();
    let mut probe = command(Path::new(&interpreter));
    probe.args(["-c", &format!("import {module}")]);
    let usable = there.is_ok_and(|output| output.status.success()) && run_to_end(probe).code == Some(0);
    usable.then(|| PathBuf::from(interpreter))
}

/// Returns a command that starts a Python interpreter that can import this module. The command doesn't
/// inherit the environment of this process, so that no proxy is used. If the module is missing, prints the
/// reason and returns `None`, or fails if `TOLLKEEPER_TEST_REQUIRE` contains `python`.
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

/// Prints that a test is skipped. Fails if `TOLLKEEPER_TEST_REQUIRE` contains `python`.
pub fn skip(what: &str, why: &str) {
    skip_without("python", what, why);
}

/// Like [`skip`], with another word in `TOLLKEEPER_TEST_REQUIRE`.
pub fn skip_without(word: &str, what: &str, why: &str) {
    let required = std::env::var("TOLLKEEPER_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.contains(word), "TOLLKEEPER_TEST_REQUIRE asks for {word}: {what}: {why}");
    skipped(what, why);
}

/// Returns a command that starts this interpreter without the environment of this process.
pub fn command(interpreter: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
