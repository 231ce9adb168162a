//! The console in a browser. `tests/browser/console/` starts a server, fills it with data, and looks at every
//! page in every state.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tollkeeper::console::routes;

use super::{browser, skip};
use support::faketime::FakeClock;
use support::python;
use support::world::Folder;

/// A folder below `target/tmp`. It gets pictures of every state at 320 px in light mode, and at 1280 px in
/// dark mode.
const PICTURES: &str = "console-pictures";

#[test]
fn console_works_in_a_browser() {
    let what = "the console in a browser";
    let Some(python) = browser(what) else { return };
    let modules = std::env::var_os("TOLLKEEPER_TEST_NODE_MODULES").map(PathBuf::from).unwrap_or_default();
    if !modules.join("axe-core/axe.min.js").exists() {
        return skip(
            what,
            "no axe-core: `npm install --prefix FOLDER axe-core@^4`, and name FOLDER/node_modules in \
             TOLLKEEPER_TEST_NODE_MODULES",
        );
    }
    if !modules.join("oidc-provider/package.json").exists() {
        return skip(
            what,
            "no oidc-provider: `npm install --prefix FOLDER oidc-provider`, and name FOLDER/node_modules in \
             TOLLKEEPER_TEST_NODE_MODULES",
        );
    }
    let folder = Folder::new();
    // Invoices exist for past months only.
    if FakeClock::new(&folder.0, what).is_none() {
        return;
    }
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PICTURES);
    let _ = std::fs::remove_dir_all(&pictures);
    std::fs::create_dir_all(&pictures).unwrap();
    let mut table = String::new();
    for route in routes::table() {
        writeln!(table, "{} {}", route.method, route.path).unwrap();
    }
    let mut child = python::command(&python)
        .arg("tests/browser/console/main.py")
        .arg(env!("CARGO_BIN_EXE_tollkeeper"))
        .arg(folder.0.join("server"))
        .arg(modules)
        .env("TOLLKEEPER_TEST_SCREENSHOTS", &pictures)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}\n{}\nThe pictures are in {}",
        String::from_utf8_lossy(&output.stderr),
        std::fs::read_to_string(folder.0.join("server/server.log")).unwrap_or_default(),
        pictures.display()
    );
}
