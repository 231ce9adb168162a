//! An HTTP connection for varying requests. It parses the status and the body of each response.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Builds the bytes of a request.
pub fn request(
    method: &str,
    path: &str,
    address: SocketAddr,
    bearer: Option<&str>,
    body: Option<&Value>,
) -> Vec<u8> {
    let authorization = bearer.map(|bearer| format!("authorization: Bearer {bearer}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{}",
        authorization.as_deref().unwrap_or_default()
    );
    let text = match body.map(Value::to_string) {
        Some(body) => {
            let length = body.len();
            format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        }
        None => format!("{head}\r\n"),
    };
    text.into_bytes()
}

/// An answer.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// Parses the body as JSON.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(self.body).map_err(|error| format!("{error}: {}", self.text()))
    }

    /// Returns the body as text, for error messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }
}

/// A persistent connection with one request in flight.
pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    /// Connects to a server.
    pub async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, read: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request and reads the complete answer.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>, String> {
        self.stream.write_all(request).await.map_err(|error| error.to_string())?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await.map_err(|error| error.to_string())? == 0 {
                return Err("the server hung up".to_owned());
            }
            let Some(head) = self.read.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
            else {
                continue;
            };
            let (status, length) = read_head(self.read.get(..head).unwrap_or_default())?;
            if self.read.len() >= head + length {
                return Ok(Answer { status, body: self.read.get(head..head + length).unwrap_or_default() });
            }
        }
    }
}

/// Parses the status and the length of the body.
fn read_head(head: &[u8]) -> Result<(u16, usize), String> {
    let wrong = || format!("unexpected answer: {}", String::from_utf8_lossy(head));
    let status = head.strip_prefix(b"HTTP/1.1 ").and_then(|rest| number(rest.get(..3)?));
    let name = b"\r\ncontent-length: ";
    let at = head.windows(name.len()).position(|window| window == name);
    let length = at.and_then(|at| head.get(at + name.len()..)).unwrap_or_default();
    let digits = length.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(length.len());
    // Without a length, the response has no body.
    let length = number(length.get(..digits).unwrap_or_default()).unwrap_or(0);
    let status = status.and_then(|status| u16::try_from(status).ok()).ok_or_else(wrong)?;
    Ok((status, length))
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
