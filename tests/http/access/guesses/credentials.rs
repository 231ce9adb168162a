//! Unknown API keys and wrong service tokens: a network that keeps trying has to wait, and no other network
//! does.

use http::Method;
use serde_json::json;
use tollkeeper::clock::MINUTE_MS;

use super::{ATTACKER, HOME, HOME_NEIGHBOUR, outcome};
use support::http::Call;
use support::on_each_database;
use support::world::World;

const LIMITED: (u16, &str) = (429, "rate_limited");

/// Returns a well-formed key that doesn't exist.
fn unknown_key(known: &str, number: usize) -> String {
    let (head, tail) = known.split_at(known.len() - 6);
    let tail: String = tail.chars().rev().collect();
    let digits: String = format!("{number:06}").chars().collect();
    if number == 0 { format!("{head}{tail}") } else { format!("{head}{digits}") }
}

async fn try_key(world: &World, key: &str, from: &str) -> (u16, String) {
    outcome(world.get("/v1/models").bearer(key).from(from)).await
}

#[on_each_database]
async fn unknown_keys_wait_and_known_keys_never_do(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "Prod"})).await;
    for number in 0..600 {
        let from = format!("198.51.100.{}", number % 250);
        assert_eq!(try_key(&world, &unknown_key(&key, number), &from).await.0, 401, "{number}");
    }
    let answer = world.get("/v1/models").bearer(&unknown_key(&key, 601)).from(ATTACKER).send().await;
    assert_eq!((answer.status, answer.code().as_str()), LIMITED, "{}", answer.text);
    assert_eq!(answer.header("retry-after-ms"), "100");
    // A known key, a session and other networks are not affected.
    assert_eq!(try_key(&world, &key, ATTACKER).await.0, 200);
    assert_eq!(outcome(world.get("/v1/auth/me").bearer(&ada.access_token).from(ATTACKER)).await.0, 200);
    assert_eq!(try_key(&world, &unknown_key(&key, 602), HOME).await.0, 401);
    world.clock.advance_ms(MINUTE_MS);
    assert_eq!(try_key(&world, &unknown_key(&key, 603), ATTACKER).await.0, 401);
}

#[on_each_database]
async fn wrong_service_tokens_wait(world: World) {
    let question = json!({"credential": "tk_x", "operation": "chat", "model": "svc-1"});
    let ask = |token: &str, from: &str| {
        let call = Call::new(&world.service, Method::POST, "/service/v1/authorize");
        outcome(call.bearer(token).from(from).json(&question))
    };
    let forward = |token: &str, from: &str| {
        let call = Call::new(&world.service, Method::GET, "/service/v1/forward-auth");
        outcome(call.header("x-tollkeeper-service-token", token).from(from))
    };
    for number in 0..300 {
        assert_eq!(ask(&format!("token {number}"), ATTACKER).await.0, 401);
        assert_eq!(forward(&format!("token {number}"), ATTACKER).await.0, 401);
    }
    for found in [ask("another", ATTACKER).await, forward("another", ATTACKER).await] {
        assert_eq!((found.0, found.1.as_str()), LIMITED);
    }
    // The right token still works, even from the attacker's network. The credentials in its requests aren't
    // limited.
    let token = world.app.api.service_token.expose();
    for _ in 0..3 {
        assert_eq!(ask(token, ATTACKER).await.0, 200);
    }
    assert_eq!(ask("another", HOME_NEIGHBOUR).await.0, 401);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn attempts_are_not_counted_without_limits(world: World) {
    for _ in 0..620 {
        assert_eq!(try_key(&world, "tk_unknown", ATTACKER).await.0, 401);
    }
}
