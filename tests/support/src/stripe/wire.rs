//! HTTP on local connections, with one request for each connection.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::api::{Answer, Request};

/// Reads a request. Returns `None` if the connection is closed before the request is complete.
pub async fn read(stream: &mut TcpStream) -> Option<Request> {
    let (head, body) = read_message(stream).await?;
    let mut lines = head.lines();
    let mut line = lines.next()?.split(' ');
    let (method, target) = (line.next()?.to_owned(), line.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let fields = if method == "POST" { body } else { query.to_owned() };
    Some(Request { method, path: path.to_owned(), fields, headers: headers(lines) })
}

/// Sends an answer with Stripe's headers.
pub async fn write(stream: &mut TcpStream, answer: &Answer, request_id: &str) {
    let replayed = if answer.is_replayed { "idempotent-replayed: true\r\n" } else { "" };
    let head = format!("request-id: {request_id}\r\n{replayed}content-type: application/json\r\n");
    write_bytes(stream, answer.status, &head, &answer.body.to_string()).await;
}

pub async fn write_bytes(stream: &mut TcpStream, status: u16, head: &str, body: &str) {
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status} x\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    // The client may have disconnected already.
    if stream.write_all(text.as_bytes()).await.is_ok() {
        stream.shutdown().await.ok();
    }
}

/// Sends the first half of an answer.
pub async fn write_half(stream: &mut TcpStream, answer: &Answer) {
    let body = answer.body.to_string();
    let half: String = body.chars().take(body.chars().count() / 2).collect();
    let text = format!("HTTP/1.1 {} x\r\ncontent-length: {}\r\n\r\n{half}", answer.status, body.len());
    stream.write_all(text.as_bytes()).await.ok();
}

/// Waits until the client closes the connection.
pub async fn wait_for_end(stream: &mut TcpStream) {
    let mut byte = [0];
    stream.read_exact(&mut byte).await.ok();
}

/// Posts an event to a receiver. Returns the status of the response, or `None` without a response.
pub async fn post(url: &str, signature: &str, body: &str) -> Option<u16> {
    let (authority, path) = url.strip_prefix("http://")?.split_once('/')?;
    let exchange = async {
        let mut stream = TcpStream::connect(authority).await.ok()?;
        let length = body.len();
        let head = format!(
            "POST /{path} HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json; charset=utf-8\r\n\
             stripe-signature: {signature}\r\nuser-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.ok()?;
        String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
    };
    tokio::time::timeout(Duration::from_secs(30), exchange).await.ok()?
}

fn headers<'a>(lines: impl Iterator<Item = &'a str>) -> HashMap<String, String> {
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect()
}

/// Reads a message head, and a body of the length in the head.
async fn read_message(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 8_192];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let length =
            headers(head.lines()).get("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let body = &bytes[end + 4..];
        if body.len() >= length {
            return Some((head, String::from_utf8(body[..length].to_vec()).ok()?));
        }
    }
}
