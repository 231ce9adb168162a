//! A connection to a gateway with one call in progress.

use std::net::SocketAddr;
use std::time::Instant;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stub::{DIGITS, STAMP, now_ns};

/// An open connection.
pub struct Line {
    stream: TcpStream,
    read: Vec<u8>,
    head: Option<Head>,
    /// The position at which the search for the next send time begins.
    searched: usize,
}

#[derive(Clone, Copy)]
struct Head {
    length: usize,
    framing: Framing,
}

#[derive(Clone, Copy)]
enum Framing {
    Chunked,
    Length(usize),
}

/// The times of a complete answer.
pub struct Times {
    /// The time at which the body began.
    pub first: Instant,
    pub end: Instant,
}

impl Line {
    pub async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, read: Vec::with_capacity(16 * 1024), head: None, searched: 0 })
    }

    /// Sends a request, and reads the answer.
    pub async fn call(&mut self, request: &[u8]) -> Result<Times, String> {
        self.send(request).await?;
        let mut first = None;
        while !self.is_whole() {
            self.receive().await?;
            if first.is_none() && self.has_body() {
                first = Some(Instant::now());
            }
        }
        let end = Instant::now();
        Ok(Times { first: first.unwrap_or(end), end })
    }

    /// Sends a request, and reads until this number of events has arrived.
    pub async fn begin(&mut self, request: &[u8], events: usize) -> Result<(), String> {
        self.send(request).await?;
        while self.events() < events && !self.is_whole() {
            self.receive().await?;
        }
        Ok(())
    }

    pub async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.read.clear();
        (self.head, self.searched) = (None, 0);
        self.stream.write_all(request).await.map_err(|error| error.to_string())
    }

    /// Reads the available bytes, or waits for more.
    pub async fn receive(&mut self) -> Result<(), String> {
        if self.stream.read_buf(&mut self.read).await.map_err(|error| error.to_string())? == 0 {
            return Err(format!("the server hung up after {}", self.text()));
        }
        if self.head.is_none()
            && let Some(length) = memmem::find(&self.read, b"\r\n\r\n").map(|at| at + 4)
        {
            let framing = framing(self.read.get(..length).unwrap_or_default());
            self.head = Some(Head { length, framing: framing.ok_or_else(|| self.text())? });
        }
        Ok(())
    }

    /// Reads the bytes that have already arrived.
    pub fn take_arrived(&mut self) {
        while matches!(self.stream.try_read_buf(&mut self.read), Ok(1..)) {}
    }

    pub fn is_whole(&self) -> bool {
        self.head.is_some_and(|head| match head.framing {
            Framing::Chunked => self.read.ends_with(b"\r\n0\r\n\r\n"),
            Framing::Length(length) => self.read.len() >= head.length + length,
        })
    }

    /// Returns `true` if the body has begun.
    fn has_body(&self) -> bool {
        self.head.is_some_and(|head| self.read.len() > head.length)
    }

    /// Returns the number of events that have arrived.
    pub fn events(&self) -> usize {
        memmem::find_iter(&self.read, b"data: ").count()
    }

    /// Returns `true` if `text` has arrived.
    pub fn has(&self, text: &str) -> bool {
        memmem::find(&self.read, text.as_bytes()).is_some()
    }

    /// Returns the beginning of the answer, for error messages.
    pub fn text(&self) -> String {
        format!("{:.400}", String::from_utf8_lossy(&self.read))
    }

    /// Returns the complete answer.
    pub fn whole_text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Adds the delays, in nanoseconds, of the events that have arrived since the last call and contain their
    /// send time.
    pub fn delays(&mut self, delays: &mut Vec<u64>) {
        let now = now_ns();
        while let Some(at) = memmem::find(self.read.get(self.searched..).unwrap_or_default(), STAMP) {
            let at = self.searched + at + STAMP.len();
            let Some(digits) = self.read.get(at..at + DIGITS) else { return };
            self.searched = at + DIGITS;
            let sent = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
            delays.extend(sent.map(|sent| now.saturating_sub(sent)));
        }
    }
}

/// Parses the headers of an answer with status 200, and returns how the end of its body is marked.
fn framing(head: &[u8]) -> Option<Framing> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return None;
    }
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        return Some(Framing::Chunked);
    }
    let (_, rest) = head.split_once("\r\ncontent-length:")?;
    rest.lines().next()?.trim().parse().ok().map(Framing::Length)
}
