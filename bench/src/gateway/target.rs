//! The measured programs, each on the servers' core and in front of the same upstream.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::line::Line;
use super::proxy;
use super::stub::Form;
use crate::servers::{Cores, PORT_VARIABLE, Server, free_address};
use crate::{client, process};

/// Maximum time until a peer responds.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const CHAT_PATH: &str = "/v1/chat/completions";

/// Runs a peer in a separate process group, which is killed when the pipe from this program closes.
const KEEPER: &str = r#"trap : TERM
"$@" </dev/null &
read -r _
kill -TERM 0
sleep 0.5
kill -KILL 0"#;

/// A program, and how to call it.
pub struct Target {
    pub name: String,
    pub address: SocketAddr,
    path: String,
    model: String,
    headers: Vec<String>,
    process: Process,
}

enum Process {
    Server(Server),
    Peer(Peer),
    /// The process belongs to another target.
    Others,
}

/// A process group, which is killed when this is dropped.
struct Peer {
    keeper: Child,
    commands: Option<ChildStdin>,
    /// Kept open, because a program that writes to a closed pipe would exit.
    output: BufReader<std::process::ChildStdout>,
}

impl Target {
    /// Starts the bare proxy.
    pub async fn bare(cores: Cores, upstream: SocketAddr) -> Result<Self, String> {
        let address = free_address()?;
        let this = std::env::current_exe()
            .map_err(|error| format!("can't find the path of this program: {error}"))?;
        let mut command = cores.of_servers(&this);
        command
            .arg("proxy")
            .env(PORT_VARIABLE, address.port().to_string())
            .env(proxy::UPSTREAM_VARIABLE, upstream.to_string());
        let server = Server::spawn(&mut command)?;
        client::wait_for(address, "/v1/models").await?;
        Ok(Self {
            name: "bare proxy".to_owned(),
            address,
            path: CHAT_PATH.to_owned(),
            model: "stub-1".to_owned(),
            headers: Vec::new(),
            process: Process::Server(server),
        })
    }

    /// Returns a running service as a target.
    pub fn tollkeeper(name: String, server: Server, address: SocketAddr, key: &str) -> Self {
        Self {
            name,
            address,
            path: CHAT_PATH.to_owned(),
            model: "svc-1".to_owned(),
            headers: vec![format!("authorization: Bearer {key}")],
            process: Process::Server(server),
        }
    }

    /// Returns the same service, called with another key and model.
    pub fn of_another(&self, key: &str, model: &str) -> Self {
        Self {
            name: self.name.clone(),
            address: self.address,
            path: self.path.clone(),
            model: model.to_owned(),
            headers: vec![format!("authorization: Bearer {key}")],
            process: Process::Others,
        }
    }

    /// Starts a peer: `script PORT URL` serves on this port and calls the upstream at this URL. Its output
    /// describes how to call it, in lines of the form `path PATH`, `model NAME`, `header NAME: VALUE`, and
    /// `port PORT`, and finally `serve`.
    pub async fn peer(cores: Cores, script: &Path, upstream: SocketAddr) -> Result<Self, String> {
        let mut address = free_address()?;
        let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = cores.of_servers("sh".as_ref());
        command.args(["-c", KEEPER, "keeper"]).arg(script);
        command.args([address.port().to_string(), format!("http://{upstream}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        let mut keeper = command.spawn().map_err(|error| format!("{}: {error}", script.display()))?;
        let (commands, output) = (keeper.stdin.take(), keeper.stdout.take());
        let output = BufReader::new(output.ok_or("a peer has no output")?);
        let mut peer = Peer { keeper, commands, output };
        let (mut path, mut model) = (CHAT_PATH.to_owned(), "stub-1".to_owned());
        let mut headers = vec!["authorization: Bearer none".to_owned()];
        loop {
            let mut line = String::new();
            peer.output.read_line(&mut line).map_err(|error| error.to_string())?;
            match line.trim_end().split_once(' ') {
                Some(("path", text)) => path = text.to_owned(),
                Some(("model", text)) => model = text.to_owned(),
                Some(("header", text)) => headers.push(text.to_owned()),
                Some(("port", text)) => {
                    let port = text.parse().map_err(|_| format!("{name}: {line}"))?;
                    address = (Ipv4Addr::LOCALHOST, port).into();
                }
                _ if line.trim_end() == "serve" => break,
                _ => return Err(format!("unexpected output of {name}: {line:?}")),
            }
        }
        let target = Self { name, address, path, model, headers, process: Process::Peer(peer) };
        target.wait().await?;
        Ok(target)
    }

    /// Waits until the program responds to a call.
    async fn wait(&self) -> Result<(), String> {
        let (begin, request) = (Instant::now(), self.request(Form::Plain));
        loop {
            let answered = async { Line::open(self.address).await?.call(&request).await };
            match answered.await {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > START_TIMEOUT => {
                    return Err(format!("{} did not start: {error}", self.name));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Returns the request for an answer of this form.
    pub fn request(&self, form: Form) -> Vec<u8> {
        self.padded_request(form, 0)
    }

    /// Returns the same request with an additional member of `padding` bytes, which no upstream reads.
    pub fn padded_request(&self, form: Form, padding: usize) -> Vec<u8> {
        let prompt = format!("{}: tell me in a few words why the sky is blue, and the sea too.", form.word());
        let mut body = json!({"model": self.model, "max_tokens": 64, "temperature": 0.7, "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": prompt},
        ]});
        if let Some(fields) = body.as_object_mut().filter(|_| form.is_stream()) {
            fields.insert("stream".to_owned(), json!(true));
            fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        if let Some(fields) = body.as_object_mut().filter(|_| padding > 0) {
            fields
                .insert("metadata".to_owned(), json!({"padding": "x".repeat(padding.saturating_sub(1_000))}));
        }
        let body = body.to_string();
        let headers: String = self.headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\n{headers}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            body.len()
        )
        .into_bytes()
    }

    fn processes(&self) -> Vec<u32> {
        match &self.process {
            Process::Server(server) => vec![server.id()],
            Process::Peer(peer) => process::group(peer.keeper.id()),
            Process::Others => Vec::new(),
        }
    }

    /// Returns the processor time that the program has used, in seconds.
    pub fn processor_time(&self) -> Option<f64> {
        let times = self.processes().into_iter().filter_map(client::processor_time);
        times.reduce(|sum, time| sum + time)
    }

    /// Returns the number of the program's open file descriptors.
    pub fn descriptors(&self) -> f64 {
        self.processes().into_iter().filter_map(|process| process::descriptors(process).ok()).sum()
    }

    /// Returns the program's memory in MiB.
    pub fn resident_mib(&self) -> f64 {
        self.processes().into_iter().filter_map(|process| process::resident_mib(process).ok()).sum()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.commands.take());
        // The process may already have exited, in which case nothing is left to do.
        drop(self.keeper.wait());
    }
}
