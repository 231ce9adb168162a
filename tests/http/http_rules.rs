//! HTTP rules for all operations: ambiguous requests, persistent connections, caches, HTTPS.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use http::Method;
use serde_json::json;
use tollkeeper::api::routes;
use tollkeeper::web::route::Listener;

use support::http::Call;
use support::process::{Start, read_answer};
use support::world::{Folder, PASSWORD, World};
use support::{Database, on_each_database};

fn send_raw(address: SocketAddr, words: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    BufReader::new(stream)
}

#[test]
fn requests_with_ambiguous_host_or_length_are_refused() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    let health = |lines: &str| format!("GET /healthz HTTP/1.1\r\n{lines}\r\n");
    let login = |lines: &str| {
        format!(
            "POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lines}\r\n2\r\n{{}}\r\n0\r\n\r\n"
        )
    };
    let refused = [
        health(""),
        health("host: x\r\nhost: x\r\n"),
        health("host: x\r\nHOST: y\r\n"),
        health("host: x y\r\n"),
        health("host: x/y\r\n"),
        health("host: user@x\r\n"),
        health("host: x:port\r\n"),
        health("host: ::1\r\n"),
        login("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        login("transfer-encoding: chunked, chunked\r\n"),
        login("transfer-encoding: gzip, chunked\r\n"),
        login("transfer-encoding: chunked\r\ncontent-length: 2\r\n"),
        login("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
        login("transfer-encoding: chunked\r\nx: y\r\ncontent-length: 12\r\n"),
    ];
    for address in [server.public, server.service] {
        for words in &refused {
            for before in ["", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
                let mut stream = send_raw(address, before);
                if !before.is_empty() {
                    assert_eq!(read_answer(&mut stream, true).unwrap().status, 200);
                }
                stream.get_mut().write_all(words.as_bytes()).unwrap();
                let answer =
                    read_answer(&mut stream, true).unwrap_or_else(|error| panic!("{words}: {error}"));
                assert_eq!(answer.status, 400, "{words}: {}", answer.text);
                assert_eq!(answer.json()["error"]["code"], "malformed_request", "{words}");
                assert_eq!(answer.header("connection"), "close", "{words}");
                assert!(answer.header("x-request-id").starts_with("req_"));
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).unwrap();
                assert!(rest.is_empty(), "{words}: nothing comes after it");
            }
        }
        for good in [
            health("host: \r\n"),
            health("Host: api.example.com:8080\r\n"),
            health("host: [::1]:8080\r\n"),
            "GET /healthz HTTP/1.0\r\n\r\n".to_owned(),
            "GET http://example.com/healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        ] {
            assert_eq!(read_answer(&mut send_raw(address, &good), true).unwrap().status, 200, "{good}");
        }
    }
    let mut preface = send_raw(server.public, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut nothing = Vec::new();
    preface.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty(), "the preface of HTTP/2 has no answer");
    let chunked = login("Transfer-Encoding: Chunked\r\n");
    let answer = read_answer(&mut send_raw(server.public, &chunked), true).unwrap();
    assert_eq!((answer.status, answer.details().len()), (400, 2), "{}", answer.text);
    // Hyper drops an ambiguous length before the server gets the head, so the connection is closed.
    let pipelined = format!("{}{chunked}", health("host: x\r\n"));
    let mut stream = send_raw(server.public, &pipelined);
    assert_eq!(read_answer(&mut stream, true).unwrap().status, 200);
    assert_eq!(read_answer(&mut stream, true).unwrap().header("connection"), "close");
    // The same for a head whose first part, with the length, arrived together with the previous request.
    let ambiguous = login("content-length: 12\r\ntransfer-encoding: chunked\r\n");
    let (first, second) = ambiguous.split_at(ambiguous.find("transfer-encoding").unwrap());
    let mut stream = send_raw(server.public, &format!("{}{first}", health("host: x\r\n")));
    assert_eq!(read_answer(&mut stream, true).unwrap().status, 200);
    stream.get_mut().write_all(second.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream, true).unwrap().header("connection"), "close");
}

/// Clients send the body separately from the head, and the next request on the same connection right after
/// the answer.
#[test]
fn unread_body_does_not_break_the_next_request() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    let head = |path: &str, lines: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lines}\r\n")
    };
    let next = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let body = json!({"name": "x"}).to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    // A refusal before the body, an unknown path, and a route without a body.
    for path in ["/v1/organizations", "/v1/nothing", "/healthz"] {
        for (lines, body) in [(length.as_str(), &body), ("transfer-encoding: chunked\r\n", &chunked)] {
            // The rest arrives soon, with the head, or only after the answer.
            for (first, pause_ms, second) in [(1, 20, body.len()), (body.len(), 0, body.len())] {
                let mut stream = send_raw(server.public, &head(path, lines));
                stream.get_mut().write_all(&body.as_bytes()[..first]).unwrap();
                std::thread::sleep(Duration::from_millis(pause_ms));
                stream.get_mut().write_all(&body.as_bytes()[first..second]).unwrap();
                let answer = read_answer(&mut stream, true).unwrap();
                assert!(answer.status >= 400 && answer.header("connection").is_empty(), "{path}: {answer:?}");
                stream.get_mut().write_all(next.as_bytes()).unwrap();
                assert_eq!(read_answer(&mut stream, true).unwrap().status, 200, "{path} {first}");
            }
            let mut stream = send_raw(server.public, &head(path, lines));
            let answer = read_answer(&mut stream, true).unwrap();
            assert_eq!(answer.header("connection"), "close", "{path}: {answer:?}");
        }
        // A client with `Expect: 100-continue` gets the refusal without sending the body.
        let asking = head(path, &format!("expect: 100-continue\r\n{length}"));
        let answer = read_answer(&mut send_raw(server.public, &asking), true).unwrap();
        assert!(answer.status >= 400 && answer.header("connection") == "close", "{path}: {answer:?}");
    }
}

#[on_each_database]
async fn answers_to_a_bearer_are_not_cacheable(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut answers = 0;
    for route in routes::table() {
        if route.listener == Listener::Service || route.method == Method::DELETE {
            continue;
        }
        let path = route
            .path
            .replace("{organization_id}", &place.organization)
            .replace("{project_id}", &place.project)
            .replace("{*model_id}", "svc-1");
        let bearer =
            if route.path.ends_with("refresh-token") { &ada.refresh_token } else { &ada.access_token };
        for bearer in [bearer.as_str(), "", "nonsense"] {
            let call = Call::new(&world.public, route.method.clone(), &path).bearer(bearer);
            // Operations that end the session are skipped.
            let call = if route.path.ends_with("logout") { call.bearer("x") } else { call };
            let answer = call.send().await;
            let found = answer.header("cache-control");
            if route.access.scheme.is_some() {
                assert_eq!(found, "private, no-store", "{route:?}: {}", answer.text);
                answers += 1;
            } else if route.path == "/.well-known/jwks.json" {
                assert_eq!(found, "public, max-age=300");
            }
        }
    }
    assert!(answers > 60, "only {answers} answers");
    let login = json!({"email": "ada@example.com", "password": PASSWORD});
    let login = world.post("/v1/auth/login", &login).send().await;
    assert_eq!((login.status, login.header("cache-control")), (200, "no-store"));
}

#[on_each_database]
fn hsts_is_sent_when_configured(database: Database) {
    let header = "strict-transport-security";
    database.run(&[], async |world| {
        assert_eq!(world.get("/healthz").send().await.header(header), "");
    });
    let settings =
        [("TOLLKEEPER_SERVER__HSTS_SECONDS", "31536000"), ("TOLLKEEPER_CORS_ORIGINS", "https://app.example")];
    database.run(&settings, async |world| {
        for path in ["/healthz", "/v1/models", "/v1/nothing", "/verify-email?token=x", "/openapi.json"] {
            assert_eq!(world.get(path).send().await.header(header), "max-age=31536000", "{path}");
        }
        let preflight = world.call(Method::OPTIONS, "/v1/auth/me").header("origin", "https://app.example");
        let preflight = preflight.header("access-control-request-method", "GET").send().await;
        assert_eq!(preflight.header(header), "max-age=31536000");
        let service = Call::new(&world.service, Method::GET, "/healthz").send().await;
        assert_eq!(service.header(header), "");
    });
    // Answers to invalid requests have it too, except if the bytes aren't a request at all.
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_SERVER__HSTS_SECONDS", "60").run();
    let answer = read_answer(&mut send_raw(server.public, "nonsense\r\n\r\n"), true).unwrap();
    assert_eq!((answer.status, answer.header(header)), (400, ""));
    let answer = read_answer(&mut send_raw(server.public, "GET / HTTP/1.1\r\n\r\n"), true).unwrap();
    assert_eq!((answer.status, answer.header(header)), (400, "max-age=60"));
}
