//! The largest amounts, and refusals of larger ones.

use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::credits::{self, NewCredit};
use tollkeeper::ids::OrganizationId;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use super::CATALOG;
use support::books::{assert_books, number, wallet};
use support::world::{Place, START, World};
use support::{Database, on_each_database};

const USAGE: &str = "/service/v1/usage";

struct Scene {
    place: Place,
    key_id: String,
    key: String,
}

async fn scene(world: &World, name: &str) -> Scene {
    let owner = world.user(&name.to_lowercase()).await;
    let place = world.place(&owner, name).await;
    let (key_id, key) = world.key(&owner, &place, &json!({"name": "k"})).await;
    Scene { place, key_id, key }
}

impl Scene {
    fn event(&self, id: &str, model: &str, tokens: [i64; 2]) -> Value {
        json!({"id": id, "source": "s", "time": START, "api_key_id": self.key_id, "model": model, "kind": "chat",
            "prompt_tokens": tokens[0], "completion_tokens": tokens[1]})
    }

    async fn posted(&self, world: &World) -> i64 {
        wallet(world, &self.place.organization).await.0
    }

    async fn buy_credit(&self, world: &World, amount: &str, reference: &str) {
        let new = NewCredit {
            organization_id: OrganizationId::parse(&self.place.organization).unwrap(),
            amount: Nano::parse(amount).unwrap(),
            reference: reference.to_owned(),
            is_grant: false,
            expires_at: None,
        };
        credits::add(&world.app.billing, &new, &Trail::operator()).await.unwrap();
    }
}

/// Returns `accepted`, `duplicate` or the code of the refusal for each event.
async fn report(world: &World, events: &[Value]) -> Vec<String> {
    let answer = world.ask(USAGE, &json!({ "events": events })).bare().await;
    let word = |result: &Value| result["code"].as_str().or(result["status"].as_str()).unwrap().to_owned();
    answer["results"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(word).collect()
}

/// 4,096 tokens of a prompt and of an answer, at 10 and 30 USD per million tokens.
#[on_each_database]
fn call_is_billed_in_small_currency_units(database: Database) {
    let cases = [
        // 4,096 x 0.16 + 4,096 x 0.48
        ("IDR", "rupiah", json!(2621.44), -2_621_440_000_000),
        // 4,096 x 0.26 + 4,096 x 0.78
        ("VND", "dong", json!(4259.84), -4_259_840_000_000),
        // 4,096 x 12 + 4,096 x 36
        ("IRR", "rial", json!(196_608), -196_608_000_000_000),
    ];
    for (currency, model, amount, posted) in cases {
        let settings = [
            CATALOG,
            ("TOLLKEEPER_BILLING__CURRENCY", currency),
            ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000"),
        ];
        database.run(&settings, async |world| {
            let scene = scene(&world, "Acme").await;
            let question = json!({"credential": scene.key, "operation": "chat", "model": model});
            let decision = world.ask("/service/v1/authorize", &question).bare().await;
            assert_eq!(decision["reservation"]["amount"], amount, "{decision}");
            let mut event = scene.event("e", model, [4096, 4096]);
            event["reservation_id"] = decision["reservation"]["id"].clone();
            assert_eq!(report(&world, &[event]).await, ["accepted"], "{currency}");
            assert_eq!(wallet(&world, &scene.place.organization).await, (posted, 0));
            assert_books(&world).await;
        });
    }
}

/// Events of 1,000,000 each: a row can hold 9,200 of them, and a wallet 9,223.
#[on_each_database(&[CATALOG])]
async fn event_beyond_a_row_or_wallet_is_refused_alone(world: World) {
    let (scene, other) = (scene(&world, "Acme").await, scene(&world, "Other").await);
    let million = |id: &str, model: &str| scene.event(id, model, [400_000, 600_000]);
    let mut sent = 0;
    for count in [920; 10] {
        let events: Vec<_> = (sent..sent + count).map(|n| million(&format!("e{n}"), "dearest")).collect();
        assert!(report(&world, &events).await.iter().all(|outcome| outcome == "accepted"));
        sent += count;
    }
    assert_eq!(scene.posted(&world).await, -9_200_000_000_000_000_000);
    assert_books(&world).await;

    // The row is full: one more event is refused, and the rest of its batch counts.
    let mut back = scene.event("back", "dearest", [-1, 0]);
    back["corrects"] = json!("e7");
    let batch = [
        million("e9200", "dearest"),
        other.event("o1", "dearest", [1, 0]),
        million("e9201", "dear-too"),
        million("e9202", "dearest"),
        million("e0", "dearest"),
    ];
    let due = ["amount_out_of_range", "accepted", "accepted", "amount_out_of_range", "duplicate"];
    assert_eq!(report(&world, &batch).await, due);
    let dear = scene.event("dear", "dear-too", [400_001, 600_000]);
    assert_eq!(report(&world, &[dear]).await, ["amount_out_of_range"], "a single event has a maximum, too");
    assert_eq!(report(&world, &batch[..1]).await, ["amount_out_of_range"], "the same as a separate request");
    // The event is accepted together with a correction that makes room for it, in either order.
    let room = [scene.event("one", "dearest", [1, 0]), back];
    assert_eq!(report(&world, &room).await, ["accepted", "accepted"]);
    assert_eq!(report(&world, &[scene.event("two", "dearest", [1, 0])]).await, ["amount_out_of_range"]);
    assert_eq!(scene.posted(&world).await, -9_201_000_000_000_000_000);
    assert_eq!(other.posted(&world).await, -1_000_000_000);

    // The wallet is almost full too: it can take 22 more of these events.
    let events: Vec<_> = (0..30).map(|n| million(&format!("f{n}"), "dear-too")).collect();
    let outcomes = report(&world, &events).await;
    let accepted = outcomes.iter().take_while(|outcome| *outcome == "accepted").count();
    assert_eq!(accepted, 22, "{outcomes:?}");
    assert!(outcomes[22..].iter().all(|outcome| outcome == "amount_out_of_range"), "{outcomes:?}");
    assert_eq!(scene.posted(&world).await, -9_223_000_000_000_000_000);
    let small = scene.event("small", "dear-too", [372_036, 0]);
    assert_eq!(
        report(&world, &[small, million("f99", "dear-too")]).await,
        ["accepted", "amount_out_of_range"]
    );
    assert_eq!(scene.posted(&world).await, -9_223_372_036_000_000_000);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_events").await, 9_200 + 1 + 1 + 2 + 22 + 1);
    assert_books(&world).await;
    let report = audit::check(&world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.drifts);
}

#[on_each_database(&[CATALOG])]
async fn correction_beyond_a_full_wallet_is_refused(world: World) {
    let scene = scene(&world, "Acme").await;
    let events = [scene.event("a", "dearest", [1, 0]), scene.event("b", "dearest", [2, 0])];
    assert_eq!(report(&world, &events).await, ["accepted", "accepted"]);
    scene.buy_credit(&world, "9223372036.85", "payment 1").await;
    scene.buy_credit(&world, "2", "payment 2").await;
    let back = |id: &str, of: &str, tokens: i64| {
        let mut event = scene.event(id, "dearest", [-tokens, 0]);
        event["corrects"] = json!(of);
        event
    };
    // The balance is 9,223,372,035.85: one more correction fits, but two don't.
    let batch = [back("b2", "b", 2), back("a1", "a", 1), scene.event("c", "m", [1, 0])];
    assert_eq!(report(&world, &batch).await, ["amount_out_of_range", "accepted", "accepted"]);
    assert_eq!(report(&world, &[back("b3", "b", 1)]).await, ["amount_out_of_range"]);
    let report = audit::check(&world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.drifts);
}

#[on_each_database]
fn call_beyond_the_largest_event_cost_is_refused(database: Database) {
    let settings = [CATALOG, ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "10000000")];
    database.run(&settings, async |world| {
        let scene = scene(&world, "Acme").await;
        for reserve in [true, false] {
            let ask = async |choices: i64| {
                let question = json!({"credential": scene.key, "operation": "chat", "model": "dearest", "choices": choices,
                    "reserve": reserve});
                world.ask("/service/v1/authorize", &question).bare().await
            };
            let yes = ask(1).await;
            assert_eq!((&yes["allowed"], &yes["code"]), (&json!(true), &Value::Null));
            let no = ask(2).await;
            let due = (&json!(400), &json!("amount_out_of_range"), &Value::Null);
            assert_eq!((&no["status"], &no["code"], &no["reservation"]), due, "{no}");
            let message = no["message"].as_str().unwrap();
            assert!(message.contains("1500000") && message.contains("1000000"), "{message}");
        }
        assert_eq!(wallet(&world, &scene.place.organization).await, (0, 1_000_000_000_000_000));
    });
}
