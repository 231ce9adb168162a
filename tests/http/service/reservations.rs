//! Reservations: money that is reserved before a call, and the end of a reservation.

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::api::routes::Dispatcher;
use tollkeeper::app::App;
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::web::route::Listener;

use support::books::{assert_books, change, number, wallet};
use support::http::Call;
use support::world::{Place, START, World};
use support::{Database, on_each_database};

/// The cost of a call in nano. `svc-1` costs 0.000002 per prompt token, and 0.000006 per token of the answer.
const CALL_NANO: i64 = 10 * 2_000 + 100 * 6_000;

struct Scene {
    place: Place,
    key_id: String,
    key: String,
}

async fn scene(world: &World) -> Scene {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key_id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    Scene { place, key_id, key }
}

/// Starts another server with the same database.
async fn replica(world: &World) -> App {
    let other = App::new(world.app.config.clone(), world.clock.clone()).unwrap();
    other.boot().await.unwrap();
    other
}

fn post(app: &App, service: &Dispatcher, path: &str, body: &Value) -> Call {
    Call::new(service, Method::POST, path).bearer(app.api.service_token.expose()).json(body)
}

impl Scene {
    fn question(&self) -> Value {
        json!({"credential": self.key, "operation": "chat", "model": "svc-1", "max_tokens": 100, "estimated_prompt_tokens": 10})
    }

    async fn reserve(&self, world: &World) -> Value {
        world.ask("/service/v1/authorize", &self.question()).bare().await
    }

    fn capture(&self, id: &str, reservation: &Value, completion_tokens: i64) -> Value {
        json!({"events": [{"id": id, "source": "s", "time": START, "api_key_id": self.key_id, "model": "svc-1", "kind": "chat",
            "prompt_tokens": 10, "completion_tokens": completion_tokens, "reservation_id": reservation}]})
    }

    async fn report(&self, world: &World, id: &str, reservation: &Value, completion_tokens: i64) -> Value {
        let body = self.capture(id, reservation, completion_tokens);
        world.ask("/service/v1/usage", &body).bare().await["results"][0]["status"].clone()
    }
}

fn release(world: &World, reservation: &Value) -> Call {
    let path = format!("/service/v1/reservations/{}", reservation["id"].as_str().unwrap());
    Call::new(&world.service, Method::DELETE, &path).bearer(world.app.api.service_token.expose())
}

fn extend(world: &World, reservation: &Value) -> Call {
    let path = format!("/service/v1/reservations/{}/extend", reservation["id"].as_str().unwrap());
    Call::new(&world.service, Method::POST, &path).bearer(world.app.api.service_token.expose())
}

#[on_each_database]
async fn call_reserves_its_highest_price_and_captures_the_actual_one(world: World) {
    let scene = scene(&world).await;
    let organization = &scene.place.organization;
    for (number, completion) in [40, 100, 4_000].into_iter().enumerate() {
        let before = wallet(&world, organization).await.0;
        let decision = scene.reserve(&world).await;
        let reservation = &decision["reservation"];
        assert_eq!(reservation["amount"], json!(0.00062));
        assert_eq!(reservation["expires_at"], "2026-03-10T12:10:00.000Z");
        assert_eq!(wallet(&world, organization).await, (before, CALL_NANO));
        let id = format!("e{number}");
        assert_eq!(scene.report(&world, &id, &reservation["id"], completion).await, "accepted");
        let charged = 20_000 + completion * 6_000;
        assert_eq!(wallet(&world, organization).await, (before - charged, 0));
        assert_eq!(scene.report(&world, &id, &reservation["id"], completion).await, "duplicate");
        assert_eq!(wallet(&world, organization).await, (before - charged, 0));
        assert_books(&world).await;
    }
    // Without an estimate and a maximum, the limits of the model apply.
    let body = json!({"credential": scene.key, "operation": "chat", "model": "svc-1"});
    let whole = world.ask("/service/v1/authorize", &body).bare().await;
    assert_eq!(whole["reservation"]["amount"], json!(0.032768));
    for (operation, model) in [("models", None), ("files", Some("svc-1"))] {
        let body = json!({"credential": scene.key, "operation": operation, "model": model});
        let free = world.ask("/service/v1/authorize", &body).bare().await;
        assert_eq!((&free["allowed"], &free["reservation"]), (&json!(true), &Value::Null));
    }
    let body = json!({"credential": scene.key, "operation": "embeddings", "model": "svc-embedding-1"});
    let embedding = world.ask("/service/v1/authorize", &body).bare().await;
    assert!(embedding["reservation"]["id"].is_string(), "{embedding}");
    assert_books(&world).await;
}

/// Each token is reserved at the price of its most expensive component, and expected searches and seconds are
/// added.
#[on_each_database]
fn dearest_components_and_pieces_are_reserved(database: Database) {
    let settings = [
        ("TOLLKEEPER_CATALOG_FILE", "tests/money/billing/components.toml"),
        ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "10"),
    ];
    database.run(&settings, async |world: World| {
        let scene = scene(&world).await;
        for (model, more, amount) in [
            // 1,000 x 0.00004 for audio, 100 x 0.00002 for reasoning, 0.001 for the request.
            ("multi", json!({}), json!(0.043)),
            // In addition, 3 x 0.01.
            ("multi", json!({"searches": 3, "seconds": 7}), json!(0.073)),
            // 1,000 x 0.000005 for images, 100 x 0.00002 for audio.
            ("voice", json!({"searches": 3}), json!(0.007)),
            // In addition, 7 x 0.0002.
            ("voice", json!({"seconds": 7}), json!(0.0084)),
        ] {
            let mut question = json!({"credential": scene.key, "operation": "chat", "model": model, "max_tokens": 100,
                "estimated_prompt_tokens": 1_000});
            question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let decision = world.ask("/service/v1/authorize", &question).bare().await;
            assert_eq!(decision["reservation"]["amount"], amount, "{model} {more}: {decision}");
            release(&world, &decision["reservation"]).send().await;
        }
        assert_books(&world).await;
    });
}

#[on_each_database]
async fn reservation_can_be_released_extended_or_expire(world: World) {
    let scene = scene(&world).await;
    let organization = &scene.place.organization;
    let gone = (404, "reservation_not_found".to_owned());
    let first = scene.reserve(&world).await["reservation"].clone();
    let released = release(&world, &first).bare().await;
    assert_eq!(released, json!({"id": first["id"], "released": true}));
    assert_eq!(release(&world, &first).refused().await, gone);
    assert_eq!(extend(&world, &first).refused().await, gone);
    for unknown in ["res_01h2xcejqtf2nbrexx3vqjhp41", "nonsense"] {
        let unknown = json!({ "id": unknown });
        assert_eq!(release(&world, &unknown).refused().await, gone);
        assert_eq!(extend(&world, &unknown).refused().await, gone);
    }
    assert_eq!(wallet(&world, organization).await, (0, 0));

    let (short, long) = (scene.reserve(&world).await, scene.reserve(&world).await);
    world.clock.advance_ms(300_000);
    let extended = extend(&world, &long["reservation"]).bare().await;
    let due =
        json!({"id": long["reservation"]["id"], "amount": 0.00062, "expires_at": "2026-03-10T12:15:00.000Z"});
    assert_eq!(extended, due);
    world.clock.advance_ms(299_999);
    assert_eq!(expire_due(&world.app.billing).await.unwrap(), 0);
    world.clock.advance_ms(1);
    assert_eq!(expire_due(&world.app.billing).await.unwrap(), 1);
    assert_eq!(wallet(&world, organization).await, (0, CALL_NANO));
    assert_eq!(extend(&world, &short["reservation"]).refused().await, gone);
    // The usage still counts.
    assert_eq!(scene.report(&world, "late", &short["reservation"]["id"], 1).await, "accepted");
    assert_eq!(wallet(&world, organization).await, (-26_000, CALL_NANO));
    world.clock.advance_ms(300_000);
    let other = replica(&world).await;
    let (here, there) = tokio::join!(expire_due(&world.app.billing), expire_due(&other.billing));
    assert_eq!(here.unwrap() + there.unwrap(), 1);
    assert_eq!(wallet(&world, organization).await, (-26_000, 0));
    assert_books(&world).await;
}

#[on_each_database]
async fn reservation_of_another_organization_is_not_found(world: World) {
    let scene = scene(&world).await;
    let eve = world.user("eve").await;
    let other = world.place(&eve, "Other").await;
    let (key_id, _) = world.key(&eve, &other, &json!({"name": "k"})).await;
    let reservation = scene.reserve(&world).await["reservation"].clone();
    let mut theirs = scene.capture("e", &reservation["id"], 1);
    theirs["events"][0]["api_key_id"] = json!(key_id);
    let answer = world.ask("/service/v1/usage", &theirs).bare().await;
    assert_eq!(answer["results"][0]["status"], "accepted");
    assert_eq!(wallet(&world, &other.organization).await, (-26_000, 0));
    assert_eq!(wallet(&world, &scene.place.organization).await, (0, CALL_NANO));
    release(&world, &reservation).bare().await;
    assert_books(&world).await;
}

#[on_each_database(&[("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0.00093")])]
async fn refusal_for_lack_of_money_shows_the_balance(world: World) {
    let scene = scene(&world).await;
    assert_eq!(scene.reserve(&world).await["allowed"], true);
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    let no = scene.reserve(&world).await;
    assert!(world.app.keys.last_uses.is_empty(), "a refused request doesn't count as a use of the key");
    assert_eq!(
        (&no["allowed"], &no["status"], &no["code"], &no["retry_after_ms"], &no["reservation"]),
        (&json!(false), &json!(402), &json!("insufficient_quota"), &Value::Null, &Value::Null)
    );
    let message = no["message"].as_str().unwrap();
    for part in ["0.00062 USD", "-0.00062 USD available", "limit of 0.00093 USD"] {
        assert!(message.contains(part), "{message}");
    }
    // The calls were returned to the rates.
    let mut free = scene.question();
    free["reserve"] = json!(false);
    let left = world.ask("/service/v1/authorize", &free).bare().await;
    assert_eq!(left["limits"]["model"]["remaining_requests"], 58);
    let path = "/service/v1/forward-auth?operation=chat&model=svc-1";
    let asked = Call::new(&world.service, Method::GET, path).bearer(&scene.key);
    let asked = asked.header("x-tollkeeper-service-token", world.app.api.service_token.expose());
    let refused = asked.send().await;
    assert_eq!((refused.status, refused.code().as_str()), (402, "insufficient_quota"));
    assert_eq!(refused.json()["error"]["type"], "insufficient_quota");
    assert_eq!(refused.header("x-should-retry"), "false");
    assert!(!refused.headers.contains_key("retry-after"));
    assert_books(&world).await;
}

#[on_each_database]
async fn forward_auth_returns_the_reservation(world: World) {
    let scene = scene(&world).await;
    let ask = async |more: &str| {
        let path = format!("/service/v1/forward-auth?operation=chat&model=svc-1&max_tokens=100{more}");
        let asked = Call::new(&world.service, Method::GET, &path).bearer(&scene.key);
        let asked = asked.header("x-tollkeeper-service-token", world.app.api.service_token.expose());
        let answer = asked.send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.header("x-tollkeeper-reservation-id").to_owned()
    };
    assert_eq!(ask("&reserve=false").await, "");
    let id = ask("").await;
    assert_eq!(scene.report(&world, "e", &json!(id), 1).await, "accepted");
    assert_eq!(wallet(&world, &scene.place.organization).await, (-26_000, 0));
    assert_eq!(release(&world, &json!({ "id": id })).refused().await.0, 404);
}

#[on_each_database]
async fn model_concurrency_is_limited(world: World) {
    let scene = scene(&world).await;
    let other = replica(&world).await;
    let service = tollkeeper::api::routes::dispatcher(&other.api, Listener::Service);
    let calls = (0..20).map(|n| match n % 2 {
        0 => world.ask("/service/v1/authorize", &scene.question()).bare(),
        _ => post(&other, &service, "/service/v1/authorize", &scene.question()).bare(),
    });
    let decisions = join_all(calls).await;
    let (yes, no): (Vec<_>, Vec<_>) = decisions.into_iter().partition(|decision| decision["allowed"] == true);
    assert_eq!((yes.len(), no.len()), (5, 15));
    assert!(no.iter().all(|decision| decision["code"] == "model_concurrency_limited"
        && decision["status"] == 429
        && decision["retry_after_ms"] == 1_000));
    // Another model has capacity, and the end of each call frees a place.
    let mut another = scene.question();
    another["model"] = json!("svc-1-pro");
    assert_eq!(world.ask("/service/v1/authorize", &another).bare().await["allowed"], true);
    release(&world, &yes[0]["reservation"]).bare().await;
    scene.report(&world, "e", &yes[1]["reservation"]["id"], 1).await;
    for allowed in [true, true, false] {
        assert_eq!(scene.reserve(&world).await["allowed"], allowed);
    }
    world.clock.advance_ms(600_000);
    assert_eq!(expire_due(&world.app.billing).await.unwrap(), 6);
    assert_eq!(scene.reserve(&world).await["allowed"], true);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM reservations").await, 1);
    assert_books(&world).await;
}

#[on_each_database]
fn concurrent_calls_never_reserve_the_same_money(database: Database) {
    // The credit limit is enough for exactly 1,000 calls.
    database.run(&[("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0.62")], async |world| {
        let folder = world.data_dir.join("many.toml");
        let catalog = include_str!("../../../catalog/default.toml")
            .replace("max_requests_per_min = 60", "max_requests_per_min = 100000")
            .replace("max_concurrent_requests = 5", "max_concurrent_requests = 100000");
        std::fs::write(&folder, catalog).unwrap();
        let mut config = world.app.config.clone();
        config.catalog_file = Some(folder);
        let mut apps = Vec::new();
        for _ in 0..2 {
            let app = App::new(config.clone(), world.clock.clone()).unwrap();
            app.boot().await.unwrap();
            apps.push(app);
        }
        let scene = scene(&world).await;
        let entrances: Vec<_> =
            apps.iter().map(|app| tollkeeper::api::routes::dispatcher(&app.api, Listener::Service)).collect();
        let client = async |number: usize| {
            let (app, service) = (&apps[number % 2], &entrances[number % 2]);
            let (mut made, mut refused) = (0, 0);
            while refused == 0 {
                let decision = post(app, service, "/service/v1/authorize", &scene.question()).bare().await;
                if decision["allowed"] != true {
                    assert_eq!(decision["code"], "insufficient_quota", "{decision}");
                    refused += 1;
                    continue;
                }
                let body = scene.capture(&format!("{number}-{made}"), &decision["reservation"]["id"], 100);
                let answer = post(app, service, "/service/v1/usage", &body).bare().await;
                assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
                made += 1;
            }
            made
        };
        let made: i64 = join_all((0..64).map(client)).await.into_iter().sum();
        assert_eq!(made, 1_000);
        assert_eq!(wallet(&world, &scene.place.organization).await, (-620_000_000, 0));
        assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_events").await, 1_000);
        assert_books(&world).await;
    });
}

#[on_each_database]
async fn failing_work_does_not_fail_other_work(world: World) {
    let scene = scene(&world).await;
    let eve = world.user("eve").await;
    let poisoned = world.place(&eve, "Poisoned").await;
    let (key_id, key) = world.key(&eve, &poisoned, &json!({"name": "k"})).await;
    change(&world, &format!("DELETE FROM wallets WHERE organization_id = '{}'", poisoned.organization)).await;
    let mut bad_event = scene.capture("bad", &Value::Null, 1);
    bad_event["events"][0]["api_key_id"] = json!(key_id);
    let mut bad_question = scene.question();
    bad_question["credential"] = json!(key);
    let good = (0..20)
        .map(|n| world.ask("/service/v1/usage", &scene.capture(&format!("{n}"), &Value::Null, 1)).send());
    let bad = (0..10).flat_map(|_| {
        [
            world.ask("/service/v1/usage", &bad_event).send(),
            world.ask("/service/v1/authorize", &bad_question).send(),
        ]
    });
    let (good, bad) = tokio::join!(join_all(good), join_all(bad));
    assert!(good.iter().all(|answer| answer.status == 200), "{}", good[0].text);
    assert!(bad.iter().all(|answer| (answer.status, answer.code().as_str()) == (500, "internal_error")));
    assert_eq!(wallet(&world, &scene.place.organization).await, (-20 * 26_000, 0));
    assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_events").await, 20);
}
