//! Many clients that each reach their bounds.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::{KIB, object, send_partial_body};
use support::process::{Server, Start, until};
use support::world::Folder;

const CONNECTIONS: usize = 200;

/// Maximum growth of memory with 200 connections, in MiB, as documented in docs/operations.md. Measured: 72
/// to 86.
const MAX_MIB: usize = 128;

/// Returns the resident memory of the server, in MiB.
pub fn resident_mib(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() / KIB
}

/// Sends the same bytes until the client's buffer is full, and reads nothing.
fn pour(address: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    for _ in 0..200 {
        if stream.write(words).is_err() {
            break;
        }
    }
    stream
}

#[test]
fn two_hundred_hostile_connections_do_not_fill_the_memory() {
    let folder = Folder::new();
    let start = Start::new(&folder.0).set("TOLLKEEPER_LIMITS__ENABLED", "false");
    let server = start.set("TOLLKEEPER_LOG__ACCESS", "false").run();
    let ada = server.sign_up("ada");
    server.get("/openapi.json").send();
    let before = resident_mib(&server);
    let hostile = |path: &str, bearer: &str, body: &str| {
        let length = body.len();
        let head = "host: x\r\ncontent-type: application/json";
        format!("POST {path} HTTP/1.1\r\n{head}\r\n{bearer}content-length: {length}\r\n\r\n{body}")
            .into_bytes()
    };
    let bearer = format!("authorization: Bearer {}\r\n", ada.access_token);
    // The largest and most expensive bodies that the path accepts, and the worst case of earlier versions.
    let padded = |members: usize, bytes: usize| {
        let object = object(members);
        format!("{object}{}", " ".repeat(bytes - object.len()))
    };
    let login = hostile("/v1/auth/login", "", &padded(250, 16 * KIB));
    let organizations = hostile("/v1/organizations", &bearer, &padded(250, 256 * KIB));
    let huge = hostile("/v1/auth/login", "", &object(80_000));
    let documents = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    let heads = b"HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2_000);
    let nearly = " ".repeat(16 * KIB - 2);
    let half_head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "x".repeat(30 * KIB));
    let mut worst = 0;
    let kinds: [(&str, &dyn Fn() -> TcpStream); 7] = [
        ("unfinished logins", &|| {
            send_partial_body(server.public, "/v1/auth/login", "", "content-length: 16384", &nearly)
        }),
        ("unknown fields of a login", &|| pour(server.public, &login)),
        ("unknown fields of an organization", &|| pour(server.public, &organizations)),
        ("a megabyte of unknown fields", &|| pour(server.public, &huge)),
        ("unread documents", &|| pour(server.public, &documents)),
        ("unread heads", &|| pour(server.public, &heads)),
        ("half a head", &|| pour(server.public, half_head.as_bytes())),
    ];
    for (what, open) in kinds {
        let held: Vec<TcpStream> = (0..CONNECTIONS).map(|_| open()).collect();
        let mut most = 0;
        // Once the memory stops growing, the server has processed everything.
        let mut steady = 0;
        assert!(until(|| {
            let now = resident_mib(&server);
            steady = if now > most { 0 } else { steady + 1 };
            most = most.max(now);
            std::thread::sleep(std::time::Duration::from_millis(20));
            steady > 50
        }));
        println!("{what}: {} MiB more", most.saturating_sub(before));
        assert_eq!(server.get("/healthz").send().status, 200, "{what}");
        assert!(most < before + MAX_MIB, "{what}: {before} MiB before, {most} MiB then");
        worst = worst.max(most);
        drop(held);
    }
    println!("{before} MiB before, {worst} MiB at worst");
}
