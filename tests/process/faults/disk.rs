//! A disk that fills up and empties again under load. Answered requests are recorded, and the others can be
//! sent again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tollkeeper::web::route::ErrorShape;

use super::{assert_failure, fill_up, path_in_mounts, private_mounts};
use support::chance::number;
use support::process::{Place, Server, until, usage_event};
use support::replicas::Replicas;
use support::world::Folder;

/// A client that repeats each event until it is answered.
struct Client<'a> {
    server: &'a Server,
    place: &'a Place,
    number: usize,
    over: &'a AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Client<'_> {
    /// Returns the ids of the answered events.
    fn run(&self) -> Vec<String> {
        let mut answered = Vec::new();
        for round in 0.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let id = format!("{}-{round}", self.number);
            let mut batch = usage_event(self.place, &id);
            if round % 4 == 0 {
                let question = json!({"credential": self.place.key, "operation": "chat", "model": "svc-1",
                                      "max_tokens": 500, "estimated_prompt_tokens": 1_000});
                let decision = self.ask("/service/v1/authorize", &question);
                assert_eq!(decision["allowed"], true, "{decision}");
                batch["events"][0]["reservation_id"] = decision["reservation"]["id"].clone();
            }
            let result = self.ask("/service/v1/usage", &batch)["results"][0].clone();
            // A refused event isn't recorded, so the repetition isn't a duplicate.
            assert_eq!(result["status"], "accepted", "{result}");
            answered.push(id);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        answered
    }

    fn ask(&self, path: &str, body: &serde_json::Value) -> serde_json::Value {
        loop {
            let answer = self.server.ask(path, body).send();
            if answer.status == 200 {
                return answer.json();
            }
            assert_failure(&answer, 503, "storage_full", ErrorShape::Bare);
            self.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Waits until this counter has increased for every client.
fn all_rise(clients: &[Client<'_>], figure: for<'a> fn(&'a Client<'_>) -> &'a AtomicU64, what: &str) {
    let before: Vec<_> = clients.iter().map(|client| figure(client).load(Ordering::Relaxed)).collect();
    let all = || {
        let now = clients.iter().map(|client| figure(client).load(Ordering::Relaxed));
        now.zip(&before).all(|(now, before)| now > *before)
    };
    assert!(until(all), "some are never {what}");
}

#[test]
fn full_disk_under_load_loses_no_answered_event() {
    let rounds = number("TOLLKEEPER_TEST_TRIALS").unwrap_or(2);
    let folder = Folder::new();
    let replicas = Replicas::new(1, None, &folder).generous(&folder);
    let start = replicas.set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000").starts.remove(0);
    let data = start.data_dir();
    std::fs::create_dir(&data).unwrap();
    let mount = "mount -t tmpfs -o size=16m,mode=0700 none \"$0\"";
    let Some(wrapper) = private_mounts(&data, mount) else { return };
    let words: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let mut server = start.clone().through(&words).run();
    server.data_dir = path_in_mounts(&server, &data);
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let (ballast, over) = (server.data_dir.join("ballast"), AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|number| Client {
            server: &server,
            place: &place,
            number,
            over: &over,
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
        .collect();
    let answered: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = clients.iter().map(|client| scope.spawn(|| client.run())).collect();
        for _ in 0..rounds {
            all_rise(&clients, |client| &client.answered, "answered");
            fill_up(&ballast);
            all_rise(&clients, |client| &client.refused, "refused");
            // Reads and cached keys still work.
            assert!(server.requests(&place, &ada) > 0);
            assert_eq!(server.get("/v1/models").bearer(&place.key).send().status, 200);
            std::fs::remove_file(&ballast).unwrap();
            all_rise(&clients, |client| &client.answered, "answered again");
        }
        over.store(true, Ordering::Relaxed);
        running.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let refused: u64 = clients.iter().map(|client| client.refused.load(Ordering::Relaxed)).sum();
    println!("sqlite: full {rounds} times, {} events answered, {refused} requests refused", answered.len());
    assert!(
        server.log().contains("ERROR web::server::dispatcher: storage_full: The server's disk is full"),
        "{}",
        server.log()
    );
    assert_eq!(server.requests(&place, &ada), i64::try_from(answered.len()).unwrap());
    // This event has no reservation, so repeating it is a duplicate.
    assert_eq!(server.report(&place, "0-1"), "duplicate");
    let pid = server.pid().to_string();
    let mut enter = vec!["nsenter", "--target", &pid, "--mount"];
    if words.contains(&"-Urm") {
        enter.extend(["--user", "--preserve-credentials"]);
    }
    let audit = start.clone().through(&enter).command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    drop(clients);
    assert_eq!(server.stop().code, Some(0));
}
