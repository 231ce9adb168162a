//! The binary as a process, and requests to it over TCP.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tollkeeper::clock::Time;
use tollkeeper::config::Config;
use tollkeeper::db::{Db, Settings, sql};

use super::http::Answer;
use super::world::{ALLOW_FSYNC_OFF, CREDIT_LIMIT, FIRST_CREDIT, PASSWORD, mailed_token, runtime};

/// Returns the path of the program under test, which cargo sets. Otherwise it is in the parent folder.
pub fn binary() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_tollkeeper").map_or_else(
        || std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("tollkeeper"),
        PathBuf::from,
    )
}

/// The maximum wait for a process. Only a process that hangs reaches it.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// The public URL of every server in these tests. Tokens contain it, so it must not depend on the port.
pub const PUBLIC_URL: &str = "http://tollkeeper.test";

/// The folder and the environment in which the binary is started.
#[derive(Clone)]
pub struct Start {
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    wrapper: Vec<String>,
    binary: PathBuf,
}

impl Start {
    /// Uses `data` in `folder` as the data folder, and inherits no environment variables.
    pub fn new(folder: &Path) -> Self {
        let start = Self {
            folder: folder.to_owned(),
            environment: Vec::new(),
            wrapper: Vec::new(),
            binary: binary(),
        };
        let data = start.data_dir();
        start
            .set("TOLLKEEPER_DATA_DIR", data.to_str().unwrap())
            .set("TOLLKEEPER_PUBLIC_URL", PUBLIC_URL)
            .set(CREDIT_LIMIT, FIRST_CREDIT)
            .set("PATH", &std::env::var("PATH").unwrap_or_default())
    }

    pub fn set(self, name: &str, value: &str) -> Self {
        self.set_bytes(name.as_bytes(), value.as_bytes())
    }

    /// Sets a variable whose name and value may be any bytes.
    pub fn set_bytes(mut self, name: &[u8], value: &[u8]) -> Self {
        let (name, value) = (OsStr::from_bytes(name), OsStr::from_bytes(value));
        self.environment.retain(|(other, _)| other != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn database(self, url: Option<&str>) -> Self {
        match url {
            Some(url) => self.set("TOLLKEEPER_DATABASE_URL", url).set(ALLOW_FSYNC_OFF, "true"),
            None => self,
        }
    }

    pub fn unset(mut self, name: &str) -> Self {
        self.environment.retain(|(other, _)| other != name);
        self
    }

    /// Starts the binary through a wrapper program that executes it.
    pub fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Uses another version of the binary.
    pub fn binary(mut self, path: &Path) -> Self {
        self.binary = path.to_owned();
        self
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns the configuration, for a server in this process.
    pub fn config(&self) -> Config {
        let text = |word: &OsString| word.to_str().unwrap().to_owned();
        Config::load(None, self.environment.iter().map(|(name, value)| (text(name), text(value)))).unwrap()
    }

    /// Returns the settings of the database.
    pub fn database_settings(&self) -> Settings {
        let url = self.environment.iter().find(|(name, _)| name == "TOLLKEEPER_DATABASE_URL");
        match url {
            Some((_, url)) => Settings::Postgres { url: url.to_str().unwrap().to_owned() },
            None => Settings::Sqlite { path: self.data_dir().join("tollkeeper.db") },
        }
    }

    /// Waits until a server has recorded that it was running at this time or later. The server's uptime
    /// begins then, and a test can move the beginning to the past only after that.
    pub fn wait_until_seen(&self, time: Time) {
        let db = Db::open(&self.database_settings()).unwrap();
        let is_seen = async || {
            let seen = sql("SELECT COUNT(*) FROM service_clock WHERE last_seen_at >= $1").bind(time);
            let (rows,): (i64,) = seen.one(&mut db.read().await.unwrap()).await.unwrap();
            rows == 1
        };
        assert!(until(|| runtime().block_on(is_seen())), "no server has stored a time from {time} on");
    }

    /// Runs a command until it exits.
    pub fn command(&self, arguments: &[&str]) -> ProcessResult {
        run_to_end(self.prepared(arguments))
    }

    /// Starts the server and waits until it is ready.
    pub fn run(&self) -> Server {
        let server = self.listening();
        server.wait_until_ready();
        server
    }

    /// Starts the server and waits until it listens. The database may be unavailable.
    pub fn listening(&self) -> Server {
        for _ in 0..10 {
            let mut server = self.launch();
            let up = until(|| server.log().contains("listening") || server.has_ended());
            assert!(up, "it neither listens nor ends:\n{}", server.log());
            if !server.has_ended() {
                return server;
            }
            let ended = server.wait();
            // Another program took the port after we had found it free.
            assert!(ended.log.contains("can't listen on"), "it ended with {:?}:\n{}", ended.code, ended.log);
        }
        panic!("no free port");
    }

    /// Starts the server without waiting for anything.
    pub fn launch(&self) -> Server {
        let (public, service) = free_addresses();
        let addressed = self
            .clone()
            .set("TOLLKEEPER_LISTEN", &public.to_string())
            .set("TOLLKEEPER_SERVICE_LISTEN", &service.to_string());
        let mut command = addressed.prepared(&["serve"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = collect(child.stderr.take().unwrap());
        let token = self.environment.iter().find(|(name, _)| name == "TOLLKEEPER_SERVICE_TOKEN");
        let service_token = token.map(|(_, value)| value.to_str().unwrap().to_owned());
        Server { child, log, public, service, data_dir: self.data_dir(), service_token }
    }

    /// Starts the server, which must fail to start.
    pub fn refused(&self) -> ProcessResult {
        self.launch().wait()
    }

    fn prepared(&self, arguments: &[&str]) -> Command {
        let binary = self.binary.to_str().unwrap();
        let mut words = self.wrapper.iter().map(String::as_str).chain([binary]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(arguments).env_clear().current_dir(&self.folder);
        // The coverage of child processes is measured too (tests/coverage).
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Runs a program until it exits, without input.
pub fn run_to_end(mut command: Command) -> ProcessResult {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdout = collect(child.stdout.take().unwrap());
    let stderr = collect(child.stderr.take().unwrap());
    let code = wait(&mut child);
    ProcessResult { code, stdout: stdout.join(), log: stderr.join() }
}

/// The result of a process that has ended.
#[derive(Debug)]
pub struct ProcessResult {
    /// The exit code, or `None` if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    /// The output to stderr.
    pub log: String,
}

/// A running server. It is killed when this value is dropped.
pub struct Server {
    child: Child,
    log: CollectedOutput,
    pub public: SocketAddr,
    pub service: SocketAddr,
    pub data_dir: PathBuf,
    /// The configured token, or `None` if the token is in a file of the data folder.
    service_token: Option<String>,
}

impl Server {
    pub fn wait_until_ready(&self) {
        let ready = || self.get("/readyz").try_send().is_ok_and(|answer| answer.status == 200);
        assert!(until(ready), "not ready:\n{}", self.log());
    }

    /// Returns the value of a metric, or `None` if it isn't reported yet.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = Wire::new(self.service, "GET", "/metrics").bearer(&self.service_token()).send().text;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    /// Waits until a job has run.
    pub fn wait_until_job(&self, job: &str) {
        let runs = format!("tollkeeper_job_runs_total{{job=\"{job}\"}}");
        assert!(until(|| self.metric(&runs).is_some_and(|runs| runs > 0.0)), "{}", self.log());
    }

    /// Returns the output to stderr so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    pub fn wait_for_log(&self, text: &str) {
        assert!(until(|| self.log().contains(text)), "no {text:?} in:\n{}", self.log());
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, as a supervisor does.
    pub fn terminate(&self) {
        terminate(&self.child);
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub fn stop(self) -> ProcessResult {
        self.terminate();
        self.wait()
    }

    /// Kills the process, like a crash.
    pub fn kill(mut self) -> ProcessResult {
        self.child.kill().unwrap();
        self.wait()
    }

    /// Waits until the process has ended.
    pub fn wait(mut self) -> ProcessResult {
        let code = wait(&mut self.child);
        ProcessResult { code, stdout: String::new(), log: self.log.join() }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn get(&self, path: &str) -> Wire {
        Wire::new(self.public, "GET", path)
    }

    pub fn post(&self, path: &str, body: &Value) -> Wire {
        Wire::new(self.public, "POST", path).json(body)
    }

    /// Builds a POST request to the service listener, with its token.
    pub fn ask(&self, path: &str, body: &Value) -> Wire {
        Wire::new(self.service, "POST", path).bearer(&self.service_token()).json(body)
    }

    pub fn service_token(&self) -> String {
        if let Some(token) = &self.service_token {
            return token.clone();
        }
        std::fs::read_to_string(self.data_dir.join("service.token")).unwrap().trim().to_owned()
    }

    /// Registers an account, verifies it with the token from the e-mail, and logs in.
    pub fn sign_up(&self, name: &str) -> Account {
        let email = format!("{name}@example.com");
        let body = json!({"email": email, "password": PASSWORD, "username": name});
        let registered = self.post("/v1/auth/register", &body).data();
        assert_eq!(registered["verification_email_sent"], true);
        let token = mailed_token(&self.data_dir, &email);
        self.post("/v1/auth/verify-email", &json!({ "token": token })).data();
        self.log_in(name)
    }

    pub fn log_in(&self, name: &str) -> Account {
        let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD});
        let data = self.post("/v1/auth/login", &body).data();
        let text = |name: &str| data[name].as_str().unwrap().to_owned();
        Account { access_token: text("access_token"), refresh_token: text("refresh_token") }
    }

    /// Creates an organization, a project and a key.
    pub fn settle(&self, owner: &Account) -> Place {
        let text = |data: &Value, name: &str| data[name].as_str().unwrap().to_owned();
        let post = |path: &str, body: Value| self.post(path, &body).bearer(&owner.access_token).data();
        let organization = text(&post("/v1/organizations", json!({"name": "Acme"})), "id");
        let projects = format!("/v1/organizations/{organization}/projects");
        let project = text(&post(&projects, json!({"name": "Bot"})), "id");
        let project_path = format!("{projects}/{project}");
        let key = post(&format!("{project_path}/api-keys"), json!({"name": "Prod"}));
        Place { project_path, key_id: text(&key, "id"), key: text(&key, "key") }
    }

    /// Reports one event and returns the status of its result.
    pub fn report(&self, place: &Place, event: &str) -> String {
        let answer = self.ask("/service/v1/usage", &usage_event(place, event)).bare();
        answer["results"][0]["status"].as_str().unwrap().to_owned()
    }

    /// Returns the number of requests of the project.
    pub fn requests(&self, place: &Place, reader: &Account) -> i64 {
        let data = self.get(&place.project_path).bearer(&reader.access_token).data();
        data["usage"]["requests"].as_i64().unwrap()
    }
}

/// Returns a batch with one event at the creation time of the key, with the same content each time.
pub fn usage_event(place: &Place, id: &str) -> Value {
    let time = tollkeeper::ids::ApiKeyId::parse(&place.key_id).unwrap().created_at().to_string();
    json!({"events": [{"id": id, "source": "test", "time": time, "api_key_id": place.key_id,
                       "model": "svc-1", "kind": "chat", "prompt_tokens": 1_000, "completion_tokens": 500}]})
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// An account with a session.
#[derive(Clone, Debug)]
pub struct Account {
    pub access_token: String,
    pub refresh_token: String,
}

/// An organization with a project and a key.
#[derive(Clone, Debug)]
pub struct Place {
    pub project_path: String,
    pub key_id: String,
    pub key: String,
}

/// A request over TCP, on its own connection.
#[derive(Clone, Debug)]
pub struct Wire {
    address: SocketAddr,
    head: String,
    body: Vec<u8>,
}

impl Wire {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        Self { address, head, body: Vec::new() }
    }

    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").raw(body.to_string().as_bytes())
    }

    pub fn raw(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.header("content-length", &body.len().to_string())
    }

    /// Sends the request. Returns an error if no server listens or the connection is closed.
    pub fn try_send(&self) -> std::io::Result<Answer> {
        read_answer(&mut self.try_open()?, !self.head.starts_with("HEAD "))
    }

    /// Sends the request without waiting for the response.
    pub fn open(&self) -> BufReader<TcpStream> {
        self.try_open().unwrap()
    }

    /// Sends the request without waiting for the response. Returns an error if no server listens.
    pub fn try_open(&self) -> std::io::Result<BufReader<TcpStream>> {
        let mut stream = self.connect()?;
        stream.write_all(format!("{}\r\n", self.head).as_bytes())?;
        stream.write_all(&self.body)?;
        Ok(BufReader::new(stream))
    }

    pub fn send(&self) -> Answer {
        self.try_send().unwrap_or_else(|error| panic!("{}: {error}", self.head))
    }

    /// Sends the request and returns the `data` of the envelope. Fails the test unless the request succeeds.
    pub fn data(&self) -> Value {
        let mut body = self.bare();
        assert_eq!(body["status_message"], "SUCCESS");
        body["data"].take()
    }

    /// Sends the request and returns the whole body. Fails the test unless the request succeeds.
    pub fn bare(&self) -> Value {
        let answer = self.send();
        assert_eq!(answer.status, 200, "{}\n{}", self.head, answer.text);
        answer.json()
    }

    /// Sends the head only, and waits until the handler requests the body.
    pub fn begin(&self) -> InFlight {
        let mut stream = self.connect().unwrap();
        stream.write_all(format!("{}expect: 100-continue\r\n\r\n", self.head).as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
        stream.read_line(&mut line).unwrap();
        InFlight { stream, body: self.body.clone() }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, PROCESS_TIMEOUT)?;
        stream.set_read_timeout(Some(PROCESS_TIMEOUT))?;
        stream.set_write_timeout(Some(PROCESS_TIMEOUT))?;
        Ok(stream)
    }
}

/// A request whose handler waits for the body.
pub struct InFlight {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl InFlight {
    pub fn finish(mut self) -> Answer {
        self.send_body();
        read_answer(&mut self.stream, true).unwrap()
    }

    /// Sends the body too, but doesn't wait for the response.
    pub fn hang_up(mut self) {
        self.send_body();
    }

    fn send_body(&mut self) {
        self.stream.get_mut().write_all(&self.body).unwrap();
    }
}

/// Reads the next response.
pub fn read_answer(stream: &mut BufReader<TcpStream>, with_body: bool) -> std::io::Result<Answer> {
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(cut)?;
    let mut headers = HeaderMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
    }
    let is_chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    let body = if is_chunked && with_body {
        read_chunks(stream)?
    } else {
        let length: usize =
            headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
        let mut body = vec![0; if with_body { length } else { 0 }];
        stream.read_exact(&mut body)?;
        body
    };
    Ok(Answer { status, headers, text: String::from_utf8(body).unwrap() })
}

/// Reads a chunked body without trailers.
fn read_chunks(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
        let start = body.len();
        // Each chunk ends with a line break, including the last one, which is empty.
        body.resize(start + length + 2, 0);
        stream.read_exact(&mut body[start..])?;
        body.truncate(start + length);
        if length == 0 {
            return Ok(body);
        }
    }
}

/// Waits for a condition. Returns whether the condition became true before the timeout.
pub fn until(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PROCESS_TIMEOUT {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Prints that something wasn't tested. Doesn't use `eprintln!`, which the test harness would capture.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}: {why}\n");
}

/// Returns two addresses at which nothing listens at the moment.
pub fn free_addresses() -> (SocketAddr, SocketAddr) {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (one, other) = (bind(), bind());
    (one.local_addr().unwrap(), other.local_addr().unwrap())
}

/// Sends SIGTERM to a process, as a supervisor does.
pub fn terminate(child: &Child) {
    let order = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
}

/// Waits until a process has ended. Returns its exit code, or `None` if a signal ended it.
pub fn wait(child: &mut Child) -> Option<i32> {
    let mut status = None;
    let ended = until(|| {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !ended {
        child.kill().unwrap();
        panic!("process {} does not end", child.id());
    }
    status.unwrap().code()
}

/// The output of a process. A thread reads it so that the process is never blocked.
pub struct CollectedOutput {
    text: Arc<Mutex<String>>,
    thread: JoinHandle<()>,
}

impl CollectedOutput {
    pub fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Returns the whole output, once the process has ended.
    pub fn join(&self) -> String {
        assert!(until(|| self.thread.is_finished()), "another process holds the pipe:\n{}", self.text());
        self.text()
    }
}

pub fn collect(source: impl Read + Send + 'static) -> CollectedOutput {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    let thread = std::thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            shared.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    CollectedOutput { text, thread }
}
