//! Kills the server repeatedly while clients report, correct, reserve, capture and release, credit is added
//! and expires, and months are closed. Clients retry with the same ids until they get an answer. In the end
//! everything that was answered must be recorded exactly once. A second test runs three replicas, one of
//! which is killed from time to time, and clients fail over to the others.

mod payments;
mod streams;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::{closing, credits};
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::clock::{Clock, DAY_MS, HOUR_MS};
use tollkeeper::db::{Db, sql};
use tollkeeper::trail::Trail;

use support::chance::{Chance, first_seed, number};
use support::http::Answer;
use support::process::{Place, Start, Wire, usage_event};
use support::replicas::{Fleet, Replicas};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

/// The tokens of each event: prompt tokens and completion tokens.
const TOKENS: (i64, i64) = (1_000, 500);
/// The tokens that a correction subtracts.
const CORRECTED_TOKENS: (i64, i64) = (100, 50);

/// Maximum time that a client waits for a server to restart.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The servers under test, from the clients' point of view.
pub struct Target<'a> {
    pub start: &'a Start,
    /// The addresses that clients use in turn, including those of dead servers.
    pub services: RwLock<Vec<SocketAddr>>,
    pub turn: AtomicUsize,
    pub token: String,
    pub place: Place,
    pub organization: String,
    pub over: AtomicBool,
}

impl Target<'_> {
    fn is_running(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn next(&self) -> SocketAddr {
        let services = self.services.read().unwrap();
        services[self.turn.fetch_add(1, Ordering::Relaxed) % services.len()]
    }

    /// Sends a request to one server after another until a server answers with a status other than 503.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let asked = Instant::now();
        loop {
            let in_time = asked.elapsed() < CLIENT_TIMEOUT;
            assert!(in_time, "no server answers {path}");
            let address = self.next();
            let sent = Wire::new(address, method, path).bearer(&self.token).json(body).try_send();
            match sent {
                Ok(answer) if answer.status != 503 => return answer,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Reports these events until each is answered. A retried event may be a duplicate.
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

    /// Reports an event once, without retries.
    pub fn try_to_report(&self, event: &Value) -> Answer {
        let wire = Wire::new(self.next(), "POST", "/service/v1/usage");
        wire.bearer(&self.token).json(&json!({ "events": [event] })).send()
    }

    pub fn event(&self, id: &str) -> Value {
        usage_event(&self.place, id)["events"][0].clone()
    }
}

/// The ids of the requests of one client that were answered.
#[derive(Default)]
pub struct ClientRecord {
    pub events: Vec<String>,
    pub corrections: Vec<String>,
    pub captured: Vec<String>,
    pub credits: Vec<String>,
}

/// Reports single events and batches, and repeats some of them.
fn report_events(target: &Target<'_>, name: &str, mut chance: Chance) -> ClientRecord {
    let mut answered = ClientRecord::default();
    for round in 0.. {
        if !target.is_running() {
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
        // Each event is corrected at most once. Its month may be closed by then.
        let next = answered.corrections.len() * 3;
        if next < answered.events.len() && chance.below(3) == 0 {
            let corrected = &answered.events[next];
            let id = format!("{corrected}-less");
            let mut event = target.event(&id);
            event["corrects"] = json!(corrected);
            event["prompt_tokens"] = json!(-CORRECTED_TOKENS.0);
            event["completion_tokens"] = json!(-CORRECTED_TOKENS.1);
            target.report(&[event]);
            answered.corrections.push(id);
        }
    }
    answered
}

/// Reserves calls, then captures them, releases them, or lets them expire.
fn make_calls(target: &Target<'_>, name: &str, mut chance: Chance) -> ClientRecord {
    let mut answered = ClientRecord::default();
    let question = json!({"credential": target.place.key, "operation": "chat", "model": "svc-1", "max_tokens": TOKENS.1,
                          "estimated_prompt_tokens": TOKENS.0});
    for round in 0.. {
        if !target.is_running() {
            break;
        }
        let decision = target.ask("POST", "/service/v1/authorize", &question).json();
        assert_eq!(decision["allowed"], true, "{decision}");
        let reservation = decision["reservation"]["id"].as_str().unwrap().to_owned();
        let path = format!("/service/v1/reservations/{reservation}");
        match chance.below(8) {
            // The reservation is released, perhaps by an earlier attempt whose answer was lost.
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

/// Returns a clock at which the month before this number of months from now can be closed.
fn closed_month(months: i64) -> Clock {
    let month = Clock::System.now().day().month().plus(months);
    Clock::fixed(month.start().plus_ms(2 * DAY_MS))
}

/// Closes one month after another with a clock that runs ahead, so reports are late, and corrections are of
/// billed months. Returns the number of months.
fn close_months(target: &Target<'_>) -> i64 {
    let mut months = 0;
    while target.is_running() {
        std::thread::sleep(Duration::from_millis(300));
        let closed = runtime().block_on(async {
            let app = App::new(target.start.config(), closed_month(months + 1)).unwrap();
            app.boot().await.ok()?;
            let closing = closing::close_due(&app.billing, app.clock.now(), &Trail::system(), None).await;
            closing.ok().filter(|outcome| outcome.failed.is_empty())
        });
        months += i64::from(closed.is_some());
    }
    months
}

/// Adds credits that expire, and tries each only once.
fn add_grants(target: &Target<'_>) -> ClientRecord {
    for round in 0.. {
        if !target.is_running() {
            break;
        }
        let until = Clock::System.now().plus_ms(3_000).to_string();
        let organization = target.organization.as_str();
        let reference = format!("grant-{round}");
        let arguments =
            ["credit", "add", "--organization", organization, "--amount", "2", "--grant", "--expires-at"];
        let ended =
            target.start.command(&[&arguments[..], &[until.as_str(), "--reference", &reference]].concat());
        assert!(ended.code == Some(0) || ended.code == Some(1), "{}", ended.log);
    }
    ClientRecord::default()
}

/// Adds credits with the command, and repeats each until it succeeds.
fn add_payments(target: &Target<'_>) -> ClientRecord {
    let mut answered = ClientRecord::default();
    for round in 0.. {
        if !target.is_running() {
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
        // The second call finds the existing credit.
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

/// Asserts that everything that was answered is in the books exactly once, and nothing else is.
pub fn assert_recorded_once(target: &Target<'_>, answered: &[ClientRecord]) -> String {
    let db = Db::open(&target.start.database_settings()).unwrap();
    let all = |of: fn(&ClientRecord) -> &Vec<String>| -> BTreeSet<&String> {
        answered.iter().flat_map(of).collect()
    };
    let (events, credits) = (all(|one| &one.events), all(|one| &one.credits));
    let corrections = all(|one| &one.corrections);
    let stored = texts(&db, "SELECT event_id FROM usage_events WHERE corrects IS NOT NULL");
    assert_eq!(stored.len(), corrections.len(), "each correction once");
    assert!(stored.iter().collect::<BTreeSet<_>>() == corrections, "the acknowledged corrections");
    let stored = texts(&db, "SELECT event_id FROM usage_events WHERE corrects IS NULL");
    assert_eq!(stored.len(), events.len(), "each event once");
    assert!(stored.iter().collect::<BTreeSet<_>>() == events, "the acknowledged events");
    let stored = texts(&db, "SELECT reference FROM credits WHERE kind = 'purchase'");
    assert_eq!(stored.len(), credits.len(), "each credit once");
    assert!(stored.iter().collect::<BTreeSet<_>>() == credits, "the acknowledged credits");
    let left: BTreeSet<_> = texts(&db, "SELECT id FROM reservations").into_iter().collect();
    let captured = all(|one| &one.captured);
    assert!(captured.iter().all(|id| !left.contains(*id)), "a captured reservation holds no money");

    let [count, corrected] = [&events, &corrections].map(|all| i64::try_from(all.len()).unwrap());
    let sums: (i64, i64, i64) = runtime().block_on(async {
        let mut tx = db.read().await.unwrap();
        sql("SELECT CAST(SUM(requests) AS BIGINT), CAST(SUM(prompt_tokens) AS BIGINT), CAST(SUM(completion_tokens) AS BIGINT)
             FROM usage_daily")
        .one(&mut tx)
        .await
        .unwrap()
    });
    let tokens = |each, back| count * each - corrected * back;
    let due = (count, tokens(TOKENS.0, CORRECTED_TOKENS.0), tokens(TOKENS.1, CORRECTED_TOKENS.1));
    assert_eq!(sums, due, "nothing counts twice");
    let notes = texts(&db, "SELECT id FROM credit_notes").len();
    let ended = texts(&db, "SELECT id FROM credits WHERE expired_at IS NOT NULL").len();
    format!(
        "{count} events, {corrected} corrections, {notes} credit notes, {ended} credits ended, {} captures, {} credits, \
         {} reservations left",
        captured.len(),
        credits.len(),
        left.len()
    )
}

/// Asserts that abandoned reservations are released after they expire, and that the books pass the audit.
fn assert_reservations_end(start: &Start, months: i64) {
    let drifts = runtime().block_on(async {
        let later = if months == 0 {
            Clock::fixed(Clock::System.now().plus_ms(HOUR_MS))
        } else {
            closed_month(months)
        };
        let app = App::new(start.config(), later).unwrap();
        app.boot().await.unwrap();
        expire_due(&app.billing).await.unwrap();
        credits::expire_due(&app.billing, &Trail::system()).await.unwrap();
        audit::check(&app.billing, None).await.unwrap().drifts
    });
    assert!(drifts.is_empty(), "{drifts:#?}");
    let db = Db::open(&start.database_settings()).unwrap();
    assert!(texts(&db, "SELECT id FROM reservations").is_empty());
    assert!(texts(&db, "SELECT organization_id FROM wallets WHERE reserved_nano <> 0").is_empty());
}

/// Starts three clients that report, three that make calls, one that adds payments and one that adds grants.
pub fn run_clients<'s>(
    scope: &'s Scope<'s, '_>,
    target: &'s Target<'_>,
) -> Vec<ScopedJoinHandle<'s, ClientRecord>> {
    let mut clients = Vec::new();
    for client in 0..3 {
        let (one, other) = (Chance::new(100 + client), Chance::new(200 + client));
        clients.push(scope.spawn(move || report_events(target, &format!("reporter{client}"), one)));
        clients.push(scope.spawn(move || make_calls(target, &format!("caller{client}"), other)));
    }
    clients.push(scope.spawn(move || add_payments(target)));
    clients.push(scope.spawn(move || add_grants(target)));
    clients
}

/// Kills one server after another at random times while clients continue, restarts it, and checks that
/// answered requests are recorded.
fn crash_servers(count: usize, url: Option<&str>, folder: &Folder) {
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
    let (answered, months): (Vec<ClientRecord>, i64) = std::thread::scope(|scope| {
        let target = &target;
        let clients = run_clients(scope, target);
        let close_months = scope.spawn(move || close_months(target));
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(chance.below(400) as u64));
            // If a client has given up, the others would wait for it forever.
            if clients.iter().any(ScopedJoinHandle::is_finished) {
                break;
            }
            let victim = chance.below(count);
            assert_eq!(
                fleet.servers.remove(victim).kill().code,
                None,
                "the process was killed by the signal"
            );
            fleet.servers.insert(victim, replicas.starts[victim].run());
            *target.services.write().unwrap() = addresses(&fleet);
        }
        target.over.store(true, Ordering::Relaxed);
        let answered = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (answered, close_months.join().unwrap())
    });
    let figures = assert_recorded_once(&target, &answered);
    let backend = if url.is_some() { "postgres" } else { "sqlite" };
    println!("{backend}, {count} servers, {kills} kills, {months} months closed: {figures}");
    fleet.stop();
    assert_reservations_end(&replicas.starts[0], months);
}

#[on_each_database]
fn answered_requests_survive_crashes_once(database: Database) {
    database.run_processes(|url, folder| crash_servers(1, url, folder));
}

#[on_each_database]
fn answered_requests_survive_replica_crashes_once(database: Database) {
    database.run_processes(|url, folder| crash_servers(3, url, folder));
}
