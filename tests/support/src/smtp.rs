//! A real mail server, `tests/smtp/server.py`, as a process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::python;
use super::world::Folder;

/// A running mail server.
pub struct MailServer {
    pub port: u16,
    folder: Folder,
    process: Child,
    stdin: Option<ChildStdin>,
}

/// Returns the Python interpreter that runs the server. If a module is missing, prints the reason and returns
/// `None`.
pub fn python(what: &str) -> Option<PathBuf> {
    let python = python::with("aiosmtpd");
    if python.is_none() {
        python::skip(what, "`python3` can't import `aiosmtpd`");
    }
    if Command::new("openssl").arg("version").output().is_err() {
        python::skip(what, "`openssl` is not installed");
        return None;
    }
    python
}

impl MailServer {
    pub fn start(python: &Path, flags: &[&str]) -> Self {
        let folder = Folder::new();
        let mut process = Command::new(python)
            .arg("tests/smtp/server.py")
            .args(["--folder", folder.0.to_str().unwrap()])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port =
            line.trim().parse().unwrap_or_else(|_| panic!("unexpected output of the mail server: {line:?}"));
        Self { port, folder, process, stdin }
    }

    /// Returns the URL of the server without TLS.
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}?tls=none", self.port)
    }

    /// Returns the received e-mails.
    pub fn mails(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(&self.folder.0).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
        paths.sort();
        paths.iter().map(|p| serde_json::from_str(&std::fs::read_to_string(p).unwrap()).unwrap()).collect()
    }

    /// Returns the received e-mails to one address.
    pub fn mails_to(&self, address: &str) -> Vec<Value> {
        self.mails().into_iter().filter(|mail| mail["to"][0] == address).collect()
    }

    /// Returns all commands that the server has received.
    pub fn transcript(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("transcript.log")).unwrap_or_default()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.process.wait().unwrap();
    }
}

/// A port of this machine at which nothing listens. It is reserved while this value exists.
pub struct UnusedPort(tokio::net::TcpSocket);

impl UnusedPort {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
}

/// Returns the token in an e-mail.
pub fn token(mail: &Value) -> String {
    let is_token = |line: &&str| {
        line.len() == 43 && line.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let content = mail["content"].as_str().unwrap();
    content.lines().find(is_token).unwrap_or_else(|| panic!("no token in {content}")).to_owned()
}

/// Polls every few milliseconds, for at most 30 seconds.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_500 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("timed out: {what}");
}

/// Creates a certificate authority, and a certificate for `localhost` and `127.0.0.1`. Writes `ca.pem`,
/// `server.pem` and `server.key`.
pub fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for line in [
        format!("req -x509 {key} -subj /CN=CA -days 2 -keyout ca.key -out ca.pem"),
        format!("req {key} -subj /CN=localhost -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem"
            .to_owned(),
    ] {
        let output = Command::new("openssl").args(line.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
