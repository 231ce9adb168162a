//! A real llama.cpp process with a small model of random weights (`tests/llamacpp`).

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Stdio};

use serde_json::Value;

use super::http::Answer;
use super::process::{Wire, collect, run_to_end, until};
use super::python;
use super::world::Folder;

/// A running llama.cpp process.
pub struct LlamaCpp {
    address: SocketAddr,
    process: Child,
    stdin: Option<ChildStdin>,
    _folder: Folder,
}

impl LlamaCpp {
    /// Creates a model with this many layers, and serves it. Each layer makes the model slower. If a Python
    /// package is missing, prints the reason and returns `None`, or fails if `TOLLKEEPER_TEST_REQUIRE`
    /// contains `llamacpp`.
    pub fn start(layers: u32, what: &str) -> Option<Self> {
        Self::start_with(&[], layers, what)
    }

    /// Like [`start`](Self::start), but serves embeddings only.
    pub fn start_embeddings(what: &str) -> Option<Self> {
        Self::start_with(&["--embeddings"], 1, what)
    }

    fn start_with(options: &[&str], layers: u32, what: &str) -> Option<Self> {
        let Some(interpreter) = python::with("gguf, xllamacpp") else {
            let why = "no Python that can import gguf and xllamacpp: `pip install gguf xllamacpp`";
            python::skip_without("llamacpp", what, why);
            return None;
        };
        let script = |name: &str| {
            let mut command = python::command(&interpreter);
            command.arg(format!("tests/llamacpp/{name}"));
            command
        };
        let folder = Folder::new();
        let model = folder.0.join("tiny.gguf");
        let mut maker = script("make_gguf.py");
        maker.arg(&model).arg(layers.to_string());
        let made = run_to_end(maker);
        assert_eq!(made.code, Some(0), "{}", made.log);
        let mut server = script("serve.py");
        server.arg(&model).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = server.spawn().unwrap();
        let stdin = process.stdin.take();
        let log = collect(process.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("llama.cpp says {line:?}:\n{}", log.text()));
        Some(Self { address, process, stdin, _folder: folder })
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Sends a chat completion request directly to llama.cpp, without the gateway.
    pub fn chat(&self, body: &Value) -> Answer {
        self.ask("/v1/chat/completions", body)
    }

    /// Sends a request directly to llama.cpp, without the gateway.
    pub fn ask(&self, path: &str, body: &Value) -> Answer {
        Wire::new(self.address, "POST", path).json(body).send()
    }

    /// Waits until no request is being processed, and returns the number of tokens generated so far.
    pub fn generated(&self) -> i64 {
        assert!(until(|| self.metric("requests_processing") == 0), "it goes on");
        self.metric("tokens_predicted_total")
    }

    fn metric(&self, name: &str) -> i64 {
        let text = Wire::new(self.address, "GET", "/metrics").send().text;
        let prefix = format!("llamacpp:{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    }
}

impl Drop for LlamaCpp {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.process.wait().unwrap();
    }
}
