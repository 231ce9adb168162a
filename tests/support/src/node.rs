//! External programs for Node, such as OpenAI's SDK for JavaScript. Where such a program is missing, the
//! tests that need it are skipped with a message.

use std::path::PathBuf;
use std::process::Command;

use super::process::run_to_end;
use super::python::skip_without;

/// Returns a command that starts Node with this package. The command doesn't inherit the environment of this
/// process, so that no proxy is used. The package is looked up in the folder `TOLLKEEPER_TEST_NODE_MODULES`.
/// If it is missing, prints the reason and returns `None`, or fails if `TOLLKEEPER_TEST_REQUIRE` contains
/// `node`.
pub fn node(package: &str, what: &str) -> Option<Command> {
    let modules = std::env::var_os("TOLLKEEPER_TEST_NODE_MODULES").map(PathBuf::from).unwrap_or_default();
    if Command::new("node").arg("--version").output().is_err() {
        skip_without("node", what, "`node` is not installed");
        return None;
    }
    let command = || {
        let mut command = Command::new("node");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("NODE_PATH", &modules);
        command
    };
    let mut probe = command();
    probe.args(["-e", &format!("require('{package}')")]);
    if run_to_end(probe).code != Some(0) {
        let why = format!(
            "`node` can't load {package}: `npm install --prefix FOLDER {package}`, and name FOLDER/node_modules in \
             TOLLKEEPER_TEST_NODE_MODULES"
        );
        skip_without("node", what, &why);
        return None;
    }
    Some(command())
}
