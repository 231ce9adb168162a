//! Request ids: an authorization is repeated because its answer was lost.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::credits::{self, NewCredit};
use tollkeeper::ids::OrganizationId;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use super::CATALOG;
use support::books::{assert_books, number, wallet};
use support::on_each_database;
use support::world::{Place, START, World};

const AUTHORIZE: &str = "/service/v1/authorize";
const NO_LIMIT: (&str, &str) = ("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0");

/// Creates an organization with a balance of 1.00.
async fn place(world: &World) -> (Place, String, (String, String)) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let key = world.key(&ada, &place, &json!({"name": "k"})).await;
    let new = NewCredit {
        organization_id: OrganizationId::parse(&place.organization).unwrap(),
        amount: Nano::parse("1").unwrap(),
        reference: "payment 1".to_owned(),
        is_grant: false,
        expires_at: None,
    };
    credits::add(&world.app.billing, &new, &Trail::operator()).await.unwrap();
    (place, ada.access_token, key)
}

/// Returns the question for a call that costs 0.7: 700,000 x 0.000001, and no answer.
fn question(credential: &str, request_id: Option<&str>) -> Value {
    json!({"credential": credential, "operation": "chat", "model": "m", "max_tokens": 0,
           "estimated_prompt_tokens": 700_000, "request_id": request_id})
}

fn code(decision: &Value) -> (i64, &str) {
    (decision["status"].as_i64().unwrap(), decision["code"].as_str().unwrap_or(""))
}

#[on_each_database(&[CATALOG, NO_LIMIT])]
async fn repeated_request_gets_the_same_answer(world: World) {
    let (place, _, (key_id, key)) = place(&world).await;
    let ask = async |request_id| world.ask(AUTHORIZE, &question(&key, request_id)).bare().await;
    let first = ask(Some("call-1")).await;
    assert_eq!((code(&first), &first["reservation"]["amount"]), ((200, ""), &json!(0.7)));
    world.clock.advance_ms(60_000);
    let left = |decision: &Value| decision["limits"]["model"]["remaining_requests"].as_i64().unwrap();
    for _ in 0..5 {
        let again = ask(Some("call-1")).await;
        assert_eq!((code(&again), &again["reservation"]), ((200, ""), &first["reservation"]));
        assert_eq!(left(&again), left(&first), "it isn't counted against the rate twice");
    }
    let together = join_all((0..8).map(|_| ask(Some("call-1")))).await;
    assert!(together.iter().all(|again| again["reservation"] == first["reservation"]));
    assert_eq!(wallet(&world, &place.organization).await, (1_000_000_000, 700_000_000));
    assert_eq!(number(&world, "SELECT COUNT(*) FROM reservations").await, 1);
    // Only 0.3 is left for another call.
    assert_eq!(code(&ask(Some("call-2")).await), (402, "insufficient_quota"));
    assert_eq!(code(&ask(None).await), (402, "insufficient_quota"));
    // The id can be used again once the call has ended.
    let event = json!({"events": [{"id": "e", "source": "s", "time": START, "api_key_id": key_id, "model": "m",
        "kind": "chat", "prompt_tokens": 100_000, "reservation_id": first["reservation"]["id"]}]});
    world.ask("/service/v1/usage", &event).bare().await;
    let second = ask(Some("call-1")).await;
    assert_eq!((code(&second), &second["reservation"]["amount"]), ((200, ""), &json!(0.7)));
    assert_ne!(second["reservation"]["id"], first["reservation"]["id"]);
    assert_books(&world).await;
}

#[on_each_database(&[CATALOG])]
async fn changed_request_with_the_same_id_is_refused(world: World) {
    let (place, token, (_, key)) = place(&world).await;
    let ada_asks = |more: &Value| {
        let mut body = question(&key, Some("call-1"));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let first = world.ask(AUTHORIZE, &ada_asks(&json!({}))).bare().await;
    assert_eq!(code(&first), (200, ""));
    let credentials =
        json!({"credential": token, "organization_id": place.organization, "project_id": place.project});
    let others = [
        json!({"estimated_prompt_tokens": 700_001}),
        json!({"model": "rupiah", "estimated_prompt_tokens": 1}),
        credentials.clone(),
    ];
    for other in others {
        let decision = world.ask(AUTHORIZE, &ada_asks(&other)).bare().await;
        assert_eq!(code(&decision), (409, "request_id_conflict"), "{other}");
    }
    // A user's request works like a key's.
    let mut person = ada_asks(&credentials);
    person["request_id"] = json!("call-2");
    let theirs = world.ask(AUTHORIZE, &person).bare().await;
    assert_eq!(world.ask(AUTHORIZE, &person).bare().await["reservation"], theirs["reservation"]);
    for wrong in ["", &"x".repeat(129), "a\u{1}"] {
        let answer = world.ask(AUTHORIZE, &ada_asks(&json!({ "request_id": wrong }))).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{wrong}");
    }
    assert_eq!(wallet(&world, &place.organization).await.1, 1_400_000_000);
    assert_books(&world).await;
}

/// The model allows two calls at a time.
#[on_each_database(&[CATALOG])]
async fn repeated_request_counts_once_and_ends_with_its_reservation(world: World) {
    let (place, _, (_, key)) = place(&world).await;
    let ask = async |request_id: &str| {
        let mut body = question(&key, Some(request_id));
        body["estimated_prompt_tokens"] = json!(1_000);
        world.ask(AUTHORIZE, &body).bare().await
    };
    let (one, two) = (ask("1").await, ask("2").await);
    assert_eq!(code(&ask("3").await), (429, "model_concurrency_limited"));
    assert_eq!(ask("1").await["reservation"], one["reservation"]);
    assert_eq!(ask("2").await["reservation"], two["reservation"]);
    // The reservation has expired, but the job has not run.
    world.clock.advance_ms(600_000);
    let again = ask("1").await;
    assert_eq!(code(&again), (200, ""), "{again}");
    assert_ne!(again["reservation"]["id"], one["reservation"]["id"]);
    assert_eq!(wallet(&world, &place.organization).await.1, 2_000_000);
    assert_books(&world).await;
}

#[on_each_database(&[CATALOG])]
async fn request_ids_are_separate_by_organization(world: World) {
    let (_, _, (_, key)) = place(&world).await;
    let eve = world.user("eve").await;
    let hers = world.place(&eve, "Eve's").await;
    let (_, other) = world.key(&eve, &hers, &json!({"name": "k"})).await;
    let one = world.ask(AUTHORIZE, &question(&key, Some("1"))).bare().await;
    let two = world.ask(AUTHORIZE, &question(&other, Some("1"))).bare().await;
    assert_eq!((code(&one), code(&two)), ((200, ""), (200, "")));
    assert_ne!(one["reservation"]["id"], two["reservation"]["id"]);
}
