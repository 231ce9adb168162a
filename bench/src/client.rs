//! The load: persistent connections, each with one request in flight, without pipelining. Only the status and
//! the length of a response are read, so that one core of the load is faster than one core of any server.
//!
//! On a separate core, the load doesn't sleep. Waking a sleeping client is work for a server on the same
//! machine, and the slower the server, the more often it happens. With clients on other machines, it would
//! never happen.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The timeout of everything except the measurements.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A request and its server.
#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    pub request: Vec<u8>,
    /// A text that the body of a correct answer contains.
    expected: String,
    /// Texts, one of which replaces the first one in each request.
    texts: Option<Texts>,
}

/// Texts of the same length, and their position in the request.
#[derive(Clone)]
struct Texts {
    at: usize,
    all: Arc<Vec<String>>,
}

impl Target {
    /// Replaces the first of these texts by a random one in each request.
    pub fn with_texts(mut self, all: Arc<Vec<String>>) -> Result<Self, String> {
        let first = all.first().ok_or("no texts")?.as_bytes();
        let at = self.request.windows(first.len()).position(|window| window == first);
        self.texts = Some(Texts { at: at.ok_or("the first text isn't in the request")?, all });
        Ok(self)
    }

    /// Inserts the text with this number into the request.
    fn put(&mut self, number: u64) {
        let Some(Texts { at, all }) = &self.texts else { return };
        let count = u64::try_from(all.len()).unwrap_or(1).max(1);
        let text = usize::try_from(number % count).ok().and_then(|number| all.get(number));
        let place = text.and_then(|text| self.request.get_mut(*at..at + text.len()));
        if let Some((place, text)) = place.zip(text) {
            place.copy_from_slice(text.as_bytes());
        }
    }

    pub fn get(address: SocketAddr, path: &str, bearer: Option<&str>, expected: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{}\r\n", authorization(bearer));
        Self { address, request: request.into_bytes(), expected: expected.to_owned(), texts: None }
    }

    /// Builds the request for a page of the console.
    pub fn page(address: SocketAddr, path: &str, cookie: &str, expected: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\n\r\n");
        Self { address, request: request.into_bytes(), expected: expected.to_owned(), texts: None }
    }

    /// Builds a POST request. The body is JSON, or a string that is sent as text.
    pub fn post(
        address: SocketAddr,
        path: &str,
        bearer: Option<&str>,
        body: &impl Display,
        expected: &str,
    ) -> Self {
        let (authorization, body) = (authorization(bearer), body.to_string());
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{authorization}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { address, request: request.into_bytes(), expected: expected.to_owned(), texts: None }
    }
}

fn authorization(bearer: Option<&str>) -> String {
    bearer.map(|bearer| format!("authorization: Bearer {bearer}\r\n")).unwrap_or_default()
}

/// The result of one measurement.
pub struct Sample {
    pub requests_per_s: f64,
    /// Sorted latencies.
    pub latencies_us: Vec<u32>,
    /// The server's processor time per request, if the system reports it.
    pub server_us: Option<f64>,
    /// The load of the server's only core, from 0 to 1. If it is well below 1, the client was too slow to
    /// measure the server.
    pub server_busy: Option<f64>,
}

/// The parameters of a load.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: u16,
    pub length: Duration,
    /// Whether this thread may busy-wait. It must not if a database that shares this core takes most of the
    /// response time: since Linux 6.6, a thread that yields keeps its share of the processor, which would be
    /// half of it.
    pub never_sleep: bool,
}

/// Yields to the other tasks, and to other processes on this core, such as a database on the same machine,
/// without sleeping.
pub async fn yield_core() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

/// Loads the target. The first fifth of the duration doesn't count. `server` is the process that answers.
pub async fn load(target: &Target, server: u32, load: Load) -> Result<Sample, String> {
    let mut streams = Vec::new();
    for _ in 0..load.connections {
        streams.push(Connection::open(target).await?);
    }
    let begin = Instant::now();
    let (from, until) = (begin + load.length / 5, begin + load.length);
    let mut tasks = JoinSet::new();
    for stream in streams {
        tasks.spawn(stream.run(from, until));
    }
    let busy = tokio::spawn(async move {
        while load.never_sleep && Instant::now() < until {
            yield_core().await;
        }
    });
    tokio::time::sleep_until(from.into()).await;
    let (before, watched_from) = (processor_time(server), Instant::now());
    tokio::time::sleep_until(until.into()).await;
    let (after, watched) = (processor_time(server), watched_from.elapsed());
    busy.await.map_err(|error| error.to_string())?;
    let mut latencies_us = Vec::new();
    while let Some(outcome) = tasks.join_next().await {
        latencies_us.extend(outcome.map_err(|error| error.to_string())??);
    }
    latencies_us.sort_unstable();
    let count = count_as_f64(latencies_us.len());
    let spent = before.zip(after).map(|(before, after)| after - before);
    Ok(Sample {
        requests_per_s: count / (until - from).as_secs_f64(),
        latencies_us,
        server_us: spent.map(|seconds| seconds * 1e6 / count.max(1.0)),
        server_busy: spent.map(|seconds| seconds / watched.as_secs_f64()),
    })
}

/// Sends the request at an even rate, one at a time. Returns how long after its due time each request was
/// answered, in microseconds, sorted. This includes any wait for the previous answer. The first fifth doesn't
/// count.
pub async fn paced(target: &Target, per_s: u32, length: Duration) -> Result<Vec<u32>, String> {
    let mut connection = Connection::open(target).await?;
    let begin = Instant::now();
    let (from, until) = (begin + length / 5, begin + length);
    let mut latencies_us = Vec::new();
    let mut due = begin;
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        // The timer wakes up to a millisecond late, which isn't the server's fault.
        let sent = Instant::now();
        let sent = if sent - due < Duration::from_millis(2) { sent } else { due };
        connection.exchange().await?;
        if due >= from {
            latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        due += Duration::from_secs(1) / per_s;
    }
    latencies_us.sort_unstable();
    Ok(latencies_us)
}

/// Sends each request once, one after the other over one connection. Returns the latencies in microseconds,
/// sorted.
pub async fn in_turn(targets: &[Target]) -> Result<Vec<u32>, String> {
    let mut connection = Connection::connect(targets.first().ok_or("nothing to send")?).await?;
    let mut latencies_us = Vec::new();
    for target in targets {
        connection.target = target.clone();
        let sent = Instant::now();
        connection.exchange().await?;
        latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    latencies_us.sort_unstable();
    Ok(latencies_us)
}

/// Sends a target's request once with each of its texts, over this number of connections.
pub async fn each_once(target: &Target, connections: u64) -> Result<(), String> {
    let count = target.texts.as_ref().map_or(0, |texts| texts.all.len());
    let count = u64::try_from(count).map_err(|error| error.to_string())?;
    let mut tasks = JoinSet::new();
    for first in 0..connections {
        let mut connection = Connection::connect(target).await?;
        tasks.spawn(async move {
            for number in (first..count).step_by(usize::try_from(connections).unwrap_or(1)) {
                connection.target.put(number);
                connection.exchange().await?;
            }
            connection.check()
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Sends one request, and returns the body of the answer.
pub async fn once(target: &Target) -> Result<Vec<u8>, String> {
    let mut connection = Connection::connect(target).await?;
    let answer = tokio::time::timeout(TIMEOUT, connection.exchange()).await;
    let length = answer.map_err(|_| "no answer".to_owned())??;
    connection.check()?;
    let body = connection.read.get(connection.head..length).unwrap_or_default().to_vec();
    Ok(body)
}

/// Waits until a server answers this path with 200.
pub async fn wait_for(address: SocketAddr, path: &str) -> Result<(), String> {
    let target = Target::get(address, path, None, "");
    let begin = Instant::now();
    loop {
        match once(&target).await {
            Ok(_) => return Ok(()),
            Err(error) if begin.elapsed() > TIMEOUT => {
                return Err(format!("{address} did not start: {error}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A connection that stays open.
pub struct Connection {
    stream: TcpStream,
    target: Target,
    read: Vec<u8>,
    /// The start of the last answer's body.
    head: usize,
    /// The last random number. Each connection has its own sequence.
    drawn: u64,
}

impl Connection {
    /// Connects to the target's server.
    pub async fn connect(target: &Target) -> Result<Self, String> {
        let stream = TcpStream::connect(target.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let drawn = stream.local_addr().map_or(1, |address| u64::from(address.port()));
        Ok(Self { stream, target: target.clone(), read: vec![0; 256 * 1024], head: 0, drawn })
    }

    /// Connects and checks one complete answer. Of later answers, only the status is checked.
    async fn open(target: &Target) -> Result<Self, String> {
        let mut connection = Self::connect(target).await?;
        connection.exchange().await?;
        connection.check()?;
        Ok(connection)
    }

    fn check(&self) -> Result<(), String> {
        let answer = String::from_utf8_lossy(&self.read);
        if answer.contains(&self.target.expected) {
            return Ok(());
        }
        Err(format!("unexpected answer: {}", answer.trim_end_matches('\0')))
    }

    /// Sends this request, and returns the body of a successful answer.
    pub async fn send(&mut self, target: Target) -> Result<String, String> {
        self.target = target;
        let length = self.exchange().await?;
        let body = self.read.get(self.head..length).unwrap_or_default();
        Ok(String::from_utf8_lossy(body).into_owned())
    }

    async fn run(mut self, from: Instant, until: Instant) -> Result<Vec<u32>, String> {
        let mut latencies_us = Vec::new();
        let mut sent = Instant::now();
        while sent < until {
            if self.target.texts.is_some() {
                // Knuth's linear congruential generator, whose upper bits are random enough.
                self.drawn = self
                    .drawn
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                self.target.put(self.drawn >> 33);
            }
            self.exchange().await?;
            let received = Instant::now();
            if received >= from && received < until {
                let latency_us = (received - sent).as_micros();
                latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
            }
            sent = received;
        }
        Ok(latencies_us)
    }

    /// Sends the request and reads the complete answer. Returns the length of headers and body, in bytes.
    async fn exchange(&mut self) -> Result<usize, String> {
        self.stream.write_all(&self.target.request).await.map_err(|error| error.to_string())?;
        let mut filled = 0;
        loop {
            let free = self.read.get_mut(filled..).unwrap_or_default();
            match self.stream.read(free).await.map_err(|error| error.to_string())? {
                0 => return Err("the server hung up, or sent more than 256 KiB".to_owned()),
                count => filled += count,
            }
            let answer = self.read.get(..filled).unwrap_or_default();
            let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
                continue;
            };
            let length = head + content_length(answer.get(..head).unwrap_or_default())?;
            if filled >= length {
                self.head = head;
                return Ok(length);
            }
        }
    }
}

/// Returns the length of the body of an answer with status 200.
fn content_length(head: &[u8]) -> Result<usize, String> {
    let name = b"\r\ncontent-length: ";
    let at = head.windows(name.len()).position(|window| window == name);
    let digits = at.and_then(|at| head.get(at + name.len()..)).unwrap_or_default();
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit());
    match length.fold(None, |sum, digit| Some(sum.unwrap_or(0) * 10 + usize::from(digit - b'0'))) {
        Some(length) if head.starts_with(b"HTTP/1.1 200 ") => Ok(length),
        _ => Err(format!("unexpected answer: {}", String::from_utf8_lossy(head))),
    }
}

/// Returns the processor time that a process has used, in seconds (Linux: proc(5)).
pub fn processor_time(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain anything; utime and stime are the 12th and 13th words after it.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    // A tick is a hundredth of a second on all relevant Linux systems.
    Some((user + system) / 100.0)
}

fn count_as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
