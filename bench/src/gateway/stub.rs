//! The upstream of all gateways, which responds immediately with prepared bytes. It runs in this process, so
//! that all times come from the same clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The events of a stream: the role, 20 tokens, the end, the usage, `[DONE]`.
pub const EVENTS: u32 = 24;
/// The tokens of an answer.
const TOKENS: u32 = 20;
/// The delay of the first event of [`Form::Late`].
const LATE: Duration = Duration::from_millis(5);
/// The time between two events of [`Form::Gaps`].
const GAP: Duration = Duration::from_millis(10);
/// The time between two events of [`Form::Slow`] and of [`Form::Endless`].
const PAUSE: Duration = Duration::from_millis(500);
/// The number of digits of a send time in an event.
pub const DIGITS: usize = 16;
/// The text before a send time.
pub const STAMP: &[u8] = b"sent at ";

/// The form of an answer. The prompt selects it, because every gateway forwards the prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A JSON object.
    Plain,
    /// A stream in which each event is written separately.
    Events,
    /// A stream that is written in one piece.
    Joined,
    /// A stream whose first event takes 5 ms, as the first token of a fast model would.
    Late,
    /// A stream with 10 ms between its events, each of which contains its send time.
    Gaps,
    /// A stream of two events per second.
    Slow,
    /// An endless stream of two events per second.
    Endless,
    /// A JSON object of 8 MiB.
    Large,
    /// A stream of 4 MiB.
    Long,
}

impl Form {
    const ALL: [Self; 9] = [
        Self::Plain,
        Self::Events,
        Self::Joined,
        Self::Late,
        Self::Gaps,
        Self::Slow,
        Self::Endless,
        Self::Large,
        Self::Long,
    ];

    /// Returns the word for the prompt that selects this form.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plain => "bench-plain",
            Self::Events => "bench-events",
            Self::Joined => "bench-joined",
            Self::Late => "bench-late",
            Self::Gaps => "bench-gaps",
            Self::Slow => "bench-slow",
            Self::Endless => "bench-endless",
            Self::Large => "bench-large",
            Self::Long => "bench-long",
        }
    }

    /// Returns the form whose word a request contains.
    fn of(request: &[u8]) -> Option<Self> {
        let has = |form: &Self| memchr::memmem::find(request, form.word().as_bytes()).is_some();
        Self::ALL.into_iter().find(has)
    }

    pub fn is_stream(self) -> bool {
        !matches!(self, Self::Plain | Self::Large)
    }
}

/// A running stub.
pub struct Stub {
    pub address: SocketAddr,
    endless: Arc<Endless>,
}

/// The endless streams of the stub.
#[derive(Default)]
struct Endless {
    begun: AtomicUsize,
    closed: Mutex<Vec<Instant>>,
}

impl Stub {
    /// Starts the stub, which listens and responds while the runtime runs.
    pub async fn start() -> Result<Self, String> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let endless = Arc::<Endless>::default();
        let noted = Arc::clone(&endless);
        let answers = Arc::new(Answers::new());
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, endless) = (Arc::clone(&answers), Arc::clone(&noted));
                drop(tokio::spawn(async move {
                    serve(stream, &answers, &endless).await.unwrap_or_default();
                }));
            }
        }));
        Ok(Self { address, endless })
    }

    /// Returns the number of open endless streams.
    pub fn open(&self) -> usize {
        self.endless.begun.load(Ordering::Relaxed) - self.endless.closed().len()
    }

    /// Returns the time at which the last endless stream was closed, if any.
    pub fn last_closed_at(&self) -> Option<Instant> {
        self.endless.closed().last().copied()
    }
}

impl Endless {
    fn closed(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Answers {
    plain: Vec<u8>,
    /// The writes of a stream. The first one also contains the headers.
    writes: Vec<Vec<u8>>,
    joined: Vec<u8>,
    large: Vec<u8>,
    long: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let mut writes = vec![stream_head(&delta("{\"role\":\"assistant\",\"content\":\"\"}", "null"))];
        for number in 0..TOKENS {
            let content = format!("{{\"content\":\" word{number}\"}}");
            writes.push(framed(&delta(&content, "null")));
        }
        writes.push(framed(&delta("{}", "\"stop\"")));
        writes.push(framed(&format!("{CHUNK_HEAD}\"choices\":[],\"usage\":{USAGE}}}")));
        let mut last = framed("[DONE]");
        last.extend_from_slice(b"0\r\n\r\n");
        writes.push(last);
        let body = |text: &str| {
            format!(
                "{{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\"object\":\"chat.completion\",\
                 \"created\":1741569952,\"model\":\"stub-1\",\"choices\":[{{\"index\":0,\"message\":{{\
                 \"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null,\"annotations\":[]}},\"logprobs\":null,\
                 \"finish_reason\":\"stop\"}}],\"usage\":{USAGE},\"service_tier\":\"default\"}}"
            )
        };
        let piece = framed(&delta(&format!("{{\"content\":\"{}\"}}", "word".repeat(16 << 10)), "null"));
        let [first, .., finish, usage, last] = writes.as_slice() else { return Self::default() };
        let long = [first.clone(), piece.repeat(64), finish.clone(), usage.clone(), last.clone()].concat();
        Self {
            plain: json(&body(&"some words ".repeat(8))),
            large: json(&body(&"some words ".repeat((8 << 20) / 11))),
            long,
            joined: writes.concat(),
            writes,
        }
    }
}

const USAGE: &str = "{\"prompt_tokens\":19,\"completion_tokens\":20,\"total_tokens\":39}";
const CHUNK_HEAD: &str = "{\"id\":\"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT\",\
    \"object\":\"chat.completion.chunk\",\"created\":1741569952,\"model\":\"stub-1\",\
    \"system_fingerprint\":\"fp_44709d6fcb\",";

fn delta(delta: &str, finish_reason: &str) -> String {
    format!(
        "{CHUNK_HEAD}\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
         \"finish_reason\":{finish_reason}}}]}}"
    )
}

/// Returns an event as an HTTP chunk.
fn framed(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// Returns the headers of a stream, with its first event.
fn stream_head(data: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    [head.as_bytes(), &framed(data)].concat()
}

fn json(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Returns the time since the first call of this function, in nanoseconds.
pub fn now_ns() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BEGIN.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Responds to the requests of a connection. Returns `None` if the connection ends between two requests.
async fn serve(mut stream: TcpStream, answers: &Answers, all: &Endless) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut read = Vec::with_capacity(4096);
    loop {
        read.clear();
        while !is_whole(&read) {
            if stream.read_buf(&mut read).await.ok()? == 0 {
                return None;
            }
        }
        match Form::of(&read) {
            // The gateway requests the list of models.
            None => stream.write_all(&json(MODELS)).await.ok()?,
            Some(Form::Plain) => stream.write_all(&answers.plain).await.ok()?,
            Some(Form::Large) => stream.write_all(&answers.large).await.ok()?,
            Some(Form::Long) => stream.write_all(&answers.long).await.ok()?,
            Some(Form::Joined) => stream.write_all(&answers.joined).await.ok()?,
            Some(form @ (Form::Events | Form::Late)) => {
                if form == Form::Late {
                    tokio::time::sleep(LATE).await;
                }
                for write in &answers.writes {
                    stream.write_all(write).await.ok()?;
                }
            }
            Some(Form::Gaps) => gaps(&mut stream, answers).await.ok()?,
            Some(Form::Slow) => slow(&mut stream, answers).await?,
            Some(Form::Endless) => {
                all.begun.fetch_add(1, Ordering::Relaxed);
                endless(stream, answers).await;
                all.closed().push(Instant::now());
                return None;
            }
        }
    }
}

const MODELS: &str = "{\"object\":\"list\",\"data\":[{\"id\":\"stub-1\",\"object\":\"model\",\"created\":1,\
    \"owned_by\":\"bench\"}],\"status\":\"ok\"}";

/// Returns `true` if the bytes contain a complete request with its body.
fn is_whole(read: &[u8]) -> bool {
    let Some(head) = memchr::memmem::find(read, b"\r\n\r\n").map(|at| at + 4) else { return false };
    let text = String::from_utf8_lossy(read.get(..head).unwrap_or_default()).to_ascii_lowercase();
    if text.contains("transfer-encoding: chunked") {
        return read.ends_with(b"\r\n0\r\n\r\n");
    }
    let length = text.split_once("\r\ncontent-length:").and_then(|(_, rest)| rest.lines().next());
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    read.len() >= head + length
}

async fn gaps(stream: &mut TcpStream, answers: &Answers) -> std::io::Result<()> {
    let (first, rest) = answers.writes.split_at(1);
    stream.write_all(&first.concat()).await?;
    let mut timer = tokio::time::interval(GAP);
    timer.tick().await;
    for (number, write) in (1_u32..).zip(rest) {
        timer.tick().await;
        if number <= TOKENS {
            let stamp = String::from_utf8_lossy(STAMP);
            let content = format!("{{\"content\":\"{stamp}{:0DIGITS$}\"}}", now_ns());
            stream.write_all(&framed(&delta(&content, "null"))).await?;
        } else {
            stream.write_all(write).await?;
        }
    }
    Ok(())
}

/// Sends the events one after the other, with pauses. Returns `None` if the client closes the connection
/// before the last one.
async fn slow(stream: &mut TcpStream, answers: &Answers) -> Option<()> {
    for (number, write) in answers.writes.iter().enumerate() {
        if number > 0 {
            let mut byte = [0];
            tokio::select! {
                _ = stream.read(&mut byte) => return None,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        stream.write_all(write).await.ok()?;
    }
    Some(())
}

/// Sends events until the client closes the connection.
async fn endless(mut stream: TcpStream, answers: &Answers) {
    let [first, word, ..] = answers.writes.as_slice() else { return };
    let mut is_open = stream.write_all(first).await.is_ok();
    while is_open {
        let mut byte = [0];
        is_open = tokio::select! {
            read = stream.read(&mut byte) => read.is_ok_and(|read| read > 0),
            () = tokio::time::sleep(PAUSE) => stream.write_all(word).await.is_ok(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_as_many_events_as_their_figures_say() {
        let answers = Answers::new();
        assert_eq!(answers.writes.len(), usize::try_from(EVENTS).expect("a small number"));
        assert_eq!(memchr::memmem::find_iter(&answers.joined, "data: ").count(), answers.writes.len());
    }

    #[test]
    fn requests_are_whole_with_their_bodies() {
        let counted = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for request in [counted.as_slice(), chunked] {
            assert!(is_whole(request));
            assert!(!is_whole(&request[..request.len() - 1]));
        }
    }
}
