//! Budgets: the amounts spent, reserved and left, and the calls that budgets refuse. All sums are calculated
//! by hand.

pub mod alerts;
mod api;
mod events;
mod periods;
mod random;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, Time};

use support::billed;
use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{Place, START, TestUser, World, id};

/// The prompt and completion tokens of a call. svc-1 costs 0.000002 per prompt token and 0.000006 per
/// completion token, so a call costs 0.00062.
const CALL: [i64; 2] = [10, 100];

/// An organization with a project and two keys.
struct Scene<'a> {
    world: &'a World,
    ada: TestUser,
    place: Place,
    /// The id and the secret of each key.
    keys: [(String, String); 2],
}

impl<'a> Scene<'a> {
    async fn new(world: &'a World) -> Self {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let one = world.old_key(&ada, &place, &json!({"name": "one"})).await;
        let two = world.old_key(&ada, &place, &json!({"name": "two"})).await;
        Self { world, ada, place, keys: [one, two] }
    }

    fn path(&self) -> String {
        billed::budgets_path(&self.place.organization)
    }

    async fn create(&self, body: &Value) -> Answer {
        self.world.post(&self.path(), body).bearer(&self.ada.access_token).send().await
    }

    /// Creates a budget. Returns its id and the data of the answer.
    async fn budget(&self, scope: &str, period: &str, limit: &str, hard: bool) -> (String, Value) {
        let name = format!("{scope} {period}");
        let mut body = json!({"name": name, "scope": scope, "period": period, "limit": limit, "hard": hard});
        match scope {
            "project" => body["project_id"] = json!(self.place.project),
            "api_key" => body["api_key_id"] = json!(self.keys[0].0),
            _ => {}
        }
        let answer = self.create(&body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let data = answer.json()["data"].clone();
        (id(&data), data)
    }

    async fn read(&self, budget: &str) -> Value {
        let path = format!("{}/{budget}", self.path());
        self.world.get(&path).bearer(&self.ada.access_token).data().await
    }

    /// Returns the amounts spent, reserved and left.
    async fn state(&self, budget: &str) -> [String; 3] {
        state(&self.read(budget).await)
    }

    async fn authorize(&self, key: usize) -> Value {
        let question = json!({"credential": self.keys[key].1, "operation": "chat", "model": "svc-1",
            "estimated_prompt_tokens": CALL[0], "max_tokens": CALL[1]});
        self.world.ask("/service/v1/authorize", &question).bare().await
    }

    /// Reserves 0.00062. Returns the id of the reservation.
    async fn reserve(&self, key: usize) -> String {
        let decision = self.authorize(key).await;
        assert_eq!(decision["allowed"], true, "{decision}");
        id(&decision["reservation"])
    }

    /// Requests a call that a budget refuses. Returns the message.
    async fn refused(&self, key: usize) -> String {
        let decision = self.authorize(key).await;
        assert_eq!((&decision["allowed"], &decision["code"]), (&json!(false), &json!("budget_exceeded")));
        assert_eq!(decision["status"], 402, "{decision}");
        decision["message"].as_str().unwrap().to_owned()
    }

    async fn release(&self, reservation: &str) {
        let path = format!("/service/v1/reservations/{reservation}");
        let token = self.world.app.api.service_token.expose();
        let answer = Call::new(&self.world.service, Method::DELETE, &path).bearer(token).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// Reports usage of a key now, or with the fields of `more`.
    async fn report(&self, event_id: &str, key: usize, tokens: [i64; 2], more: &[(&str, Value)]) {
        let mut event = json!({"id": event_id, "source": "tests", "time": self.world.clock.now().to_string(),
            "api_key_id": self.keys[key].0, "model": "svc-1", "kind": "chat",
            "prompt_tokens": tokens[0], "completion_tokens": tokens[1]});
        for (name, value) in more {
            event[*name] = value.clone();
        }
        let answer = self.world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    }

    /// Checks the books, including the budgets.
    async fn check(&self) {
        billed::check(self.world, &self.place.organization).await;
    }
}

fn state(budget: &Value) -> [String; 3] {
    ["spent", "reserved", "left"].map(|name| budget[name].to_string())
}

#[on_each_database]
async fn hard_budget_counts_what_was_before_and_all_that_comes(world: World) {
    let scene = Scene::new(&world).await;
    scene.report("before", 0, CALL, &[]).await;
    let before = scene.reserve(1).await;
    let (day, made) = scene.budget("organization", "day", "0.003", true).await;
    // 0.003 - 0.00062 - 0.00062.
    assert_eq!(state(&made), ["0.00062", "0.00062", "0.00176"]);
    let (first, second) = (scene.reserve(0).await, scene.reserve(1).await);
    // 0.00176 - 2 x 0.00062 isn't enough for another call.
    assert_eq!(scene.state(&day).await, ["0.00062", "0.00186", "0.00052"]);
    let message = scene.refused(0).await;
    for part in ["\"organization day\"", "(2026-03-10)", "0.00062 USD", "0.00052 of 0.003 USD left"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // The first reservation is captured with less, 10 x 0.000002, and the second one with more, 10 x 0.000002
    // + 200 x 0.000006.
    scene.report("less", 0, [10, 0], &[("reservation_id", json!(first))]).await;
    assert_eq!(scene.state(&day).await, ["0.00064", "0.00124", "0.00112"]);
    scene.report("more", 1, [10, 200], &[("reservation_id", json!(second))]).await;
    assert_eq!(scene.state(&day).await, ["0.00186", "0.00062", "0.00052"]);
    scene.release(&before).await;
    assert_eq!(scene.state(&day).await, ["0.00186", "0", "0.00114"]);
    // Usage without a reservation is never refused: 10 x 0.000002 + 500 x 0.000006.
    scene.report("batch", 1, [10, 500], &[]).await;
    assert_eq!(scene.state(&day).await, ["0.00488", "0", "-0.00188"]);
    let message = scene.refused(1).await;
    assert!(message.contains("0 of 0.003 USD left"), "{message}");
    scene.check().await;
}

#[on_each_database]
async fn last_call_that_fits_is_allowed(world: World) {
    let scene = Scene::new(&world).await;
    let (exact, _) = scene.budget("organization", "day", "0.00062", true).await;
    scene.reserve(0).await;
    assert_eq!(scene.state(&exact).await, ["0", "0.00062", "0"]);
    scene.refused(0).await;
    let (short, _) = scene.budget("api_key", "total", "0.001239999", true).await;
    let path = format!("{}/{exact}", scene.path());
    let raised = scene.world.call(Method::PUT, &path).json(&json!({"limit": 1}));
    raised.bearer(&scene.ada.access_token).data().await;
    // 0.00062 + 0.00062 exceeds the limit by a nano.
    assert!(scene.refused(0).await.contains("\"api_key total\" (in all)"));
    assert_eq!(scene.state(&short).await, ["0", "0.00062", "0.000619999"]);
    scene.reserve(1).await;
    scene.check().await;
}

#[on_each_database]
async fn soft_budget_refuses_nothing(world: World) {
    let scene = Scene::new(&world).await;
    let (soft, _) = scene.budget("organization", "month", "0.0001", false).await;
    let reservation = scene.reserve(0).await;
    assert_eq!(scene.state(&soft).await, ["0", "0.00062", "-0.00052"]);
    scene.report("1", 0, CALL, &[("reservation_id", json!(reservation))]).await;
    assert_eq!(scene.state(&soft).await, ["0.00062", "0", "-0.00052"]);
    scene.reserve(0).await;
    scene.check().await;
}

#[on_each_database]
async fn every_budget_of_a_call_is_asked(world: World) {
    let scene = Scene::new(&world).await;
    let (organization, _) = scene.budget("organization", "total", "1", true).await;
    let (project, _) = scene.budget("project", "month", "0.0019", true).await;
    let (key, _) = scene.budget("api_key", "day", "0.0013", true).await;
    let of_key = [scene.reserve(0).await, scene.reserve(0).await];
    assert_eq!(scene.state(&key).await, ["0", "0.00124", "0.00006"]);
    assert!(scene.refused(0).await.contains("\"api_key day\""));
    // The other key can use the rest of the project: 0.0019 - 3 x 0.00062.
    scene.reserve(1).await;
    assert_eq!(scene.state(&project).await, ["0", "0.00186", "0.00004"]);
    assert!(scene.refused(1).await.contains("\"project month\" (2026-03)"));
    assert_eq!(scene.state(&organization).await, ["0", "0.00186", "0.99814"]);
    scene.report("1", 0, CALL, &[("reservation_id", json!(of_key[0]))]).await;
    for budget in [&organization, &project, &key] {
        assert_eq!(scene.state(budget).await[0], "0.00062");
    }
    // Usage of a user counts in the organization and in the project.
    let person = [
        ("api_key_id", Value::Null),
        ("project_id", json!(scene.place.project)),
        ("user_id", json!(scene.ada.id.to_string())),
    ];
    let time = ("time", json!(world.clock.now().to_string()));
    let mut event = json!({"id": "2", "source": "tests", "model": "svc-1", "kind": "chat",
        "prompt_tokens": 10, "completion_tokens": 0});
    for (name, value) in person.into_iter().chain([time]).filter(|(_, value)| !value.is_null()) {
        event[name] = value;
    }
    let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    for (budget, spent) in [(&organization, "0.00064"), (&project, "0.00064"), (&key, "0.00062")] {
        assert_eq!(scene.state(budget).await[0], spent);
    }
    scene.check().await;
}

#[on_each_database]
async fn refusal_by_the_wallet_comes_first(world: World) {
    let scene = Scene::new(&world).await;
    scene.budget("organization", "total", "0.0001", true).await;
    let mut tx = world.app.db.write().await.unwrap();
    let text = "UPDATE wallets SET credit_limit_nano = 0 WHERE organization_id = $1";
    let statement = tollkeeper::db::sql(text).bind(scene.place.organization.as_str());
    statement.execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(scene.authorize(0).await["code"], "insufficient_quota");
}
