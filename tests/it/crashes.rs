//! The server is killed again and again while clients report, reserve, capture and release, and credit is added beside it. Clients ask
//! again, with the same ids, until they are answered. In the end everything that was answered is there exactly once. The same with
//! three replicas, one of which is dead now and then: clients go to the others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::clock::{Clock, HOUR_MS};
use tollkeeper::db::{Db, sql};
use tollkeeper::jobs::reservations::expire_due;

use crate::support::chance::{Chance, first_seed, number};
use crate::support::http::Answer;
use crate::support::process::{Place, Start, Wire, on_each_database_url, usage_event};
use crate::support::replicas::{Fleet, Replicas};
use crate::support::world::{Folder, runtime};

/// What one token of a prompt and one of an answer are in the test: every event has as many.
const TOKENS: (i64, i64) = (1_000, 500);

/// Only a server that doesn't come back lets a client wait this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients know of the server.
pub struct Target<'a> {
    pub start: &'a Start,
    /// In turn, those that are dead among them.
    pub services: RwLock<Vec<SocketAddr>>,
    pub turn: AtomicUsize,
    pub token: String,
    pub place: Place,
    pub organization: String,
    pub over: AtomicBool,
}

impl Target<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn next(&self) -> SocketAddr {
        let services = self.services.read().unwrap();
        services[self.turn.fetch_add(1, Ordering::Relaxed) % services.len()]
    }

    /// Asks again until there is an answer that isn't "later", from whichever server is up by then.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let asked = Instant::now();
        loop {
            let in_time = asked.elapsed() < PATIENCE;
            assert!(in_time, "nobody answers {path}");
            let address = self.next();
            let sent = Wire::new(address, method, path).bearer(&self.token).json(body).try_send();
            match sent {
                Ok(answer) if answer.status != 503 => return answer,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Reports these events until each is answered; a repeated one is a duplicate by then.
    pub fn report(&self, events: &[Value]) {
        let answer = self.ask("POST", "/service/v1/usage", &json!({ "events": events }));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let results = answer.json()["results"].as_array().unwrap().clone();
        assert_eq!(results.len(), events.len());
        for result in results {
            let counts = result["status"] == "accepted" || result["status"] == "duplicate";
            assert!(counts, "{result}");
        }
    }

    /// Reports an event once, whatever the answer.
    pub fn try_to_report(&self, event: &Value) -> Answer {
        let wire = Wire::new(self.next(), "POST", "/service/v1/usage");
        wire.bearer(&self.token).json(&json!({ "events": [event] })).send()
    }

    pub fn event(&self, id: &str) -> Value {
        usage_event(&self.place, id)["events"][0].clone()
    }
}

/// What one client was answered.
#[derive(Default)]
pub struct Answered {
    pub events: Vec<String>,
    pub captured: Vec<String>,
    pub credits: Vec<String>,
}

/// Single events and batches of several, some of which are repeated although they were answered.
fn reporter(target: &Target<'_>, name: &str, mut chance: Chance) -> Answered {
    let mut answered = Answered::default();
    for round in 0.. {
        if !target.goes_on() {
            break;
        }
        let size = if chance.below(3) == 0 { 2 + chance.below(20) } else { 1 };
        let mut ids: Vec<_> = (0..size).map(|n| format!("{name}-{round}-{n}")).collect();
        let repeated = answered.events.len();
        if repeated > 0 && chance.below(4) == 0 {
            target.report(&[target.event(&answered.events[chance.below(repeated)])]);
        }
        let events: Vec<_> = ids.iter().map(|id| target.event(id)).collect();
        target.report(&events);
        answered.events.append(&mut ids);
    }
    answered
}

/// Calls: reserved, then captured, released, or left to themselves.
fn caller(target: &Target<'_>, name: &str, mut chance: Chance) -> Answered {
    let mut answered = Answered::default();
    let question = json!({"credential": target.place.key, "operation": "chat", "model": "svc-1", "max_tokens": TOKENS.1,
                          "estimated_prompt_tokens": TOKENS.0});
    for round in 0.. {
        if !target.goes_on() {
            break;
        }
        let decision = target.ask("POST", "/service/v1/authorize", &question).json();
        assert_eq!(decision["allowed"], true, "{decision}");
        let reservation = decision["reservation"]["id"].as_str().unwrap().to_owned();
        let path = format!("/service/v1/reservations/{reservation}");
        match chance.below(8) {
            // Released, perhaps by a try that was never answered.
            0 => {
                let status = target.ask("DELETE", &path, &json!({})).status;
                assert!(status == 200 || status == 404, "{status}");
            }
            1 => {}
            _ => {
                let id = format!("{name}-{round}");
                let mut event = target.event(&id);
                event["reservation_id"] = json!(reservation);
                target.report(&[event]);
                answered.events.push(id);
                answered.captured.push(reservation);
            }
        }
    }
    answered
}

/// Credit from the command line, each again until it says that it is there.
fn payer(target: &Target<'_>) -> Answered {
    let mut answered = Answered::default();
    for round in 0.. {
        if !target.goes_on() {
            break;
        }
        let reference = format!("payment-{round}");
        let arguments = [
            "credit",
            "add",
            "--organization",
            &target.organization,
            "--amount",
            "1.25",
            "--reference",
            &reference,
        ];
        // Once more: it is there already.
        for _ in 0..2 {
            while target.start.command(&arguments).code != Some(0) {}
        }
        answered.credits.push(reference);
    }
    answered
}

fn texts(db: &Db, text: &'static str) -> Vec<String> {
    runtime().block_on(async {
        let rows: Vec<(String,)> = sql(text).all(&mut db.read().await.unwrap()).await.unwrap();
        rows.into_iter().map(|(text,)| text).collect()
    })
}

/// Everything that was answered, and nothing else, is in the books once.
pub fn assert_all_there(target: &Target<'_>, answered: &[Answered]) -> String {
    let db = Db::open(&target.start.database_settings()).unwrap();
    let all =
        |of: fn(&Answered) -> &Vec<String>| -> BTreeSet<&String> { answered.iter().flat_map(of).collect() };
    let (events, credits) = (all(|one| &one.events), all(|one| &one.credits));
    let stored = texts(&db, "SELECT event_id FROM usage_events");
    assert_eq!(stored.len(), events.len(), "each event once");
    assert!(stored.iter().collect::<BTreeSet<_>>() == events, "the events that were answered");
    let stored = texts(&db, "SELECT reference FROM credits WHERE kind = 'purchase'");
    assert_eq!(stored.len(), credits.len(), "each credit once");
    assert!(stored.iter().collect::<BTreeSet<_>>() == credits, "the credits that were answered");
    let left: BTreeSet<_> = texts(&db, "SELECT id FROM reservations").into_iter().collect();
    let captured = all(|one| &one.captured);
    assert!(captured.iter().all(|id| !left.contains(*id)), "a captured reservation holds no money");

    let count = i64::try_from(events.len()).unwrap();
    let sums: (i64, i64, i64) = runtime().block_on(async {
        let mut tx = db.read().await.unwrap();
        sql("SELECT CAST(SUM(requests) AS BIGINT), CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(completion_tokens) AS BIGINT)
             FROM usage_daily")
        .one(&mut tx)
        .await
        .unwrap()
    });
    assert_eq!(sums, (count, count * TOKENS.0, count * TOKENS.1), "nothing counts twice");
    format!(
        "{count} events, {} captures, {} credits, {} reservations left",
        captured.len(),
        credits.len(),
        left.len()
    )
}

/// What is set aside for calls that nobody ended is free again when its time is over.
fn assert_reservations_end(start: &Start) {
    runtime().block_on(async {
        let later = Clock::fixed(Clock::System.now().plus_ms(HOUR_MS));
        let app = App::new(start.config(), later).unwrap();
        app.boot().await.unwrap();
        expire_due(&app).await.unwrap();
    });
    let db = Db::open(&start.database_settings()).unwrap();
    assert!(texts(&db, "SELECT id FROM reservations").is_empty());
    assert!(texts(&db, "SELECT organization_id FROM wallets WHERE reserved_nano <> 0").is_empty());
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    println!("{}", audit.stdout.trim());
}

/// Three who report, three who call and one who pays, until it is over.
pub fn set_to_work<'s>(
    scope: &'s Scope<'s, '_>,
    target: &'s Target<'_>,
) -> Vec<ScopedJoinHandle<'s, Answered>> {
    let mut clients = Vec::new();
    for client in 0..3 {
        let (one, other) = (Chance::new(100 + client), Chance::new(200 + client));
        clients.push(scope.spawn(move || reporter(target, &format!("reporter{client}"), one)));
        clients.push(scope.spawn(move || caller(target, &format!("caller{client}"), other)));
    }
    clients.push(scope.spawn(move || payer(target)));
    clients
}

/// Kills one server after the other, at any moment, while clients go on; it is started again, and what was answered is looked for.
fn play(count: usize, url: Option<&str>, folder: &Folder) {
    let kills = number("TOLLKEEPER_TEST_KILLS").unwrap_or(4);
    let replicas = Replicas::new(count, url, folder).generous(folder);
    let replicas = replicas.set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000");
    let mut fleet = replicas.run();
    let ada = fleet.sign_up("ada");
    let place = fleet.settle(&ada, "Acme");
    let addresses = |fleet: &Fleet| fleet.servers.iter().map(|server| server.service).collect::<Vec<_>>();
    let target = Target {
        organization: place.organization().to_owned(),
        services: RwLock::new(addresses(&fleet)),
        turn: AtomicUsize::new(0),
        token: fleet.next().service_token(),
        over: AtomicBool::new(false),
        start: &replicas.starts[0],
        place,
    };
    let mut chance = Chance::new(first_seed());
    let answered: Vec<Answered> = std::thread::scope(|scope| {
        let target = &target;
        let clients = set_to_work(scope, target);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(chance.below(400) as u64));
            // A client that gave up would leave the others waiting for a server for ever.
            if clients.iter().any(ScopedJoinHandle::is_finished) {
                break;
            }
            let victim = chance.below(count);
            assert_eq!(fleet.servers.remove(victim).kill().code, None, "it died by the signal");
            fleet.servers.insert(victim, replicas.starts[victim].run());
            *target.services.write().unwrap() = addresses(&fleet);
        }
        target.over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let figures = assert_all_there(&target, &answered);
    let backend = if url.is_some() { "postgres" } else { "sqlite" };
    println!("{backend}, {count} servers, {kills} kills: {figures}");
    fleet.stop();
    assert_reservations_end(&replicas.starts[0]);
}

#[test]
fn what_was_answered_is_there_once_however_often_the_server_dies() {
    on_each_database_url(|url, folder| play(1, url, folder));
}

#[test]
fn what_was_answered_is_there_once_however_often_replicas_die() {
    on_each_database_url(|url, folder| play(3, url, folder));
}
