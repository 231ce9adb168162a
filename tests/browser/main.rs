//! Pages in a real browser. They are served by a server that is started as an operator starts it.
//!
//! Python programs drive the browser: `pages.py` tests the pages that e-mails link to, `readme.py` follows
//! the steps of the README, and `console/` tests the console. A test belongs here if only a browser can find
//! the mistakes that the test looks for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::let_underscore_must_use,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a test that can't go on panics; it reads the machine's clock and the drivers directly to check on us"
)]

mod console;
mod readme;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::python;
use support::world::Folder;

/// A server, started as an operator starts it, with its own folder. It is killed at the end of the test.
struct Server {
    process: Child,
    folder: Folder,
    url: String,
}

impl Server {
    fn start() -> Self {
        let folder = Folder::new();
        let ports: [TcpListener; 2] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [public, service] = ports.each_ref().map(|port| port.local_addr().unwrap().to_string());
        drop(ports);
        let log = std::fs::File::create(folder.0.join("server.log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tollkeeper"))
            .current_dir(&folder.0)
            .env_clear()
            .envs([("TOLLKEEPER_LISTEN", &public), ("TOLLKEEPER_SERVICE_LISTEN", &service)])
            .envs([("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "30"), ("TOLLKEEPER_LOG__ACCESS", "false")])
            .stderr(log)
            .spawn()
            .unwrap();
        let url = format!("http://{public}");
        while std::net::TcpStream::connect(&public).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { process, folder, url }
    }

    /// Asserts that a program that used this server succeeded.
    fn check(&self, output: &Output) {
        assert!(
            output.status.success(),
            "{}\n{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            std::fs::read_to_string(self.folder.0.join("server.log")).unwrap()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.kill().is_ok() {
            let _ = self.process.wait();
        }
    }
}

/// Prints that a test is skipped. Fails if `TOLLKEEPER_TEST_REQUIRE` contains `browser`.
fn skip(what: &str, why: &str) {
    python::skip_without("browser", what, why);
}

/// Returns a Python interpreter that can drive Chromium. If something is missing, prints the reason and
/// returns `None`.
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
    let server = Server::start();
    let output = Command::new(python)
        .arg("tests/browser/pages.py")
        .arg(&server.url)
        .arg(server.folder.0.join("tollkeeper-data/mail"))
        .arg(server.folder.0.join("browser"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    server.check(&output);
}
