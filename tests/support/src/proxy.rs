//! Reverse proxies in front of a small server that records the requests that reach it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::process::{CollectedOutput, collect, terminate, until, wait};
use super::python::skip_without;

/// Returns whether this program of a Debian package is installed. If not, prints the reason, and fails if
/// `TOLLKEEPER_TEST_REQUIRE` contains the name of the program.
pub fn is_installed(program: &str, package: &str, what: &str) -> bool {
    let mut probe = Command::new(program);
    let version = match program {
        "nginx" => "-v",
        "pgbouncer" => "--version",
        _ => "version",
    };
    probe.arg(version).stdout(Stdio::null()).stderr(Stdio::null());
    let here = probe.status().is_ok_and(|status| status.success());
    if !here {
        skip_without(program, what, &format!("no {program}: `apt-get install {package}`"));
    }
    here
}

/// A running proxy. It is ended, together with its workers, when this value is dropped.
pub struct Proxy {
    child: Child,
    log: CollectedOutput,
}

impl Proxy {
    /// Starts nginx with these servers. It reads none of the machine's configuration files.
    pub fn nginx(folder: &Path, servers: &str, address: SocketAddr) -> Self {
        let path = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("  {name}_temp_path {path}/nginx-{name};\n"))
            .concat();
        // The workers, which talk to clients, must not run as root. Only root can choose another user.
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let user = if is_root { "user nobody nogroup;\n" } else { "" };
        let whole = format!(
            "{user}daemon off;\npid {path}/nginx.pid;\nerror_log stderr warn;\nworker_processes 1;\nevents {{}}\n\
             http {{\n  access_log off;\n{temporary}{servers}\n}}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, whole).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
        Self::start(command, folder, address)
    }

    /// Starts the proxy and waits until it listens at `address`, which its configuration contains.
    pub fn start(mut command: Command, folder: &Path, address: SocketAddr) -> Self {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Caddy keeps its state below these folders.
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, folder);
        }
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = collect(child.stderr.take().unwrap());
        let mut proxy = Self { child, log };
        let listens = || TcpStream::connect(address).is_ok() || proxy.child.try_wait().unwrap().is_some();
        assert!(until(listens), "it doesn't listen:\n{}", proxy.log.text());
        assert!(proxy.child.try_wait().unwrap().is_none(), "it has ended:\n{}", proxy.log.join());
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The proxy is terminated rather than killed, because then nginx ends its workers.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            terminate(&self.child);
            wait(&mut self.child);
        }
    }
}

/// A request that reached the server behind the proxy.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    pub line: String,
    /// The headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl ReceivedRequest {
    /// Returns all values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// The server behind the proxy. It answers every request with 200, and records it.
pub struct Upstream {
    pub address: SocketAddr,
    reached: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Upstream {
    /// Starts the server. Its thread runs until the test's process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, reached) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let shared = Arc::clone(&reached);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects early has sent no request.
                let _ = answer(stream, &shared);
            }
        });
        Self { address, reached }
    }

    /// Returns the recorded requests and clears them.
    pub fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.reached.lock().unwrap())
    }
}

/// Answers one request. Returns `None` if the client disconnects before it has sent anything.
fn answer(stream: TcpStream, reached: &Mutex<Vec<ReceivedRequest>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut request = ReceivedRequest::default();
    stream.read_line(&mut request.line).ok().filter(|length| *length > 0)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        // A header may have an empty value.
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = request.all("content-length").first().map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).unwrap();
    reached.lock().unwrap().push(request);
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    stream.get_mut().write_all(answer.as_bytes()).ok()
}
