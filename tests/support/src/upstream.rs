//! An inference server that a test controls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A step of the server's response to a request.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Waits for a permit, which the test adds when the server should continue.
    AwaitPermit(Arc<Semaphore>),
    /// Waits until the other side has closed the connection.
    AwaitClose,
    /// Closes the connection.
    Close,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Received {
    /// The request line and the headers, in lower case and sorted.
    pub head: Vec<String>,
    pub body: Value,
    /// The number of earlier requests on the same connection.
    pub earlier: usize,
}

/// A server on its own port.
pub struct Upstream {
    pub address: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A function that chooses the response to a request.
type Chooser = Box<dyn Fn(&Received) -> Vec<Step> + Send + Sync>;

struct Shared {
    scripts: Mutex<VecDeque<Vec<Step>>>,
    chooser: Mutex<Option<Chooser>>,
    /// The number of connections that were opened.
    connections: AtomicUsize,
    /// The status of `GET /health`.
    health: AtomicU16,
    /// The body of `GET /v1/models`.
    models: Mutex<Value>,
    received: Mutex<Vec<Received>>,
    /// The number of connections that the other side closed.
    left: watch::Sender<usize>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            scripts: Mutex::default(),
            chooser: Mutex::default(),
            connections: AtomicUsize::new(0),
            health: AtomicU16::new(200),
            models: Mutex::new(json!({"object": "list", "data": []})),
            received: Mutex::default(),
            left: watch::Sender::new(0),
        });
        let task = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    shared.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve(stream, Arc::clone(&shared)));
                }
            }
        });
        Self { address, shared, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Sets the responses to the next requests, in order. The last one is repeated.
    pub fn script(&self, scripts: impl IntoIterator<Item = Vec<Step>>) {
        *self.shared.scripts.lock().unwrap() = scripts.into_iter().collect();
    }

    /// Sets a function that chooses the response to each request.
    pub fn choose(&self, chooser: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) {
        *self.shared.chooser.lock().unwrap() = Some(Box::new(chooser));
    }

    /// Sets the status of `GET /health`.
    pub fn set_health(&self, status: u16) {
        self.shared.health.store(status, Ordering::Relaxed);
    }

    /// Sets the body of `GET /v1/models`.
    pub fn set_models(&self, models: Value) {
        *self.shared.models.lock().unwrap() = models;
    }

    /// Returns the number of connections that were opened.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the requests received so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Waits until the other side has closed this many connections.
    pub async fn left(&self, count: usize) {
        let mut left = self.shared.left.subscribe();
        let reached = left.wait_for(|left| *left >= count);
        timeout(Duration::from_secs(20), reached).await.expect("no connection was closed").unwrap();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut calls = 0;
    while let Some(mut received) = read(&mut stream).await {
        let answer = match received.head[0].split(' ').nth(1).unwrap() {
            "/health" => Some((shared.health.load(Ordering::Relaxed), json!({}))),
            "/v1/models" => Some((200, shared.models.lock().unwrap().clone())),
            _ => None,
        };
        if let Some((status, body)) = answer {
            let Step::Send(bytes) = json_answer(status, &body).remove(0) else { return };
            stream.write_all(&bytes).await.unwrap();
            continue;
        }
        received.earlier = calls;
        calls += 1;
        let chosen = shared.chooser.lock().unwrap().as_ref().map(|choose| choose(&received));
        shared.received.lock().unwrap().push(received);
        let script = if let Some(chosen) = chosen {
            chosen
        } else {
            let mut scripts = shared.scripts.lock().unwrap();
            let next = scripts.pop_front().expect("a script");
            if scripts.is_empty() {
                scripts.push_back(next.clone());
            }
            next
        };
        for step in script {
            match step {
                Step::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        shared.left.send_modify(|left| *left += 1);
                        return;
                    }
                }
                Step::Pause(pause) => tokio::time::sleep(pause).await,
                Step::AwaitPermit(permits) => permits.acquire().await.unwrap().forget(),
                Step::AwaitClose => {
                    let end = stream.read(&mut [0; 1]).await;
                    assert!(!matches!(end, Ok(1..)), "another request on a busy connection");
                    shared.left.send_modify(|left| *left += 1);
                    return;
                }
                Step::Close => return,
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut head: Vec<String> =
        std::str::from_utf8(&bytes[..end]).unwrap().split("\r\n").map(str::to_lowercase).collect();
    head[1..].sort();
    let length =
        head.iter().find_map(|line| line.strip_prefix("content-length: ")).map(|n| n.parse().unwrap());
    let length: usize = length.unwrap_or_default();
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8(body).unwrap();
    let body = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    Some(Received { head, body, earlier: 0 })
}

/// Returns a complete response with this status and body.
pub fn plain(status: u16, content_type: &str, body: &str) -> Vec<Step> {
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}", body.len());
    vec![Step::Send(format!("{head}\r\n\r\n{body}").into_bytes())]
}

/// Returns a complete JSON response with this status.
pub fn json_answer(status: u16, body: &Value) -> Vec<Step> {
    plain(status, "application/json", &body.to_string())
}

/// Returns the head of a stream.
pub fn stream_head() -> Step {
    Step::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    )
}

/// Returns a chunk of a stream.
pub fn piece(text: &str) -> Step {
    Step::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// Returns an event of a stream.
pub fn event(data: &Value) -> Step {
    piece(&format!("data: {data}\n\n"))
}

/// Returns a named event of a stream.
pub fn named_event(name: &str, data: &Value) -> Step {
    piece(&format!("event: {name}\ndata: {data}\n\n"))
}

/// Returns the end of a stream's body. The stream ends without the final event of its protocol.
pub fn end_of_body() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// Returns a stream of these events that ends as its protocol requires.
pub fn stream(events: &[Value]) -> Vec<Step> {
    let mut steps = vec![stream_head()];
    steps.extend(events.iter().map(event));
    steps.extend([piece("data: [DONE]\n\n"), end_of_body()]);
    steps
}
