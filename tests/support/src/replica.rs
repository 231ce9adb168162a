//! The binary as a process, for tests that need another environment or a crash.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value;

use super::smtp::until;

/// A running `tollkeeper serve`.
pub struct Process {
    child: Child,
    public: SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Starts the process on unused ports and waits until it is ready.
    pub async fn start(data_dir: &Path, environment: &[(&str, &str)]) -> Self {
        let ports: [TcpListener; 2] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [public, service] = ports.each_ref().map(|port| port.local_addr().unwrap());
        drop(ports);
        let log = data_dir.with_extension("log");
        let child = Command::new(super::process::binary())
            .current_dir(data_dir)
            .env_clear()
            .env("TOLLKEEPER_DATA_DIR", data_dir)
            .envs([
                ("TOLLKEEPER_LISTEN", public.to_string()),
                ("TOLLKEEPER_SERVICE_LISTEN", service.to_string()),
            ])
            .env(super::world::CREDIT_LIMIT, super::world::FIRST_CREDIT)
            .env("TOLLKEEPER_LOG__LEVEL", "trace")
            .envs(environment.iter().copied())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let process = Self { child, public, log };
        until("readiness", || process.request("GET", "/readyz", "").filter(|answer| answer.0 == 200)).await;
        process
    }

    /// Sends a JSON body. Returns the status and the body of the response.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.request("POST", path, &body.to_string()).unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.public).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: tollkeeper\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Returns everything that the process has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Kills the process, like a power failure.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_file(&self.log).ok();
    }
}
