//! The total usage of keys and projects. It always equals the sum of their daily rows.

use std::sync::atomic::{AtomicI64, Ordering};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::dispatcher;
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::closing;
use tollkeeper::clock::{DAY_MS, Time};
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use support::billed::fresh_token;
use support::books::{assert_books, change, number};
use support::http::Call;
use support::twin::Twin;
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

/// Two servers, and a project with a key.
struct Scene<'w> {
    world: &'w World,
    twins: [Twin; 2],
    ada: TestUser,
    place: Place,
    key: (String, String),
}

impl<'w> Scene<'w> {
    async fn new(world: &'w World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let key = world.old_key(&ada, &place, &json!({"name": "one"})).await;
        Self { world, twins: Twin::both(world).await, ada, place, key }
    }

    /// Returns the requests and tokens of the key and of the project, as this server returns them to the key.
    async fn read(&self, twin: &Twin) -> [(i64, i64); 2] {
        let project = self.place.project_path();
        let key = twin.get(&format!("{project}/api-keys/{}", self.key.0)).bearer(&self.key.1).data().await;
        let project = twin.get(&project).bearer(&self.key.1).data().await;
        let at = |data: &Value, pointer: &str| data.pointer(pointer).unwrap().as_i64().unwrap();
        [
            (at(&key, "/usage/total_requests"), at(&key, "/usage/total_tokens")),
            (at(&project, "/usage/requests"), at(&project, "/usage/tokens")),
        ]
    }

    /// Asserts that both servers return these totals of the key and of the project, and that the books are
    /// correct.
    async fn check(&self, key: (i64, i64), project: (i64, i64)) {
        for twin in &self.twins {
            assert_eq!(self.read(twin).await, [key, project], "{}", self.world.backend);
        }
        self.check_books().await;
    }

    async fn check_books(&self) {
        assert_books(self.world).await;
        let report = audit::check(&self.world.app.billing, None).await.unwrap();
        assert!(report.is_clean(), "on {}: {:?}", self.world.backend, report.drifts);
    }

    fn event(&self, id: &str, day: &str, prompt: i64, completion: i64) -> Value {
        json!({"id": id, "source": "s", "time": format!("{day}T10:00:00Z"), "api_key_id": self.key.0, "model": "svc-1",
            "kind": "chat", "prompt_tokens": prompt, "completion_tokens": completion})
    }

    /// Reports events to this server. Returns their statuses, or the codes of refused events.
    async fn report_all(&self, twin: &Twin, events: &[Value]) -> Vec<String> {
        let service = dispatcher(&twin.app.api, Listener::Service);
        let call = Call::new(&service, Method::POST, "/service/v1/usage");
        let token = twin.app.api.service_token.expose();
        let answer = call.bearer(token).json(&json!({ "events": events })).send().await.json();
        let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let word = |result: &Value| match result["code"].as_str() {
            Some(code) => code.to_owned(),
            None => result["status"].as_str().unwrap().to_owned(),
        };
        results.iter().map(word).collect()
    }

    async fn report(&self, event: Value) {
        assert_eq!(self.report_all(&self.twins[0], &[event]).await, ["accepted"]);
    }

    /// Advances the clock to this time and closes the due months on the second server. Returns the number of
    /// closed months.
    async fn close(&self, now: &str) -> usize {
        let now = Time::parse(now).unwrap();
        self.world.clock.advance_ms(now.unix_ms() - self.world.clock.now().unix_ms());
        let closed =
            closing::close_due(&self.twins[1].app.billing, now, &Trail::system(), None).await.unwrap();
        assert!(closed.failed.is_empty(), "{:?}", closed.failed);
        closed.closed.len()
    }

    /// Returns Ada with a new session, because the old one has expired.
    async fn ada_with_new_session(&self) -> TestUser {
        TestUser { access_token: fresh_token(self.world, &self.ada).await, ..self.ada.clone() }
    }
}

fn run_on(database: Database, test: impl AsyncFn(World)) {
    database.run(&[("TOLLKEEPER_LIMITS__ENABLED", "false")], test);
}

#[on_each_database]
fn totals_include_everything_that_counts_and_nothing_twice(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        scene.check((0, 0), (0, 0)).await;
        scene.report(scene.event("a", "2026-02-27", 100, 10)).await;
        scene.report(scene.event("b", "2026-03-09", 200, 20)).await;
        scene.check((2, 330), (2, 330)).await;
        // The event is reported again, together with a different event that has an existing id.
        let again = [scene.event("a", "2026-02-27", 100, 10), scene.event("b", "2026-03-09", 201, 20)];
        assert_eq!(scene.report_all(&scene.twins[1], &again).await, ["duplicate", "event_conflict"]);
        scene.check((2, 330), (2, 330)).await;
        // A call that Ada makes herself counts only in the project.
        let mut by_ada = scene.event("ada", "2026-03-09", 5, 6);
        by_ada.as_object_mut().unwrap().remove("api_key_id");
        by_ada["project_id"] = json!(scene.place.project);
        by_ada["user_id"] = json!(scene.ada.id);
        by_ada["time"] = json!(world.clock.now().to_string());
        scene.report(by_ada).await;
        scene.check((2, 330), (3, 341)).await;

        // March is closed. Then late usage of March and a correction are reported.
        assert_eq!(scene.close("2026-04-02T01:00:00Z").await, 1);
        scene.check((2, 330), (3, 341)).await;
        scene.report(scene.event("c", "2026-03-08", 400, 40)).await;
        scene.check((3, 770), (4, 781)).await;
        let mut correction = scene.event("d", "2026-04-01", -50, -20);
        correction["corrects"] = json!("b");
        scene.report(correction).await;
        scene.check((3, 700), (4, 711)).await;
        assert_eq!(scene.close("2026-05-03T01:00:00Z").await, 1);
        scene.report(scene.event("e", "2026-05-02", 1, 0)).await;
        scene.report(scene.event("f", "2026-04-20", 2, 0)).await;
        assert_eq!(scene.close("2026-08-02T01:00:00Z").await, 3);
        scene.report(scene.event("g", "2026-08-01", 4, 0)).await;
        scene.report(scene.event("h", "2026-03-31", 8, 0)).await;
        scene.check((7, 715), (8, 726)).await;

        // Usage of another key also counts in the project. It still counts after the key is deleted, even if
        // it is reported after that.
        let ada = scene.ada_with_new_session().await;
        let other = world.old_key(&ada, &scene.place, &json!({"name": "two"})).await;
        let of_other = |id: &str, prompt| {
            let mut event = scene.event(id, "2026-08-01", prompt, 0);
            event["api_key_id"] = json!(other.0);
            event
        };
        scene.report(of_other("i", 1_000)).await;
        scene.check((7, 715), (9, 1_726)).await;
        let path = format!("{}/api-keys/{}", scene.place.project_path(), other.0);
        let ada = scene.ada_with_new_session().await;
        world.call(Method::DELETE, &path).bearer(&ada.access_token).data().await;
        scene.check((7, 715), (9, 1_726)).await;
        scene.report(of_other("j", 2_000)).await;
        scene.check((7, 715), (10, 3_726)).await;
        let of_deleted = format!("SELECT tokens FROM usage_totals WHERE subject_id = '{}'", other.0);
        assert_eq!(number(&world, &of_deleted).await, 3_000);
        assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_totals").await, 3, "a project and two keys");
    });
}

/// While months end, readers never get less than an earlier answer or more than was sent.
#[on_each_database]
fn totals_are_consistent_while_months_end(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let (sent, answered, closed) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        let is_over = || closed.load(Ordering::SeqCst) == 12;
        let reporter = async |name: &str| {
            let mut number = 0;
            while !is_over() {
                number += 1;
                // A third of the events are late.
                let back = if number % 3 == 0 { 40 } else { 0 };
                let time = world.clock.now().plus_ms(-back * DAY_MS).to_string();
                let mut event = scene.event(&format!("{name}{number}"), "2026-01-01", 3, 4);
                event["time"] = json!(time);
                sent.fetch_add(1, Ordering::SeqCst);
                scene.report(event).await;
                answered.fetch_add(1, Ordering::SeqCst);
            }
        };
        let reader = async |twin: &Twin| {
            while !is_over() {
                let least = answered.load(Ordering::SeqCst);
                let [key, project] = scene.read(twin).await;
                let most = sent.load(Ordering::SeqCst);
                for (requests, tokens) in [key, project] {
                    assert!((least..=most).contains(&requests), "{least} {requests} {most}");
                    assert_eq!(tokens, requests * 7);
                }
            }
        };
        let closer = async {
            while !is_over() {
                world.clock.advance_ms(31 * DAY_MS);
                let now = world.clock.now();
                let done = closing::close_due(&scene.twins[1].app.billing, now, &Trail::system(), None)
                    .await
                    .unwrap();
                assert!(done.failed.is_empty(), "{:?}", done.failed);
                let before = answered.load(Ordering::SeqCst);
                while answered.load(Ordering::SeqCst) < before + 8 {
                    tokio::task::yield_now().await;
                }
                closed.fetch_add(1, Ordering::SeqCst);
            }
        };
        let [first, second] = &scene.twins;
        tokio::join!(reporter("a"), reporter("b"), reporter("c"), reader(first), reader(second), closer);
        let due = sent.load(Ordering::SeqCst);
        scene.check((due, due * 7), (due, due * 7)).await;
    });
}

/// Both servers add to the same totals at the same time, in opposite orders, and no transaction has to be
/// repeated. Their daily rows differ, so the servers meet only in the totals.
#[on_each_database]
fn crossing_batches_of_two_servers_do_not_deadlock(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let elsewhere = world.place(&scene.ada, "Elsewhere").await;
        let mut keys = vec![scene.key.0.clone()];
        for (place, name) in [(&scene.place, "two"), (&elsewhere, "three"), (&elsewhere, "four")] {
            keys.push(world.old_key(&scene.ada, place, &json!({ "name": name })).await.0);
        }
        for round in 0..20 {
            let batch = |server: usize| {
                let event = |number: usize| {
                    let day = format!("2026-03-0{}", 1 + 4 * server + number % 4);
                    let mut event = scene.event(&format!("{round}-{server}-{number}"), &day, 2, 1);
                    event["api_key_id"] = json!(keys[number % 4]);
                    event
                };
                let mut events: Vec<_> = (0..40).map(event).collect();
                if server == 1 {
                    events.reverse();
                }
                events
            };
            let (first, second) = (batch(0), batch(1));
            let answers = tokio::join!(
                scene.report_all(&scene.twins[0], &first),
                scene.report_all(&scene.twins[1], &second)
            );
            assert!(answers.0.iter().chain(&answers.1).all(|word| word == "accepted"), "{answers:?}");
        }
        for twin in &scene.twins {
            assert_eq!(twin.app.billing.metrics.books.failed.get(), 0, "{}", world.backend);
        }
        // 1,600 events: a quarter for each key, and half for each project.
        scene.check((400, 1_200), (800, 2_400)).await;
        let theirs = format!("SELECT tokens FROM usage_totals WHERE subject_id = '{}'", elsewhere.project);
        assert_eq!(number(&world, &theirs).await, 2_400);
    });
}

/// A total of tokens has almost 64 bits. Only the event that exceeds them is refused, and it changes nothing.
#[on_each_database]
fn event_that_overflows_a_total_is_refused_alone(database: Database) {
    run_on(database, async |world| {
        let scene = Scene::new(&world).await;
        let elsewhere = world.place(&scene.ada, "Elsewhere").await;
        let other = world.old_key(&scene.ada, &elsewhere, &json!({"name": "two"})).await.0;
        scene.report(scene.event("a", "2026-03-01", 100_000, 0)).await;
        for (sign, name) in [("", "up"), ("-", "down")] {
            change(&world, &format!("UPDATE usage_totals SET tokens = {sign}9223372036854770000")).await;
            let tokens = |count: i64| if sign.is_empty() { count } else { -count };
            let event = |id: &str, count: i64| {
                let mut event = scene.event(&format!("{name} {id}"), "2026-03-01", tokens(count), 0);
                if tokens(count) < 0 {
                    event["corrects"] = json!("a");
                }
                event
            };
            let mut theirs = scene.event(&format!("{name} theirs"), "2026-03-01", 7, 0);
            theirs["api_key_id"] = json!(other);
            let events = [event("x", 6_000), theirs, event("b", 5_000)];
            let due = ["amount_out_of_range", "accepted", "accepted"];
            assert_eq!(scene.report_all(&scene.twins[0], &events).await, due, "{}", world.backend);
            assert_eq!(scene.read(&scene.twins[0]).await[1].1, tokens(9_223_372_036_854_775_000));
            // The last event that fits makes the total almost 64 bits large.
            assert_eq!(scene.report_all(&scene.twins[0], &[event("c", 804)]).await, ["accepted"]);
            assert_eq!(scene.report_all(&scene.twins[0], &[event("d", 10)]).await, ["amount_out_of_range"]);
            assert_eq!(scene.read(&scene.twins[0]).await[0].1, tokens(9_223_372_036_854_775_804));
        }
        let stored = "SELECT COUNT(*) FROM usage_events";
        assert_eq!(number(&world, stored).await, 1 + 2 * 3, "refused events aren't stored");
    });
}
