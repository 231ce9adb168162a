//! Section 4.1 through HTTP.

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, HOUR_MS};

use crate::support::world::{PASSWORD, START, World, on_each_database, on_each_database_with};

fn ada() -> Value {
    json!({"email": "Ada@Example.com", "password": PASSWORD, "username": "Ada", "full_name": "Ada Lovelace",
           "phone": "+44 1632 960961"})
}

async fn login(world: &World, password: &str) -> Value {
    let body = json!({"email": "ada@example.COM", "password": password, "remember_me": true});
    world.post("/v1/auth/login", &body).data().await
}

#[test]
fn from_registration_to_logout() {
    on_each_database(async |world| {
        let registered = world.post("/v1/auth/register", &ada()).data().await;
        assert_eq!(registered["verification_email_sent"], true);
        let user = &registered["user"];
        assert_eq!(user["email"], "Ada@Example.com");
        assert_eq!(user["username"], "Ada");
        assert_eq!(user["full_name"], "Ada Lovelace");
        assert_eq!(user["created_at"], START);
        assert!(user["id"].as_str().unwrap().starts_with("user_"));

        let token = world.mailed_token("Ada@Example.com");
        let verified = world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
        assert_eq!(verified, json!({"email": "Ada@Example.com", "verified": true, "verified_at": START}));

        let tokens = login(&world, PASSWORD).await;
        assert_eq!(tokens["token_type"], "Bearer");
        assert_eq!(tokens["expires_in"], 3600);
        assert_eq!(tokens["user"]["id"], user["id"]);
        let access = tokens["access_token"].as_str().unwrap();

        let me = world.get("/v1/auth/me").bearer(access).data().await;
        let expected = json!({"user": {"id": user["id"], "email": "Ada@Example.com", "username": "Ada",
            "full_name": "Ada Lovelace", "phone": "+441632960961", "created_at": START, "email_verified": true,
            "phone_verified": false, "last_login_at": START}});
        assert_eq!(me, expected);

        let out = world.post("/v1/auth/logout", &json!({})).bearer(access).data().await;
        assert!(out["message"].is_string());
        let refresh = tokens["refresh_token"].as_str().unwrap();
        let refused = world.get("/v1/auth/me").bearer(access).refused().await;
        assert_eq!(refused, (401, "invalid_access_token".into()));
        let refused = world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).refused().await;
        assert_eq!(refused, (401, "invalid_refresh_token".into()));
    });
}

#[test]
fn a_refresh_token_gives_access_tokens_for_thirty_days() {
    on_each_database(async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let tokens = login(&world, PASSWORD).await;
        let (access, refresh) =
            (tokens["access_token"].as_str().unwrap(), tokens["refresh_token"].as_str().unwrap());
        world.clock.advance_ms(HOUR_MS);
        assert_eq!(world.get("/v1/auth/me").bearer(access).refused().await.0, 401);
        let refreshed = world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).data().await;
        assert_eq!(refreshed["token_type"], "Bearer");
        assert_eq!(refreshed["expires_in"], 3600);
        assert_eq!(refreshed.as_object().unwrap().len(), 3);
        world.get("/v1/auth/me").bearer(refreshed["access_token"].as_str().unwrap()).data().await;
        world.clock.advance_ms(30 * DAY_MS - HOUR_MS);
        assert_eq!(world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).refused().await.0, 401);
    });
}

#[test]
fn tokens_of_one_kind_do_not_pass_for_the_other() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let (access, refresh) = (&ada.access_token, &ada.refresh_token);
        assert_eq!(
            world.get("/v1/auth/me").bearer(refresh).refused().await,
            (401, "invalid_access_token".into())
        );
        let refused = world.post("/v1/auth/refresh-token", &json!({})).bearer(access).refused().await;
        assert_eq!(refused, (401, "invalid_refresh_token".into()));
        assert_eq!(
            world.get("/v1/models").bearer(refresh).refused().await,
            (401, "invalid_access_token".into())
        );
    });
}

#[test]
fn a_verification_token_works_once_and_for_a_day() {
    on_each_database(async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let body = json!({"token": world.mailed_token("Ada@Example.com")});
        world.clock.advance_ms(DAY_MS);
        let refused = world.post("/v1/auth/verify-email", &body).refused().await;
        assert_eq!(refused, (400, "invalid_token".into()));
        world.clock.advance_ms(-1);
        world.post("/v1/auth/verify-email", &body).data().await;
        let answer = world.post("/v1/auth/verify-email", &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_token"));
        assert_eq!(answer.json()["error"]["param"], "token");
        for token in ["", "x", &"A".repeat(43)] {
            let refused = world.post("/v1/auth/verify-email", &json!({ "token": token })).refused().await;
            assert_eq!(refused, (400, "invalid_token".into()));
        }
    });
}

#[test]
fn every_bad_field_is_reported_at_once() {
    on_each_database(async |world| {
        let body = json!({"email": "nobody", "password": "short", "username": "a b", "full_name": 5, "phone": "123",
                          "pasword": "x"});
        let answer = world.post("/v1/auth/register", &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
        let details = answer.details();
        for due in [
            "email",
            "password password_too_short",
            "password password_needs_uppercase",
            "password password_needs_digit",
            "username",
            "full_name wrong_type",
            "phone",
            "pasword unknown_field",
        ] {
            assert!(details.iter().any(|detail| detail.starts_with(due)), "{due} is not in {details:?}");
        }
        assert!(answer.text.contains("did you mean `password`?"));
        assert_eq!(answer.json()["status_message"], "INVALID_REQUEST");
        assert_eq!(answer.json()["error"]["param"], "email");
    });
}

#[test]
fn an_address_and_a_name_are_taken_once() {
    on_each_database(async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let mut other = ada();
        other["username"] = json!("someone");
        let answer = world.post("/v1/auth/register", &other).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "email_taken"));
        assert_eq!(answer.json()["error"]["param"], "email");
        assert_eq!(answer.header("x-should-retry"), "false");
        other = ada();
        other["email"] = json!("other@example.com");
        other["username"] = json!("\u{ff21}da"); // A full-width A folds to the same name.
        let answer = world.post("/v1/auth/register", &other).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "username_taken"));
    });
}

#[test]
fn racing_registrations_have_one_winner() {
    on_each_database(async |world| {
        let calls = (0..8).map(|n| {
            let mut body = ada();
            body["username"] = json!(format!("ada{n}"));
            world.post("/v1/auth/register", &body).send()
        });
        let answers = futures_util::future::join_all(calls).await;
        let won = answers.iter().filter(|answer| answer.status == 200).count();
        let taken = answers.iter().filter(|answer| answer.code() == "email_taken").count();
        assert_eq!((won, taken), (1, 7));
    });
}

#[test]
fn a_failed_login_says_the_same_whoever_asks() {
    on_each_database(async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let wrong =
            world.post("/v1/auth/login", &json!({"email": "ada@example.com", "password": "x"})).send().await;
        let nobody =
            world.post("/v1/auth/login", &json!({"email": "bob@example.com", "password": "x"})).send().await;
        assert_eq!((wrong.status, wrong.code().as_str()), (401, "invalid_credentials"));
        assert_eq!(wrong.text, nobody.text);
    });
}

#[test]
fn an_unverified_person_may_be_kept_out() {
    on_each_database_with(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")], async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let body = json!({"email": "ada@example.com", "password": PASSWORD});
        assert_eq!(world.post("/v1/auth/login", &body).refused().await, (403, "email_not_verified".into()));
        let token = world.mailed_token("Ada@Example.com");
        world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
        world.post("/v1/auth/login", &body).data().await;
    });
}

#[test]
fn an_address_that_registers_too_often_waits() {
    on_each_database_with(&[("TOLLKEEPER_LIMITS__REGISTRATIONS_PER_MINUTE", "2")], async |world| {
        for _ in 0..2 {
            assert_eq!(world.post("/v1/auth/register", &json!({})).send().await.status, 400);
        }
        let answer = world.post("/v1/auth/register", &json!({})).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
        assert_eq!(answer.header("retry-after"), "30");
        assert_eq!(answer.header("x-ratelimit-limit-requests"), "2");
        assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0");
        let elsewhere = world.post("/v1/auth/register", &json!({})).from("192.0.2.9").send().await;
        assert_eq!(elsewhere.status, 400);
        world.clock.advance_ms(30_000);
        assert_eq!(world.post("/v1/auth/register", &json!({})).send().await.status, 400);
    });
}
