//! The pages in a real browser: `tests/browser/pages.py` drives it against a server started as by an
//! operator.

mod console;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::python;
use crate::support::world::Folder;

/// The server process; it is killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            let _ = self.0.wait();
        }
    }
}

/// Prints that something was skipped; fails if `TOLLKEEPER_TEST_REQUIRE` asks for `browser`.
fn skip(what: &str, why: &str) {
    python::skip_without("browser", what, why);
}

/// Returns a Python that can drive a Chromium. Returns `None`, and prints the reason, if something is missing.
fn browser(what: &str) -> Option<PathBuf> {
    let Some(python) = python::with("selenium") else {
        skip(what, "`python3` can't import `selenium`");
        return None;
    };
    for program in ["chromium", "chromedriver"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(what, "`chromium` and `chromedriver` are not both installed");
            return None;
        }
    }
    Some(python)
}

#[test]
fn pages_work_in_a_browser() {
    let Some(python) = browser("the pages in a browser") else { return };
    let folder = Folder::new();
    let ports: [TcpListener; 2] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [public, service] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
    drop(ports);
    let log = std::fs::File::create(folder.0.join("server.log")).unwrap();
    let server = Command::new(env!("CARGO_BIN_EXE_tollkeeper"))
        .current_dir(&folder.0)
        .env_clear()
        .envs([("TOLLKEEPER_LISTEN", &public), ("TOLLKEEPER_SERVICE_LISTEN", &service)])
        .envs([("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "30"), ("TOLLKEEPER_LOG__ACCESS", "false")])
        .stderr(log)
        .spawn()
        .unwrap();
    let server = Server(server);
    let output = Command::new(python)
        .arg("tests/browser/pages.py")
        .arg(format!("http://{public}"))
        .arg(folder.0.join("tollkeeper-data/mail"))
        .arg(folder.0.join("browser"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    drop(server);
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        std::fs::read_to_string(folder.0.join("server.log")).unwrap()
    );
}
