//! Changes of username, full name and phone number.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::entries;
use support::http::Call;
use support::world::{TestUser, World};
use support::{Database, on_each_database};

fn change(world: &World, user: &TestUser, body: &Value) -> Call {
    world.call(Method::PUT, "/v1/auth/me").bearer(&user.access_token).json(body)
}

#[on_each_database]
async fn each_field_is_changed_by_itself(world: World) {
    let ada = world.user("ada").await;
    let before = world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    let cases = [
        (json!({"username": "Countess"}), "username", json!("Countess")),
        (json!({"full_name": " Ada Lovelace "}), "full_name", json!("Ada Lovelace")),
        (json!({"phone": "+44 1632 960961"}), "phone", json!("+441632960961")),
        (json!({"full_name": null}), "full_name", Value::Null),
        (json!({"phone": null}), "phone", Value::Null),
        (json!({"full_name": ""}), "full_name", json!("")),
    ];
    let mut expected = before;
    for (number, (body, field, value)) in cases.into_iter().enumerate() {
        expected["user"][field] = value;
        assert_eq!(change(&world, &ada, &body).data().await, expected, "{body}");
        let me = world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
        assert_eq!(me, expected, "{body}");
        assert_eq!(entries(&world, "user.changed").await.len(), number + 1);
    }
    let id = ada.id.to_string();
    assert_eq!(entries(&world, "user.changed").await[0], [id.clone(), id]);
    // A request that changes nothing leaves no entry.
    for body in [json!({}), json!({"phone": null}), json!({"username": "Countess", "full_name": ""})] {
        assert_eq!(change(&world, &ada, &body).data().await, expected, "{body}");
    }
    assert_eq!(entries(&world, "user.changed").await.len(), 6);
}

#[on_each_database]
async fn values_are_checked_as_at_registration(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let cases = [
        (json!({"username": "a b"}), "username invalid_characters"),
        (json!({"username": "ab"}), "username too_short"),
        (json!({"username": "root"}), "username reserved"),
        (json!({"username": null}), "username required"),
        (json!({"full_name": "x".repeat(201)}), "full_name too_long"),
        (json!({"full_name": 5}), "full_name wrong_type"),
        (json!({"phone": "12345"}), "phone invalid_phone"),
        (json!({"email": "other@example.com"}), "email unknown_field"),
        (json!({"user_name": "ada"}), "user_name unknown_field"),
    ];
    for (body, detail) in cases {
        let answer = change(&world, &ada, &body).send().await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    // Users may change the case of their own username, but another user's name is taken in any case.
    change(&world, &ada, &json!({"username": "ADA"})).data().await;
    let answer = change(&world, &bob, &json!({"username": "\u{ff21}da", "full_name": "Bob"})).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "username_taken"));
    assert_eq!(answer.json()["error"]["param"], "username");
    let me = world.get("/v1/auth/me").bearer(&bob.access_token).data().await;
    assert_eq!((&me["user"]["username"], &me["user"]["full_name"]), (&json!("bob"), &Value::Null));
    // A username that a user has given up is available.
    change(&world, &ada, &json!({"username": "countess"})).data().await;
    change(&world, &bob, &json!({"username": "ada"})).data().await;
}

#[on_each_database]
async fn new_phone_number_is_not_verified(world: World) {
    let ada = world.user("ada").await;
    let mut tx = world.app.db.write().await.unwrap();
    let verified = "UPDATE users SET phone = '+441632960961', phone_verified_at = 5 WHERE id = $1";
    sql(verified).bind(ada.id).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    for (phone, is_verified) in [("+44 (0)1632 960961", true), ("+441632960962", false)] {
        let me = change(&world, &ada, &json!({ "phone": phone })).data().await;
        assert_eq!(me["user"]["phone_verified"], is_verified, "{phone}");
    }
}

#[on_each_database]
async fn ended_sessions_and_api_keys_change_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let body = json!({"full_name": "Another"});
    for bearer in ["", &key, &ada.refresh_token] {
        let call = world.call(Method::PUT, "/v1/auth/me").bearer(bearer).json(&body);
        assert_eq!(call.send().await.status, 401);
    }
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    assert_eq!(change(&world, &ada, &body).refused().await, (401, "invalid_access_token".into()));
    assert!(entries(&world, "user.changed").await.is_empty());
}

#[on_each_database]
fn changes_count_as_management_calls(database: Database) {
    let limits =
        [("TOLLKEEPER_LIMITS__WRITES_PER_MINUTE", "2"), ("TOLLKEEPER_LIMITS__READS_PER_MINUTE", "2")];
    database.run(&limits, async |world| {
        let ada = world.user("ada").await;
        change(&world, &ada, &json!({})).data().await;
        let others = world.call(Method::DELETE, "/v1/auth/sessions").bearer(&ada.access_token);
        others.data().await;
        assert_eq!(change(&world, &ada, &json!({})).refused().await, (429, "rate_limited".into()));
        let resend = world.post("/v1/auth/resend-verification", &json!({})).bearer(&ada.access_token);
        assert_eq!(resend.refused().await, (429, "rate_limited".into()));
        for expected in [200, 200, 429] {
            let list = world.get("/v1/auth/sessions").bearer(&ada.access_token);
            assert_eq!(list.send().await.status, expected);
        }
        // Reads of the account have no limit.
        for _ in 0..5 {
            world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
        }
        world.clock.advance_ms(MINUTE_MS);
        world.catch_up().await;
        change(&world, &ada, &json!({})).data().await;
    });
}
