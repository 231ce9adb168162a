//! The bounds in docs/operations.md. Input beyond a bound is refused with the documented code, and many
//! clients at their bounds don't fill the memory.

mod answers;
mod flood;
mod table;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Map, Value, json};

use support::http::Answer;
use support::process::{Server, Start, Wire, read_answer, until};
use support::world::{Folder, PASSWORD};
use support::{Database, on_each_database};

const KIB: usize = 1024;

/// Returns a JSON object with this many unknown members.
fn object(members: usize) -> String {
    let members: Map<_, _> = (0..members).map(|index| (format!("f{index:03}"), json!(1))).collect();
    Value::Object(members).to_string()
}

/// Returns a JSON object of exactly this many bytes.
fn json_of_size(bytes: usize) -> Vec<u8> {
    let mut body = b"{}".to_vec();
    body.resize(bytes, b' ');
    body
}

fn post(address: SocketAddr, path: &str, bearer: &str, body: &[u8]) -> Answer {
    let call = Wire::new(address, "POST", path).header("content-type", "application/json");
    let call = if bearer.is_empty() { call } else { call.bearer(bearer) };
    call.raw(body).send()
}

#[on_each_database]
fn number_of_reported_unknown_fields_is_bounded(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        for (fields, due) in [(20, 20 + 2), (21, 21 + 2), (250, 21 + 2)] {
            let answer = post(server.public, "/v1/auth/login", "", object(fields).as_bytes());
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
            let details = answer.details();
            assert_eq!(details.len(), due, "{details:?}");
            let named = details.iter().filter(|detail| detail.ends_with(" unknown_field")).count();
            assert_eq!(named, fields.min(20));
            let is_cut = details.last().is_some_and(|detail| detail == "body too_many");
            assert_eq!(is_cut, fields > 20, "{details:?}");
            assert!(answer.text.len() < 8 * KIB, "{} bytes", answer.text.len());
        }
    });
}

#[on_each_database]
fn number_of_object_members_is_bounded(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        let ada = server.sign_up("ada");
        let refused = |path: &str, address, bearer: &str, body: String| {
            let answer = post(address, path, bearer, body.as_bytes());
            let found = (answer.status, answer.code(), answer.details());
            let due = (400, "invalid_request".to_owned(), vec!["body too_many".to_owned()]);
            assert_eq!(found, due, "{path}: {:.300}", answer.text);
            assert!(answer.text.contains("more than 256 members"), "{}", answer.text);
        };
        let (public, token) = (server.public, ada.access_token.as_str());
        refused("/v1/auth/login", public, "", object(257));
        refused("/v1/organizations", public, token, object(257));
        // The bound also applies to nested objects, and is checked before anything else.
        refused("/v1/organizations", public, token, format!("{{\"settings\":{{\"x\":[{}}}}}", object(257)));
        let service_token = server.service_token();
        let event = format!("{{\"events\":[{}]}}", object(300));
        refused("/service/v1/usage", server.service, &service_token, event);
        refused("/service/v1/authorize", server.service, &service_token, object(5_000));
        let most = post(public, "/v1/auth/login", "", object(256).as_bytes());
        assert!(most.details().iter().any(|detail| detail.ends_with(" unknown_field")), "{}", most.text);
    });
}

#[on_each_database]
fn number_of_error_details_is_bounded(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        let ada = server.sign_up("ada");
        let keys = format!("{}/api-keys", server.settle(&ada).project_path);
        for (wrong, due) in [(100, 100), (101, 100), (1_000, 100)] {
            let body = json!({"name": "k", "permissions": vec!["x"; wrong]});
            let answer = server.post(&keys, &body).bearer(&ada.access_token).send();
            let details = answer.details();
            assert_eq!((answer.status, details.len()), (400, due));
            assert_eq!(details.last().unwrap() == "body too_many", wrong > 100, "{:?}", details.last());
        }
        // A batch has its own bound, which covers all of its events.
        let events: Vec<Value> = (0..1_000).map(|_| json!({"x": 1, "y": 2, "z": 3})).collect();
        let answer = server.ask("/service/v1/usage", &json!({ "events": events })).send();
        let results = answer.json()["results"].as_array().cloned().unwrap();
        let details: usize = results.iter().map(|result| result["details"].as_array().unwrap().len()).sum();
        assert_eq!((results.len(), details), (1_000, 2_000));
        assert!(
            results.iter().all(|result| result["code"] == "invalid_event" && result["message"].is_string())
        );
    });
}

#[on_each_database]
fn arrays_and_nesting_are_bounded(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        let ada = server.sign_up("ada");
        let keys = format!("{}/api-keys", server.settle(&ada).project_path);
        let refused = |call: Wire| {
            let answer = call.send();
            assert_eq!(answer.status, 400, "{}", answer.text);
            answer.details()
        };
        let key = |restrictions: Value| {
            let body = json!({"name": "k", "restrictions": restrictions});
            refused(server.post(&keys, &body).bearer(&ada.access_token))
        };
        assert_eq!(key(json!({"allowed_ips": vec!["::1"; 101]})), ["restrictions.allowed_ips too_many"]);
        assert_eq!(key(json!({"models": vec!["svc-1"; 101]})), ["restrictions.models too_many"]);
        let events = json!({"events": vec![json!({}); 1_001]});
        assert_eq!(refused(server.ask("/service/v1/usage", &events)), ["events too_many"]);
        let deep = format!("{{\"email\":{}1{}}}", "[".repeat(128), "]".repeat(128));
        let answer = post(server.public, "/v1/auth/login", "", deep.as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_json"));
    });
}

#[on_each_database]
fn number_of_query_and_form_parts_is_bounded(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        let ada = server.sign_up("ada");
        let pairs =
            |count: usize| (0..count).map(|index| format!("p{index}=1")).collect::<Vec<_>>().join("&");
        let list = |pairs: &str| {
            let path = format!("/v1/organizations?{pairs}");
            server.get(&path).bearer(&ada.access_token).send()
        };
        assert_eq!(list(&pairs(256)).status, 200, "unknown fields are ignored");
        for query in [pairs(257), vec!["search=x"; 257].join("&"), vec!["a"; 5_000].join("&")] {
            let answer = list(&query);
            assert_eq!((answer.status, answer.details()), (400, vec!["query too_many".to_owned()]));
        }
        let form = |pairs: &str| {
            let form = "application/x-www-form-urlencoded";
            let call = Wire::new(server.public, "POST", "/verify-email").header("content-type", form);
            call.raw(pairs.as_bytes()).send()
        };
        let page = form(&format!("token=x&{}", pairs(255)));
        assert!(page.status == 400 && page.text.contains("This link no longer works"), "{}", page.text);
        let page = form(&format!("token=x&{}", pairs(256)));
        assert!(page.status == 400 && page.text.contains("Invalid request"), "{}", page.text);
    });
}

#[on_each_database]
fn body_size_is_bounded_by_its_route(database: Database) {
    database.run_processes(|url, folder| {
        let server = Start::new(&folder.0).database(url).run();
        let ada = server.sign_up("ada");
        let (token, service_token) = (ada.access_token.as_str(), server.service_token());
        let form = "application/x-www-form-urlencoded";
        let cases = [
            (server.public, "POST", "/v1/auth/login", "", "application/json", 16),
            (server.public, "POST", "/v1/auth/change-password", token, "application/json", 16),
            (server.public, "POST", "/reset-password", "", form, 16),
            (server.public, "POST", "/v1/organizations", token, "application/json", 256),
            (server.service, "POST", "/service/v1/usage", service_token.as_str(), "application/json", 1024),
            (
                server.service,
                "POST",
                "/service/v1/authorize",
                service_token.as_str(),
                "application/json",
                1024,
            ),
        ];
        for (address, method, path, bearer, kind, kib) in cases {
            let call = || {
                let call = Wire::new(address, method, path).header("content-type", kind);
                if bearer.is_empty() { call } else { call.bearer(bearer) }
            };
            let most = call().raw(&json_of_size(kib * KIB)).send();
            assert_eq!(most.status, 400, "{path}: {}", most.text);
            // The body is refused because of its declared length, or while it is received.
            let announced = call().header("content-length", &(kib * KIB + 1).to_string()).send();
            let mut chunked = BufReader::new(TcpStream::connect(address).unwrap());
            let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\n");
            if !bearer.is_empty() {
                head.push_str(&format!("authorization: Bearer {bearer}\r\n"));
            }
            let stream = chunked.get_mut();
            stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).unwrap();
            let chunk = [b"400\r\n".as_slice(), &[b' '; KIB], b"\r\n"].concat();
            // The server may refuse the body before it receives the last bytes.
            let sent = (0..=kib).take_while(|_| stream.write_all(&chunk).is_ok()).count();
            assert!(sent >= kib / 2, "{path}: {sent}");
            for answer in [announced, read_answer(&mut chunked, true).unwrap()] {
                assert_eq!(answer.status, 413, "{path}: {}", answer.text);
                if kind != form {
                    let error = &answer.json()["error"];
                    assert_eq!(
                        (&error["code"], &error["param"]),
                        (&json!("payload_too_large"), &json!("body"))
                    );
                    let message = error["message"].as_str().unwrap();
                    assert!(message.contains(&format!("{kib} KiB")), "{path}: {message}");
                }
            }
        }
    });
}

/// Returns the number of bytes in unfinished bodies, according to the server's metrics.
fn body_bytes(server: &Server) -> usize {
    let metrics = Wire::new(server.service, "GET", "/metrics").bearer(&server.service_token()).send().text;
    let line = "tollkeeper_queue_length{queue=\"request_body_bytes\"} ";
    metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap().parse().unwrap()
}

/// Sends a request with the first part of its body.
fn send_partial_body(address: SocketAddr, path: &str, bearer: &str, framing: &str, begun: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let bearer =
        if bearer.is_empty() { String::new() } else { format!("authorization: Bearer {bearer}\r\n") };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{bearer}{framing}\r\n\r\n"
    );
    stream.write_all(format!("{head}{begun}").as_bytes()).unwrap();
    stream
}

/// The minimum budget for unfinished bodies, in bytes.
const BUDGET: usize = 64 * KIB * KIB;

/// Starts a server with the minimum budget.
fn start_with_small_budget(folder: &Folder, url: Option<&str>) -> Server {
    let start = Start::new(&folder.0).database(url);
    start.set("TOLLKEEPER_SERVER__BODY_BUDGET_BYTES", &BUDGET.to_string()).run()
}

/// Asserts that the body is refused because other bodies use up the budget.
fn assert_busy(stream: TcpStream) {
    let answer = read_answer(&mut BufReader::new(stream), true).unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "server_busy"), "{}", answer.text);
    assert_eq!((answer.header("retry-after"), answer.header("connection")), ("1", "close"));
    assert_eq!(answer.json()["error"]["type"], "api_error");
}

#[on_each_database]
fn all_unfinished_bodies_have_one_budget(database: Database) {
    database.run_processes(|url, folder| {
        let server = start_with_small_budget(folder, url);
        let token = server.service_token();
        let usage = |framing: &str, begun: &str| {
            send_partial_body(server.service, "/service/v1/usage", &token, framing, begun)
        };
        assert_eq!(body_bytes(&server), 0);
        let begun = String::from_utf8(json_of_size(KIB * KIB - 1)).unwrap();
        let mut held: Vec<_> = (0..64).map(|_| usage("content-length: 1048576", &begun)).collect();
        assert!(until(|| body_bytes(&server) == BUDGET), "{}", body_bytes(&server));
        let chunk = format!("800\r\n{}\r\n", " ".repeat(2 * KIB));
        let login = "/v1/auth/login";
        for refused in [
            usage("content-length: 100", "{"),
            usage("transfer-encoding: chunked", &chunk),
            send_partial_body(server.public, login, "", "content-length: 100", "{"),
        ] {
            assert_busy(refused);
        }
        // A body that arrives with its head needs no budget.
        let body = json!({"email": "a@example.com", "password": PASSWORD}).to_string();
        let whole =
            send_partial_body(server.public, login, "", &format!("content-length: {}", body.len()), &body);
        let answer = read_answer(&mut BufReader::new(whole), true).unwrap();
        assert_eq!(answer.status, 401, "{}", answer.text);
        assert_eq!(server.get("/healthz").send().status, 200);
        // A body that ends, successfully or not, releases its part of the budget.
        let mut ended = BufReader::new(held.pop().unwrap());
        ended.get_mut().write_all(b" ").unwrap();
        assert_eq!(read_answer(&mut ended, true).unwrap().status, 400);
        assert!(until(|| body_bytes(&server) == BUDGET - KIB * KIB), "{}", body_bytes(&server));
        let chunked = usage("transfer-encoding: chunked", &chunk);
        assert!(until(|| body_bytes(&server) == BUDGET - KIB * KIB + 16 * KIB), "{}", body_bytes(&server));
        drop(chunked);
        drop(held);
        assert!(until(|| body_bytes(&server) == 0), "{}", body_bytes(&server));
        server.wait_for_log("unfinished request bodies take too much of `server.body_budget_bytes`");
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    });
}

/// Three quarters of the budget are for the public listener. One credential can use a third of that share.
#[on_each_database]
fn one_holder_leaves_budget_for_everybody_else(database: Database) {
    database.run_processes(|url, folder| {
        let server = start_with_small_budget(folder, url);
        let [ada, bob] = ["ada", "bob"].map(|name| server.sign_up(name));
        let begun = String::from_utf8(json_of_size(256 * KIB - 1)).unwrap();
        let large = |token: &str| {
            send_partial_body(server.public, "/v1/organizations", token, "content-length: 262144", &begun)
        };
        let most = BUDGET / 4 * 3 / 3;
        let mut held: Vec<_> = (0..64).map(|_| large(&ada.access_token)).collect();
        assert!(until(|| body_bytes(&server) == most), "{}", body_bytes(&server));
        assert_busy(large(&ada.access_token));
        let login = || send_partial_body(server.public, "/v1/auth/login", "", "content-length: 16384", "{");
        held.push(login());
        assert!(until(|| body_bytes(&server) == most + 16 * KIB), "{}", body_bytes(&server));
        // ada leaves two thirds free, and bob can use a third of these.
        held.extend((0..42).map(|_| large(&bob.access_token)));
        assert!(until(|| body_bytes(&server) > 26 * KIB * KIB), "{}", body_bytes(&server));
        // Many clients send head and body in two parts.
        let events = json!({"events": [{}]});
        let answer = server.ask("/service/v1/usage", &events).begin().finish();
        assert_eq!(answer.status, 200, "{}", answer.text);
    });
}

/// A declared length takes no budget. A stranger sends one byte each of four bodies of 16 MiB.
#[on_each_database]
fn declared_lengths_take_no_budget(database: Database) {
    database.run_processes(|url, folder| {
        let server = start_with_small_budget(folder, url);
        let [ada, bob] = ["ada", "bob"].map(|name| server.sign_up(name));
        let [hostile, other] = [&ada, &bob].map(|owner| server.settle(owner).key);
        let call = |key: &str, length: usize, begun: &str| {
            let framing = format!("content-length: {length}");
            send_partial_body(server.public, "/v1/chat/completions", key, &framing, begun)
        };
        let held: Vec<_> = (0..100).map(|_| call(&hostile, 16 * KIB * KIB, "{")).collect();
        assert!(until(|| body_bytes(&server) == 100 * 16 * KIB), "{}", body_bytes(&server));
        for bytes in [20_000, 200_000, 2_000_000] {
            let body = String::from_utf8(json_of_size(bytes)).unwrap();
            let mut stream = call(&other, bytes, &body[..bytes - 1]);
            stream.write_all(b" ").unwrap();
            let answer = read_answer(&mut BufReader::new(stream), true).unwrap();
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{}", answer.text);
        }
        drop(held);
    });
}

#[test]
fn public_body_has_ten_seconds() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    let ada = server.sign_up("ada");
    let send_partial_body = [
        send_partial_body(server.public, "/v1/auth/login", "", "content-length: 100", "{"),
        send_partial_body(server.public, "/v1/organizations", &ada.access_token, "content-length: 100", "{"),
    ];
    for mut stream in send_partial_body {
        // The default timeout is thirty seconds.
        stream.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).expect("an answer before the thirty seconds are over");
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("request_timeout"), "{text}");
    }
}
