//! Misbehaving clients: slow ones, large heads, clients that don't read, and connections that stay open
//! forever.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::process::{Server, Start, until};
use support::world::Folder;

/// A client that sends raw bytes.
struct RawClient {
    stream: TcpStream,
}

impl RawClient {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream }
    }

    fn saying(address: SocketAddr, words: &str) -> Self {
        let mut raw = Self::new(address);
        raw.say(words);
        raw
    }

    fn say(&mut self, words: &str) {
        self.stream.write_all(words.as_bytes()).unwrap();
    }

    /// Sends bytes. Returns `true` if the server still accepts them.
    fn try_say(&mut self, words: &str) -> bool {
        self.stream.write_all(words.as_bytes()).is_ok()
    }

    /// Reads until the server closes the connection.
    fn rest(&mut self) -> String {
        let mut text = Vec::new();
        self.stream.read_to_end(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Reads the next answer. Returns its head and its body.
    fn answer(&mut self) -> (String, String) {
        let mut reader = BufReader::new(&self.stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "closed after {head:?}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        (head, String::from_utf8(body).unwrap())
    }
}

/// Returns the status line and the `error` of the last answer on a connection.
fn last_answer(text: &str) -> (&str, Value) {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    assert!(head.contains("\r\nconnection: close"), "{head}");
    assert!(head.contains("\r\nx-request-id: req_"), "{head}");
    assert!(head.contains("\r\ndate: ") && head.contains("\r\ncontent-type: application/json"), "{head}");
    (head.lines().next().unwrap(), serde_json::from_str::<Value>(body).unwrap()["error"].clone())
}

fn server(folder: &Folder, settings: &[(&str, &str)]) -> Server {
    let start = settings.iter().fold(Start::new(&folder.0), |start, (name, value)| {
        start.set(&format!("TOLLKEEPER_SERVER__{name}"), value)
    });
    start.set("TOLLKEEPER_LOG__LEVEL", "info,web=debug").run()
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

#[test]
fn slow_heads_are_closed_and_delay_no_other_client() {
    let folder = Folder::new();
    let server = server(&folder, &[("HEAD_TIMEOUT_SECONDS", "1"), ("IDLE_TIMEOUT_SECONDS", "60")]);
    for address in [server.public, server.service] {
        let opened = Instant::now();
        let mut slow: Vec<_> =
            (0..200).map(|_| RawClient::saying(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n")).collect();
        let mut silent = RawClient::new(address);
        // An earlier valid request on the connection gives the second one no more time.
        let mut second = RawClient::saying(address, HEALTH);
        assert!(second.answer().0.starts_with("HTTP/1.1 200 "));
        second.say("GET /hea");
        let mut rounds = 0;
        while slow.iter_mut().filter_map(|one| one.try_say("a: b\r\n").then_some(())).count() > 0 {
            assert!(opened.elapsed() < Duration::from_secs(20), "they are let go on");
            let asked = Instant::now();
            let mut other = RawClient::saying(address, HEALTH);
            assert!(other.answer().0.starts_with("HTTP/1.1 200 "));
            assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
            rounds += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(rounds > 0 && opened.elapsed() >= Duration::from_secs(1), "{rounds}");
        assert_eq!(silent.rest(), "");
        let (status, error) = (second.rest(), "request_timeout");
        let (status, code) = (last_answer(&status).0, last_answer(&status).1["code"].clone());
        assert_eq!((status, code), ("HTTP/1.1 408 Request Timeout", json!(error)));
    }
    server.wait_for_log("status=408 code=\"request_timeout\"");
}

#[test]
fn incomplete_head_gets_an_error() {
    let folder = Folder::new();
    let server = server(&folder, &[("HEAD_TIMEOUT_SECONDS", "1")]);
    let mut half = RawClient::saying(server.public, "GET /v1/models HTTP/1.1\r\nhost:");
    let asked = Instant::now();
    let text = half.rest();
    let (status, error) = last_answer(&text);
    assert_eq!(status, "HTTP/1.1 408 Request Timeout");
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("request_timeout"), &json!("invalid_request_error"))
    );
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(900) && waited < Duration::from_secs(20), "{waited:?}");
}

#[test]
fn slow_body_is_refused() {
    let folder = Folder::new();
    let server = server(&folder, &[("BODY_TIMEOUT_SECONDS", "1")]);
    let token = std::fs::read_to_string(folder.0.join("data/service.token")).unwrap();
    let head = |path: &str, more: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{more}content-length: 99\r\n\r\n{{"
        )
    };
    let login = RawClient::saying(server.public, &head("/v1/auth/login", ""));
    let bearer = format!("authorization: Bearer {}\r\n", token.trim());
    let usage = RawClient::saying(server.service, &head("/service/v1/usage", &bearer));
    let asked = Instant::now();
    for mut raw in [login, usage] {
        let (head, body) = raw.answer();
        assert!(head.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{head}");
        assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["code"], "request_timeout");
        assert_eq!(raw.rest(), "", "nothing follows it");
    }
    assert!(asked.elapsed() >= Duration::from_millis(900));
    // Sending single bytes doesn't help the client.
    let mut trickle = RawClient::saying(server.public, &head("/v1/auth/login", ""));
    let ended = until(|| {
        std::thread::sleep(Duration::from_millis(100));
        !trickle.try_say(" ")
    });
    assert!(ended);
}

#[test]
fn client_that_reads_nothing_is_disconnected() {
    let folder = Folder::new();
    let server = server(&folder, &[("WRITE_TIMEOUT_SECONDS", "1")]);
    let mut greedy = RawClient::new(server.public);
    greedy.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    // The client sends requests until the server closes the connection. The answers fill all buffers in
    // between.
    let closed = until(|| match greedy.stream.write_all(ask.as_bytes()) {
        Ok(()) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    });
    assert!(closed);
    server.wait_for_log("it does not read its response");
    assert!(RawClient::saying(server.public, HEALTH).answer().0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn idle_connection_is_closed_and_a_busy_one_is_not() {
    let folder = Folder::new();
    let server = server(&folder, &[("IDLE_TIMEOUT_SECONDS", "3")]);
    let (mut idle, mut busy) =
        (RawClient::saying(server.public, HEALTH), RawClient::saying(server.public, HEALTH));
    let asked = Instant::now();
    idle.answer();
    busy.answer();
    for _ in 0..16 {
        std::thread::sleep(Duration::from_millis(500));
        busy.say(HEALTH);
        let (head, _) = busy.answer();
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("connection: close"), "{head}");
    }
    assert!(asked.elapsed() > Duration::from_secs(7));
    // The connection is already closed, so this doesn't wait.
    idle.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(idle.rest(), "");
}

#[test]
fn bytes_that_are_no_request_get_a_bare_status() {
    let folder = Folder::new();
    let server = server(&folder, &[]);
    let long = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "x".repeat(40_000));
    let longer = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(3_000_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    let most = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(99));
    let cases = [
        (long.as_str(), "431 Request Header Fields Too Large"),
        (many.as_str(), "431 Request Header Fields Too Large"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/7.7\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n", "400 Bad Request"),
    ];
    for address in [server.public, server.service] {
        for (sent, status) in cases {
            for before in ["", HEALTH] {
                let mut raw = RawClient::new(address);
                if !before.is_empty() {
                    raw.say(before);
                    raw.answer();
                }
                raw.say(sent);
                let text = raw.rest();
                let (head, body) =
                    text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
                assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
                assert!(head.contains("\r\nconnection: close"), "{head}");
                assert_eq!(body, "");
            }
        }
        // The server doesn't read all of these bytes. The answer may be lost, but the connection is closed.
        let mut raw = RawClient::new(address);
        raw.try_say(&longer);
        let mut text = Vec::new();
        if raw.stream.read_to_end(&mut text).is_ok() {
            assert!(String::from_utf8(text).unwrap().starts_with("HTTP/1.1 431 "));
        }
        let mut raw = RawClient::saying(address, &most);
        assert!(raw.answer().0.starts_with("HTTP/1.1 200 "));
    }
    server.wait_for_log("method=\"-\" route=\"-\" status=431 code=\"malformed_request\"");
}

#[test]
fn unread_body_does_not_lose_the_answer() {
    let folder = Folder::new();
    let server = server(&folder, &[]);
    // A body of 2 MiB is refused because of its declared length, while it is being sent.
    let body = "x".repeat(2 * 1024 * 1024);
    let head = format!("POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    for _ in 0..20 {
        let mut raw = RawClient::saying(server.public, &head);
        raw.try_say(&body[..512 * 1024]);
        let (head, body) = raw.answer();
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        assert!(body.contains("payload_too_large"), "{body}");
    }
}

#[test]
fn connections_beyond_the_maximum_wait() {
    let folder = Folder::new();
    let server = server(&folder, &[("MAX_CONNECTIONS", "3")]);
    // The connection of the readiness probe is already closed.
    let mut held: Vec<_> = (0..3)
        .map(|_| {
            let mut raw = RawClient::saying(server.public, HEALTH);
            raw.answer();
            raw
        })
        .collect();
    let mut fourth = RawClient::saying(server.public, HEALTH);
    server.wait_for_log("all connections are taken: new ones wait until one ends");
    fourth.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut byte = [0];
    let waited = fourth.stream.read(&mut byte).unwrap_err();
    assert!(matches!(waited.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waited}");
    // The other listener has its own maximum, and open connections still work.
    assert!(RawClient::saying(server.service, HEALTH).answer().0.starts_with("HTTP/1.1 200 "));
    held[1].say(HEALTH);
    held[1].answer();
    drop(held.remove(0));
    fourth.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(fourth.answer().0.starts_with("HTTP/1.1 200 "));
    // Many short connections log at most one line per second.
    let began = Instant::now();
    drop(fourth);
    for _ in 0..200 {
        RawClient::saying(server.public, HEALTH).answer();
    }
    let most = usize::try_from(began.elapsed().as_secs()).unwrap() + 3;
    let lines = server.log().matches("all connections are taken").count();
    assert!(lines <= most, "{lines} lines");
    drop(held);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn stop_finishes_requests_in_flight_and_closes_idle_connections() {
    let folder = Folder::new();
    let server = server(&folder, &[]);
    let mut idle = RawClient::saying(server.public, HEALTH);
    idle.answer();
    let mut fresh = RawClient::new(server.public);
    let body = json!({"email": "nobody@example.com", "password": "x"}).to_string();
    let head = format!(
        "POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut flying: Vec<_> = (0..5).map(|_| RawClient::saying(server.public, &head)).collect();
    for one in &mut flying {
        assert_eq!(one.answer().0, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    server.terminate();
    server.wait_for_log("stopping");
    assert_eq!((idle.rest(), fresh.rest()), (String::new(), String::new()));
    let refused = until(|| {
        TcpStream::connect(server.public).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    assert!(refused);
    for one in &mut flying {
        one.say(&body);
        let (head, _) = one.answer();
        assert!(head.starts_with("HTTP/1.1 401 ") || head.starts_with("HTTP/1.1 429 "), "{head}");
        assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
        assert_eq!(one.rest(), "");
    }
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.log.contains("cut off"), "{}", ended.log);
}

#[test]
fn incomplete_head_does_not_delay_the_stop() {
    let folder = Folder::new();
    let start = Start::new(&folder.0).set("TOLLKEEPER_SHUTDOWN_GRACE_MS", "300");
    let server = start.run();
    let mut half = RawClient::saying(server.public, "GET /healthz HTTP/1.1\r\n");
    // When the server answers a later client, it has read the incomplete head.
    RawClient::saying(server.public, HEALTH).answer();
    let asked = Instant::now();
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let mut text = Vec::new();
    half.stream.read_to_end(&mut text).ok();
}
