//! The steps of the README in a browser. `tests/browser/readme.py` follows them literally.

use std::process::{Command, Stdio};

use super::{Server, browser};

#[test]
fn steps_of_the_readme_work_in_a_browser() {
    let Some(python) = browser("the README's steps in a browser") else { return };
    let server = Server::start();
    let output = Command::new(python)
        .arg("tests/browser/readme.py")
        .arg(&server.url)
        .arg(std::fs::canonicalize("README.md").unwrap())
        .arg(&server.folder.0)
        .arg(server.folder.0.join("browser"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    server.check(&output);
}
