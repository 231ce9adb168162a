//! SIGTERM while requests are in flight. Requests that were sent before it are answered, later requests get a
//! closed connection, and no answered request is lost.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use support::chance::number;
use support::http::Answer;
use support::process::{Place, Server, Start, Wire, read_answer, until, usage_event};
use support::smtp::{self, MailServer};
use support::world::{Folder, PASSWORD};
use support::{Database, on_each_database};

/// Returns the number of stops that the tests make.
fn stops() -> u64 {
    number("TOLLKEEPER_TEST_STOPS").unwrap_or(3)
}

/// A sent request, and the status of its answer.
struct SentRequest {
    /// The time at which the whole request was written.
    at: Instant,
    id: String,
    status: Option<u16>,
}

/// A client that sends one usage event after another until the server stops listening.
struct Reporter<'a> {
    address: SocketAddr,
    token: &'a str,
    place: &'a Place,
    /// Whether the client uses one connection, or a new one for each request.
    keeps_alive: bool,
    answered: &'a AtomicUsize,
}

impl Reporter<'_> {
    fn run(&self, name: &str) -> Vec<SentRequest> {
        let mut sent = Vec::new();
        let mut stream: Option<BufReader<TcpStream>> = None;
        for round in 0.. {
            let id = format!("{name}-{round}");
            let connected = stream.take().or_else(|| self.connect());
            // The listener is closed, so the request wasn't sent.
            let Some(mut connected) = connected else { break };
            if connected.get_mut().write_all(&self.request(&id)).is_err() {
                break;
            }
            let at = Instant::now();
            let answer: Option<Answer> = read_answer(&mut connected, true).ok();
            let status = answer.as_ref().map(|answer| answer.status);
            sent.push(SentRequest { at, id, status });
            let Some(answer) = answer else { break };
            self.answered.fetch_add(1, Ordering::Relaxed);
            if self.keeps_alive && answer.header("connection") != "close" {
                stream = Some(connected);
            }
        }
        sent
    }

    fn connect(&self) -> Option<BufReader<TcpStream>> {
        let stream = TcpStream::connect(self.address).ok()?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Some(BufReader::new(stream))
    }

    fn request(&self, id: &str) -> Vec<u8> {
        let body = usage_event(self.place, id).to_string();
        let connection = if self.keeps_alive { "" } else { "connection: close\r\n" };
        format!(
            "POST /service/v1/usage HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n{connection}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )
        .into_bytes()
    }
}

/// The results of all requests of one stop.
#[derive(Default)]
struct Tally {
    answered: usize,
    /// Requests that were sent before the signal and never answered.
    cut_off: usize,
    /// Requests that were sent after the signal on a connection that was then closed. The client may send
    /// them again.
    refused: usize,
}

#[on_each_database]
fn requests_sent_before_the_signal_are_answered(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0)
            .database(url)
            .set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000")
            .set("TOLLKEEPER_LOG__ACCESS", "false");
        let mut server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let mut total = Tally::default();
        let mut counted = 0;
        for stop in 0..stops() {
            let (token, answered) = (server.service_token(), AtomicUsize::new(0));
            let clients: Vec<_> = (0..16)
                .map(|number| Reporter {
                    address: server.service,
                    token: &token,
                    place: &place,
                    keeps_alive: number % 2 == 0,
                    answered: &answered,
                })
                .collect();
            let (signalled, sent) = std::thread::scope(|scope| {
                let running: Vec<_> = clients
                    .iter()
                    .enumerate()
                    .map(|(number, client)| scope.spawn(move || client.run(&format!("{stop}-{number}"))))
                    .collect();
                assert!(until(|| answered.load(Ordering::Relaxed) > 100));
                let signalled = Instant::now();
                server.terminate();
                let sent: Vec<_> = running.into_iter().flat_map(|client| client.join().unwrap()).collect();
                (signalled, sent)
            });
            let ended = server.wait();
            assert_eq!(ended.code, Some(0), "{}", ended.log);
            assert!(!ended.log.contains("cut off") && !ended.log.contains("panic"), "{}", ended.log);
            for one in &sent {
                match one.status {
                    Some(status) => {
                        assert_eq!(status, 200);
                        total.answered += 1;
                    }
                    None if one.at < signalled => total.cut_off += 1,
                    None => total.refused += 1,
                }
            }
            server = start.run();
            // Answered events are recorded, and the others can be sent again. Each counts once.
            for one in &sent {
                let expected =
                    if one.status.is_some() { &["duplicate"][..] } else { &["duplicate", "accepted"] };
                assert!(expected.contains(&server.report(&place, &one.id).as_str()), "{}", one.id);
            }
            counted += i64::try_from(sent.len()).unwrap();
            assert_eq!(server.requests(&place, &ada), counted);
        }
        println!(
            "{}: {} stops, {} answered, {} sent before the signal and not answered, {} sent after it and refused",
            if url.is_some() { "postgres" } else { "sqlite" },
            stops(),
            total.answered,
            total.cut_off,
            total.refused
        );
        assert_eq!(total.cut_off, 0);
        assert_eq!(server.stop().code, Some(0));
        let audit = start.command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    });
}

/// Requests on connections that wait to be accepted are answered too.
#[test]
fn queued_connections_are_answered_at_the_stop() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_SERVER__MAX_CONNECTIONS", "2").run();
    let body = json!({"token": "nobody's"});
    let held: Vec<_> = (0..2).map(|_| server.post("/v1/auth/verify-email", &body).begin()).collect();
    let waiting = 8;
    let (connected, sent) = (Barrier::new(waiting + 1), Wire::new(server.public, "GET", "/healthz"));
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..waiting)
            .map(|_| {
                let mut stream = sent.open();
                let connected = &connected;
                scope.spawn(move || {
                    connected.wait();
                    read_answer(&mut stream, true).map(|answer| answer.status)
                })
            })
            .collect();
        connected.wait();
        server.terminate();
        server.wait_for_log("stopping");
        for one in held {
            assert_eq!(one.finish().status, 400);
        }
        for one in waiting {
            assert_eq!(one.join().unwrap().unwrap(), 200);
        }
    });
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.log.contains("cut off"), "{}", ended.log);
}

/// Batches whose bodies arrive after the signal are recorded and capture their reservations.
#[on_each_database]
fn batches_in_flight_are_captured(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let flying: Vec<_> = (0..5)
            .map(|number| {
                let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 500,
                                      "estimated_prompt_tokens": 1_000});
                let decision = server.ask("/service/v1/authorize", &question).bare();
                let mut batch = usage_event(&place, &format!("e{number}"));
                batch["events"][0]["reservation_id"] = decision["reservation"]["id"].clone();
                server.ask("/service/v1/usage", &batch).begin()
            })
            .collect();
        server.terminate();
        server.wait_for_log("stopping");
        for one in flying {
            let answer = one.finish();
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.json()["results"][0]["status"], "accepted");
            assert_eq!(answer.header("connection"), "close");
        }
        assert_eq!(server.wait().code, Some(0));
        let server = start.run();
        assert_eq!(server.requests(&place, &ada), 5);
        let path =
            format!("/v1/organizations/{}/billing/summary", place.project_path.split('/').nth(3).unwrap());
        let summary = server.get(&path).bearer(&ada.access_token).data();
        assert_eq!(summary["balance"]["reserved"].as_f64(), Some(0.0), "{summary}");
    });
}

/// Clients that stop sending or reading delay the stop at most by the configured time, and delay no other
/// answer.
#[test]
fn slow_clients_do_not_delay_the_stop() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_SHUTDOWN_GRACE_MS", "3000").run();
    // The client requests more than fits in all buffers, and reads none of it.
    let mut greedy = TcpStream::connect(server.public).unwrap();
    greedy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    assert!(until(|| greedy.write_all(ask.as_bytes()).is_err()));
    let body = json!({"token": "nobody's"});
    let silent = server.post("/v1/auth/verify-email", &body).begin();
    let slow = server.post("/v1/auth/verify-email", &body).begin();
    server.terminate();
    server.wait_for_log("stopping");
    assert_eq!(slow.finish().status, 400, "a client that is slow, but not too slow, is answered");
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(ended.log.contains("cut off"), "{}", ended.log);
    drop((silent, greedy));
}

/// An e-mail in transmission at the signal is sent once. The next server sends the next one.
#[on_each_database]
fn mail_in_transmission_is_sent_once(database: Database) {
    let Some(python) = smtp::python("a stop while an e-mail is being sent") else { return };
    database.run_processes(|url, folder| {
        let mail_server = MailServer::start(&python, &["--slow-content", "ada"]);
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_MAIL__URL", &mail_server.url());
        let server = start.run();
        let register = |name: &str| {
            let email = format!("{name}@example.com");
            let body = json!({"email": email, "password": PASSWORD, "username": name});
            server.post("/v1/auth/register", &body).data();
        };
        register("ada");
        // The mail server has received the e-mail, but hasn't confirmed it.
        assert!(until(|| mail_server.mails().len() == 1));
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(ended.log.contains("mail sent"), "{}", ended.log);
        let next: Server = start.run();
        next.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data();
        assert!(until(|| mail_server.mails().len() > 1));
        let subjects: Vec<_> = mail_server.mails().iter().map(subject).collect();
        assert_eq!(subjects.len(), 2, "{subjects:?}");
        assert_ne!(subjects[0], subjects[1]);
    });
}

fn subject(mail: &serde_json::Value) -> String {
    let content = mail["content"].as_str().unwrap();
    content.lines().find(|line| line.starts_with("Subject:")).unwrap().to_owned()
}

/// The server stops cleanly at any time during its start.
#[on_each_database]
fn stop_during_the_start_is_clean(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        assert_eq!(start.run().stop().code, Some(0));
        for stop in 0..stops() {
            let server = start.launch();
            std::thread::sleep(Duration::from_millis(5 * stop % 100));
            server.terminate();
            let ended = server.wait();
            // Until the server handles signals, the system ends the process.
            assert!(matches!(ended.code, None | Some(0)), "{:?}: {}", ended.code, ended.log);
        }
        assert_eq!(start.run().stop().code, Some(0), "the next start succeeds");
    });
}
