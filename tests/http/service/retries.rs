//! Refused usage events: whether the same event may count later, and ids that two inference servers both use.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::{Dispatcher, dispatcher};
use tollkeeper::app::App;
use tollkeeper::billing::rules::events::Reason;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::web::route::Listener;

use super::CATALOG;
use support::books::{assert_books, wallet};
use support::http::Call;
use support::on_each_database;
use support::world::{Place, START, World};

const USAGE: &str = "/service/v1/usage";

/// A model that isn't in the first catalog, with a price that starts an hour before the tests.
const NEW_MODEL: &str = r#"
[[models]]
id = "new"
kind = "chat"
description = "1.00 for a million tokens"
owned_by = "tests"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 1000
max_concurrent_requests = 50
prices = [
  { effective_at = "2026-03-10T11:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.000001" },
]
"#;

struct Scene {
    place: Place,
    key_id: String,
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, _) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
    Scene { place, key_id }
}

impl Scene {
    /// Returns an event of a thousand prompt tokens, with these fields changed.
    fn event(&self, id: &str, changes: &[(&str, Value)]) -> Value {
        let mut event = json!({"id": id, "source": "s", "time": START, "api_key_id": self.key_id, "model": "m",
            "kind": "chat", "prompt_tokens": 1_000, "completion_tokens": 0});
        for (field, value) in changes {
            event[*field] = value.clone();
        }
        event
    }

    fn correction(&self, id: &str, corrects: &str, changes: &[(&str, Value)]) -> Value {
        let both = [("corrects", json!(corrects)), ("prompt_tokens", json!(-1))];
        self.event(id, &[&both, changes].concat())
    }
}

/// A replica.
struct Server {
    app: App,
    service: Dispatcher,
}

impl Server {
    fn of(app: &App) -> Self {
        Self { app: app.clone(), service: dispatcher(&app.api, Listener::Service) }
    }

    /// Starts another replica, with this text added to the catalog.
    async fn start(world: &World, name: &str, more: &str) -> Self {
        let path = world.data_dir.join(name);
        std::fs::write(&path, format!("{}{more}", include_str!("catalog.toml"))).unwrap();
        let mut config = world.app.config.clone();
        config.catalog_file = Some(path);
        let app = App::new(config, world.clock.clone()).unwrap();
        app.boot().await.unwrap();
        Self::of(&app)
    }

    fn call(&self, method: Method, path: &str) -> Call {
        Call::new(&self.service, method, path).bearer(self.app.api.service_token.expose())
    }

    /// Reports events; returns status or code, and `retryable`, of each.
    async fn report(&self, events: &[Value]) -> Vec<(String, bool)> {
        let answer = self.call(Method::POST, USAGE).json(&json!({ "events": events })).bare().await;
        let results = answer["results"].as_array().unwrap();
        let word = |result: &Value| result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned();
        results.iter().map(|result| (word(result), result["retryable"].as_bool().unwrap())).collect()
    }

    async fn report_one(&self, event: &Value) -> (String, bool) {
        self.report(std::slice::from_ref(event)).await.remove(0)
    }

    /// Returns the number of events with this result and code, or 0 without such a line.
    async fn count(&self, result: &str, code: &str) -> u64 {
        let metrics = self.call(Method::GET, "/metrics").send().await.text;
        let series = format!("tollkeeper_usage_events_total{{code=\"{code}\",result=\"{result}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().unwrap())
    }
}

/// Causes each refusal once: refusals that time, a catalog or another event can remove are retryable, and the
/// others aren't.
#[on_each_database(&[CATALOG])]
async fn each_refusal_says_whether_it_is_retryable(world: World) {
    let scene = scene(&world).await;
    let ada = world.user("grace").await;
    world.join_organization(&scene.place, &ada, tollkeeper::tenants::roles::OrganizationRole::Owner).await;
    let (fresh_key, _) = world.key(&ada, &scene.place, &json!({"name": "fresh"})).await;
    let server = Server::start(&world, "more.toml", NEW_MODEL).await;
    assert_eq!(server.report_one(&scene.event("e", &[])).await, ("accepted".to_owned(), false));
    assert_eq!(server.report_one(&scene.correction("c", "e", &[])).await, ("accepted".to_owned(), false));
    let unknown = |prefix: &str| json!(format!("{prefix}_01h2xcejqtf2nbrexx3vqjhp41"));
    let of_user = |project: Value, user: Value| {
        let mut event = scene.event("x", &[("project_id", project), ("user_id", user)]);
        event.as_object_mut().unwrap().remove("api_key_id");
        event
    };
    let cases = [
        ("unknown_model", true, scene.event("x", &[("model", json!("gpt-9"))])),
        ("model_without_price", true, {
            scene.event("x", &[("model", json!("new")), ("time", json!("2026-03-10T10:59:59.999Z"))])
        }),
        ("event_in_future", true, scene.event("x", &[("time", json!("2026-03-10T12:05:00.001Z"))])),
        ("unknown_event", true, scene.correction("x", "later", &[])),
        ("invalid_event", false, scene.event("x", &[("prompt_tokens", json!(-1))])),
        ("unknown_api_key", false, scene.event("x", &[("api_key_id", unknown("key"))])),
        ("unknown_project", false, of_user(unknown("proj"), json!(ada.id))),
        ("unknown_user", false, of_user(json!(scene.place.project), unknown("user"))),
        ("wrong_kind", false, scene.event("x", &[("kind", json!("embeddings"))])),
        ("event_too_old", false, scene.event("x", &[("time", json!("2024-12-10T12:00:00Z"))])),
        ("event_before_key", false, {
            let before = json!("2026-03-10T11:54:59.999Z");
            scene.event("x", &[("api_key_id", json!(fresh_key)), ("time", before)])
        }),
        ("event_conflict", false, scene.event("e", &[("prompt_tokens", json!(7))])),
        ("amount_out_of_range", false, {
            let tokens = [("prompt_tokens", json!(400_001)), ("completion_tokens", json!(600_000))];
            scene.event("x", &[&tokens[..], &[("model", json!("dear-too"))]].concat())
        }),
        ("correction_mismatch", false, scene.correction("x", "e", &[("model", json!("new"))])),
        ("correction_too_large", false, { scene.correction("x", "e", &[("prompt_tokens", json!(-1_000))]) }),
        ("invalid_correction", false, scene.correction("x", "c", &[])),
    ];
    for (code, retryable, event) in &cases {
        assert_eq!(server.report_one(event).await, ((*code).to_owned(), *retryable), "{event}");
        assert_eq!(server.count("refused", code).await, 1, "{code}");
    }
    let all: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(cases.iter().map(|(code, ..)| *code).collect::<BTreeSet<_>>(), all);
    assert_eq!(wallet(&world, &scene.place.organization).await, (-999_000, 0));
    assert_books(&world).await;
}

/// A client keeps an event whose refusal was retryable, and sends it again unchanged.
#[on_each_database(&[CATALOG])]
async fn retryable_event_counts_when_its_reason_is_gone(world: World) {
    let scene = scene(&world).await;
    let server = Server::of(&world.app);
    let accepted = || ("accepted".to_owned(), false);
    let refused = |code: &str| (code.to_owned(), true);

    let correction = scene.correction("overtakes", "e", &[]);
    assert_eq!(server.report_one(&correction).await, refused("unknown_event"));
    assert_eq!(server.report_one(&scene.event("e", &[])).await, accepted());
    assert_eq!(server.report_one(&correction).await, accepted());

    let future = scene.event("future", &[("time", json!("2026-03-10T12:06:00Z"))]);
    assert_eq!(server.report_one(&future).await, refused("event_in_future"));
    world.clock.advance_ms(MINUTE_MS);
    assert_eq!(server.report_one(&future).await, accepted());

    let used = |id: &str, time: &str| scene.event(id, &[("model", json!("new")), ("time", json!(time))]);
    let (after, before) = (used("after", "2026-03-10T11:00:00Z"), used("before", "2026-03-10T10:59:59Z"));
    assert_eq!(server.report_one(&after).await, refused("unknown_model"));
    let with_model = Server::start(&world, "model.toml", NEW_MODEL).await;
    assert_eq!(with_model.report_one(&after).await, accepted());
    assert_eq!(with_model.report_one(&before).await, refused("model_without_price"));
    let price = "prices = [\n  { effective_at = \"2026-03-10T10:00:00Z\", prompt_tokens = \"0.000002\", \
                 completion_tokens = \"0.000002\" },";
    let with_price = Server::start(&world, "price.toml", &NEW_MODEL.replace("prices = [", price)).await;
    assert_eq!(with_price.report_one(&before).await, accepted());

    // 999 and 1,000 tokens of `m`, 1,000 of `new` at 0.000001, and 1,000 at 0.000002.
    assert_eq!(wallet(&world, &scene.place.organization).await, (-(999 + 1_000 + 1_000 + 2_000) * 1_000, 0));
    assert_books(&world).await;
}

/// Two inference servers count their calls from 1 and report under the same `source`, each to its own
/// replica. The second server's events are different, so none of them is treated as a repetition.
#[on_each_database(&[CATALOG])]
async fn colliding_ids_of_two_servers_are_conflicts(world: World) {
    let scene = scene(&world).await;
    let (one, other) = (Server::of(&world.app), Server::start(&world, "same.toml", "").await);
    let calls = |source: &str, tokens: i64| -> Vec<Value> {
        let changes = [("source", json!(source)), ("prompt_tokens", json!(tokens))];
        (1..=3).map(|number| scene.event(&number.to_string(), &changes)).collect()
    };
    let all = |word: &str| vec![(word.to_owned(), false); 3];
    assert_eq!(one.report(&calls("vllm", 1_000)).await, all("accepted"));
    assert_eq!(other.report(&calls("vllm", 2_000)).await, all("event_conflict"));
    // Sent again, they are still conflicts on both replicas, and each attempt counts in the metric.
    assert_eq!(other.report(&calls("vllm", 2_000)).await, all("event_conflict"));
    assert_eq!(one.report(&calls("vllm", 2_000)).await, all("event_conflict"));
    assert_eq!(one.report(&calls("vllm", 1_000)).await, all("duplicate"));
    let counts = async |server: &Server| {
        let counts = [("accepted", ""), ("duplicate", ""), ("refused", "event_conflict")];
        let [accepted, duplicate, conflict] = counts.map(|(result, code)| server.count(result, code));
        (accepted.await, duplicate.await, conflict.await)
    };
    assert_eq!((counts(&one).await, counts(&other).await), ((3, 3, 3), (0, 0, 6)));
    assert_eq!(wallet(&world, &scene.place.organization).await, (-3 * 1_000_000, 0));
    // With its own source, each call counts.
    assert_eq!(other.report(&calls("vllm-2", 2_000)).await, all("accepted"));
    assert_eq!(counts(&other).await, (3, 0, 6));
    assert_eq!(wallet(&world, &scene.place.organization).await, (-(3 + 6) * 1_000_000, 0));
    assert_books(&world).await;
}
