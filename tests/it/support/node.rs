//! Programs of others that only Node has: the official SDK of OpenAI for JavaScript. Tests that need one run where it is,
//! and say so where it isn't.

use std::path::PathBuf;
use std::process::Command;

use super::process::run_to_end;
use super::python::skip_for_want_of;

/// A command that starts a Node that finds this package, without this process's environment, so that no proxy comes
/// between. The package is in the folder that `TOLLKEEPER_TEST_NODE_MODULES` names. `None`, and a printed reason, when
/// there is none; a failure when `TOLLKEEPER_TEST_REQUIRE` asks for `node`.
pub fn node(package: &str, what: &str) -> Option<Command> {
    let modules = std::env::var_os("TOLLKEEPER_TEST_NODE_MODULES").map(PathBuf::from).unwrap_or_default();
    if Command::new("node").arg("--version").output().is_err() {
        skip_for_want_of("node", what, "`node` is not installed");
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
        skip_for_want_of("node", what, &why);
        return None;
    }
    Some(command())
}
