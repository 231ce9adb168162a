//! Clocks that jump forward and back. Tokens, rates, leases, reservations, e-mails and months stay correct.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::billing::{bookkeeping as billing, retention};
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use tollkeeper::cluster::leases::{LEASE_MS, Lease};
use tollkeeper::db::sql;
use tollkeeper::jobs::sweep::sweep;
use tollkeeper::mail::sending::send_due;
use tollkeeper::metrics::Job;
use tollkeeper::web::route::Listener;

use support::books::{assert_books, number};
use support::chance::{self, Chance};
use support::faketime::FakeClock;
use support::http::{Answer, Call};
use support::process::usage_event;
use support::replicas::{Replicas, generous_catalog};
use support::world::{Folder, PASSWORD, TestUser, World};
use support::{Database, on_each_database};

/// A replica in this process.
struct Replica {
    app: App,
    public: Dispatcher,
    service: Dispatcher,
    lease: Lease,
    walk: retention::Progress,
}

impl Replica {
    async fn new(world: &World) -> Self {
        let app = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
        app.boot().await.unwrap();
        Self {
            public: tollkeeper::api::routes::dispatcher(&app.api, Listener::Public),
            service: tollkeeper::api::routes::dispatcher(&app.api, Listener::Service),
            lease: app.leases.lease(Job::Billing),
            walk: retention::Progress::default(),
            app,
        }
    }

    fn ask(&self, method: Method, path: &str, body: &Value) -> Call {
        Call::new(&self.service, method, path).bearer(self.app.api.service_token.expose()).json(body)
    }

    /// Runs every job once. No job may fail because of a clock.
    async fn work(&mut self) {
        let app = &self.app;
        app.feed.catch_up().await.unwrap();
        sweep(app).await.unwrap();
        expire_due(&app.billing).await.unwrap();
        send_due(&app.mail).await.unwrap();
        app.keys.last_uses.flush(usize::MAX).await.unwrap();
        app.keys.rates.return_leases(false).await;
        billing::run_due(&app.billing, &self.lease).await.unwrap();
        retention::step(&app.billing, &mut self.walk).await.unwrap();
    }
}

/// The credentials and ids for calls.
struct Scene {
    ada: TestUser,
    key_id: String,
    key: String,
    limited: String,
}

impl Scene {
    async fn new(world: &World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (key_id, key) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
        let restricted = json!({"name": "limited", "restrictions": {"rate_limit": 10}});
        let (_, limited) = world.old_key(&ada, &place, &restricted).await;
        Self { ada, key_id, key, limited }
    }

    /// Makes one call of each kind to this replica, according to its clock.
    async fn make_calls(&self, world: &World, replica: &Replica, id: &str) {
        let get = |path: &str, bearer: &str| Call::new(&replica.public, Method::GET, path).bearer(bearer);
        let fresh = world.token(TokenKind::Access, self.ada.id, self.ada.session_id, 3600).await;
        assert_eq!(get("/v1/auth/me", &fresh).send().await.status, 200);
        // A token from another time may be accepted or refused, but nothing else may happen.
        let old = get("/v1/auth/me", &self.ada.access_token).send().await.status;
        assert!(old == 200 || old == 401, "{old}");
        assert_eq!(get("/v1/models", &self.key).send().await.status, 200);
        let name = json!({"name": format!("Of {id}")});
        let create = Call::new(&replica.public, Method::POST, "/v1/organizations").bearer(&fresh).json(&name);
        assert_eq!(create.data().await["created_at"], world.clock.now().to_string());
        self.drain(replica).await;

        let question = json!({"credential": self.key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
                              "estimated_prompt_tokens": 10});
        let decision = replica.ask(Method::POST, "/service/v1/authorize", &question).bare().await;
        assert_eq!(decision["allowed"], true, "{decision}");
        let reservation = &decision["reservation"]["id"];
        let expires_at = Time::parse(decision["reservation"]["expires_at"].as_str().unwrap()).unwrap();
        assert_eq!(expires_at, world.clock.now().plus_ms(10 * MINUTE_MS));
        let event = json!({"id": id, "source": "s", "time": world.clock.now().to_string(), "api_key_id": self.key_id,
                           "model": "svc-1", "kind": "chat", "prompt_tokens": 10, "completion_tokens": 100});
        for status in ["accepted", "duplicate"] {
            let body = json!({ "events": [event] });
            let answer = replica.ask(Method::POST, "/service/v1/usage", &body).bare().await;
            assert_eq!(answer["results"][0]["status"], status, "{answer}");
        }
        // Half of the reservations are released, and the others expire.
        if id.len().is_multiple_of(2) {
            let path = format!("/service/v1/reservations/{}", reservation.as_str().unwrap());
            replica.ask(Method::DELETE, &path, &json!({})).bare().await;
        }
    }

    /// Makes calls with the limited key until one is refused. That must happen soon, with a wait of at most a
    /// minute.
    async fn drain(&self, replica: &Replica) {
        for _ in 0..=20 {
            let answer: Answer = Call::new(&replica.public, Method::GET, "/v1/billing/pricing")
                .bearer(&self.limited)
                .send()
                .await;
            if answer.status == 429 {
                let wait_ms: i64 = answer.header("retry-after-ms").parse().unwrap();
                assert!((1..=60_000).contains(&wait_ms), "{wait_ms}");
                let wait_s: i64 = answer.header("retry-after").parse().unwrap();
                assert!((1..=60).contains(&wait_s), "{wait_s}");
                return;
            }
            assert_eq!(answer.status, 200);
        }
        panic!("10 per minute, but 21 at once");
    }
}

/// Returns jumps that are known to be difficult, and random ones.
fn jumps() -> Vec<i64> {
    let mut jumps = vec![
        HOUR_MS,
        -HOUR_MS,
        DAY_MS,
        -HOUR_MS,
        -DAY_MS,
        -30 * SECOND_MS,
        -1_500,
        -999,
        2 * DAY_MS,
        -5 * MINUTE_MS,
    ];
    let mut chance = Chance::new(chance::first_seed());
    for _ in 0..chance::number("TOLLKEEPER_TEST_JUMPS").unwrap_or(0) {
        let size = chance.one_of(&[SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS]);
        jumps.push(size * (chance.below(7) as i64 - 3) + chance.below(1_000) as i64);
    }
    jumps
}

#[on_each_database]
fn three_replicas_survive_clock_jumps(database: Database) {
    let folder = Folder::new();
    let generous = [
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000"),
        ("TOLLKEEPER_LIMITS__ENABLED", "false"),
        ("TOLLKEEPER_CATALOG_FILE", &generous_catalog(&folder)),
    ];
    database.run(&generous, async |world| {
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(Replica::new(&world).await);
        }
        let scene = Scene::new(&world).await;
        let mut events = 0;
        for (number, jump_ms) in jumps().into_iter().enumerate() {
            world.clock.advance_ms(jump_ms);
            for (at, replica) in replicas.iter_mut().enumerate() {
                scene.make_calls(&world, replica, &format!("e{number}{}", ["", "b", "cc"][at])).await;
                replica.work().await;
                scene.drain(replica).await;
                events += 1;
            }
            assert_books(&world).await;
        }
        assert_eq!(self::number(&world, "SELECT COUNT(*) FROM usage_events").await, events);
        let ids = self::number(&world, "SELECT COUNT(DISTINCT id) FROM organizations").await;
        assert_eq!(ids, events + 1);
        // No reservation is left, regardless of the clock that made it.
        for replica in &mut replicas {
            replica.work().await;
        }
        // The lifetime of a reservation twice, and two minutes: an undetected clock may have been ahead by
        // less than the lifetime.
        world.clock.advance_ms(22 * MINUTE_MS);
        for replica in &mut replicas {
            replica.work().await;
        }
        assert_eq!(self::number(&world, "SELECT COUNT(*) FROM reservations").await, 0);
        assert_books(&world).await;
        println!("{}: {} jumps, {events} events", world.backend, jumps().len());
    });
}

/// Work that was scheduled by a clock a year ahead isn't delayed.
#[on_each_database]
fn work_scheduled_by_a_clock_ahead_is_not_delayed(database: Database) {
    let settings = [("TOLLKEEPER_MAIL__URL", "smtp://127.0.0.1:1?tls=none")];
    database.run(&settings, async |world| {
        let year_ms = 365 * DAY_MS;
        let scene = Scene::new(&world).await;
        let mut replica = Replica::new(&world).await;
        let dead = world.app.leases.lease(Job::Billing);
        world.clock.advance_ms(year_ms);
        let fresh = world.user("bob").await;
        assert!(dead.take().await.unwrap());
        let question = json!({"credential": scene.key, "operation": "chat", "model": "svc-1"});
        let decision = world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!(decision["allowed"], true, "{decision}");
        world.post("/v1/auth/forgot-password", &json!({"email": "bob@example.com"})).data().await;
        send_due(&world.app.mail).await.unwrap();
        let guess = json!({"email": "bob@example.com", "password": "Wrong-Kettle-1"});
        let guess = async || world.post("/v1/auth/login", &guess).send().await;
        while guess().await.status == 401 {}
        world.clock.advance_ms(-year_ms);

        // Another replica can take the lease, and the dead one doesn't get it back.
        assert!(replica.lease.take().await.unwrap() && !dead.take().await.unwrap());
        world.clock.advance_ms(LEASE_MS - 1);
        assert!(!dead.take().await.unwrap());
        // Neither the attacker nor the owner is locked out for long.
        assert_eq!(guess().await.status, 401);
        let wait_ms: i64 = guess().await.header("retry-after-ms").parse().unwrap();
        assert!((1..=15 * MINUTE_MS).contains(&wait_ms), "{wait_ms}");
        world.clock.advance_ms(wait_ms);
        let right = json!({"email": "bob@example.com", "password": PASSWORD});
        assert_eq!(world.post("/v1/auth/login", &right).send().await.status, 200);
        // A session from that time may be invalid now, but causes no error.
        let status = world.get("/v1/auth/me").bearer(&fresh.access_token).send().await.status;
        assert!(status == 200 || status == 401, "{status}");

        let mails = "SELECT CAST(MAX(next_attempt_at) AS BIGINT) FROM outbox";
        assert!(number(&world, mails).await > world.clock.now().plus_ms(year_ms - DAY_MS).unix_ms());
        replica.work().await;
        assert!(number(&world, mails).await <= world.clock.now().plus_ms(HOUR_MS).unix_ms());
        assert_eq!(number(&world, "SELECT CAST(MAX(attempts) AS BIGINT) FROM outbox").await, 2);
        assert_eq!(number(&world, "SELECT COUNT(*) FROM reservations").await, 1);
        world.clock.advance_ms(10 * MINUTE_MS);
        replica.work().await;
        assert_eq!(number(&world, "SELECT COUNT(*) FROM reservations").await, 0);
        assert_books(&world).await;
    });
}

#[on_each_database]
async fn month_closes_once_although_the_clock_goes_back(world: World) {
    let mut replicas = vec![Replica::new(&world).await, Replica::new(&world).await];
    let scene = Scene::new(&world).await;
    let at = |text: &str| {
        let to = Time::parse(text).unwrap();
        world.clock.advance_ms(to.unix_ms() - world.clock.now().unix_ms());
    };
    let invoices = async || number(&world, "SELECT COUNT(*) FROM invoices").await;
    for replica in &mut replicas {
        replica.work().await;
    }
    scene.make_calls(&world, &replicas[0], "in March").await;
    // A clock that is ahead by an hour closes the month an hour early. The month stays closed.
    at("2026-04-02T00:00:01Z");
    replicas[0].work().await;
    assert_eq!(invoices().await, 1);
    for (number, back) in ["2026-04-01T23:00:00Z", "2026-03-31T23:00:00Z"].into_iter().enumerate() {
        at(back);
        for replica in &mut replicas {
            replica.work().await;
        }
        // Usage of the closed month is billed in the next one.
        scene.make_calls(&world, &replicas[number], &format!("late {number}")).await;
        assert_eq!(invoices().await, 1);
    }
    at("2026-04-02T00:10:00Z");
    for replica in &mut replicas {
        replica.work().await;
    }
    assert_eq!(invoices().await, 1, "not closed twice");
    at("2026-05-02T00:10:00Z");
    for replica in &mut replicas {
        replica.work().await;
    }
    assert_eq!(invoices().await, 2);
    let each = "SELECT COUNT(DISTINCT month) FROM invoices";
    assert_eq!(number(&world, each).await, 2);
    // The invoices have three calls of 10 and 100 tokens: one in March, and two in April.
    let amounts: Vec<(i64,)> = sql("SELECT amount_nano FROM invoices ORDER BY number")
        .all(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
    assert_eq!(amounts, [(620_000,), (1_240_000,)]);
    assert_books(&world).await;
}

/// Three server processes share a clock that jumps by minutes. Larger jumps aren't trusted: see
/// `clock_guard.rs`.
#[on_each_database]
fn processes_keep_answering_while_their_clock_jumps(database: Database) {
    database.run_processes(|url, folder| {
        let Some(clock) = FakeClock::new(&folder.0, "clocks of processes") else { return };
        let replicas = Replicas::new(3, url, folder).generous(folder);
        let replicas = replicas.set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000");
        let starts: Vec<_> = replicas.starts.into_iter().map(|start| clock.rule(start)).collect();
        let replicas = Replicas { starts };
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        let jumps = 8 * chance::number("TOLLKEEPER_TEST_TRIALS").unwrap_or(1);
        let reported: BTreeSet<String> = std::thread::scope(|scope| {
            let (fleet, place, over, calls) = (&fleet, &place, &over, &calls);
            let clients = (0..4).map(|client| {
                scope.spawn(move || {
                    let mut reported = BTreeSet::new();
                    for round in 0.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1",
                                              "max_tokens": 100, "estimated_prompt_tokens": 10});
                        let decision = fleet.ask("/service/v1/authorize", &question).bare();
                        assert_eq!(decision["allowed"], true, "{decision}");
                        let id = format!("{client}-{round}");
                        let mut batch = usage_event(place, &id);
                        batch["events"][0]["reservation_id"] = decision["reservation"]["id"].clone();
                        let answer = fleet.ask("/service/v1/usage", &batch).bare();
                        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
                        reported.insert(id);
                        if round % 8 == 0 {
                            // A session may be invalid for a clock other than its own: the server may answer
                            // 401, but nothing else.
                            let account = fleet.next().log_in("ada");
                            let me = fleet.get("/v1/auth/me").bearer(&account.access_token).send();
                            assert!(me.status == 200 || me.status == 401, "{}", me.text);
                        }
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    reported
                })
            });
            let clients: Vec<_> = clients.collect();
            for jump in 0..jumps {
                let before = calls.load(Ordering::Relaxed);
                assert!(support::process::until(|| calls.load(Ordering::Relaxed) > before + 8));
                let minutes = [1, -1, 9, -9, 4, 5, -8, -1];
                clock.advance_s(60 * minutes[usize::try_from(jump).unwrap() % minutes.len()]);
            }
            over.store(true, Ordering::Relaxed);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let account = fleet.next().log_in("ada");
        assert_eq!(fleet.next().requests(&place, &account), i64::try_from(reported.len()).unwrap());
        for server in &fleet.servers {
            let log = server.log();
            assert!(!log.contains("panic") && !log.contains("ERROR"), "{log}");
        }
        fleet.stop();
        let audit = replicas.starts[0].command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
        let backend = if url.is_some() { "postgres" } else { "sqlite" };
        println!("{backend}: {jumps} jumps, {} calls, each answered and counted once", reported.len());
    });
}
