//! Changes of the second factor need a session in which the user confirmed their identity recently.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::{post, remove, state, text};
use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, TestUser, World};

const STALE: (u16, &str) = (403, "reauthentication_required");

fn changes(world: &World, token: &str) -> [Call; 4] {
    [
        post(world, token, "/v1/auth/totp", &json!({})),
        post(world, token, "/v1/auth/totp/confirm", &json!({"code": "123456"})),
        post(world, token, "/v1/auth/recovery-codes", &json!({})),
        remove(world, token),
    ]
}

async fn assert_stale(world: &World, token: &str) {
    for (number, call) in changes(world, token).into_iter().enumerate() {
        let (status, code) = call.refused().await;
        assert_eq!((status, code.as_str()), STALE, "{number}");
    }
}

async fn assert_fresh(world: &World, token: &str) {
    post(world, token, "/v1/auth/totp", &json!({})).data().await;
}

fn prove(world: &World, user: &TestUser, password: &str, code: &str) -> Call {
    let mut body = json!({ "password": password });
    if !code.is_empty() {
        body["one_time_code"] = code.into();
    }
    post(world, &user.access_token, "/v1/auth/reauthenticate", &body)
}

#[on_each_database]
async fn session_is_fresh_for_a_quarter_of_an_hour(world: World) {
    let ada = world.user("ada").await;
    world.clock.advance_ms(15 * MINUTE_MS - 1);
    assert_fresh(&world, &ada.access_token).await;
    world.clock.advance_ms(1);
    assert_stale(&world, &ada.access_token).await;
    // Reading needs no recent proof, and neither a read nor a refreshed token counts as a new proof.
    state(&world, &ada.access_token).await;
    post(&world, &ada.refresh_token, "/v1/auth/refresh-token", &json!({})).data().await;
    assert_stale(&world, &ada.access_token).await;
}

#[on_each_database(&[("TOLLKEEPER_SIGN_IN__FRESH_MINUTES", "1")])]
async fn freshness_is_configured(world: World) {
    let ada = world.user("ada").await;
    world.clock.advance_ms(MINUTE_MS - 1);
    assert_fresh(&world, &ada.access_token).await;
    world.clock.advance_ms(1);
    assert_stale(&world, &ada.access_token).await;
}

#[on_each_database]
async fn proof_replaces_the_session(world: World) {
    let ada = world.user("ada").await;
    let other = world.session(ada.id).await;
    world.clock.advance_ms(20 * MINUTE_MS);
    let answer = prove(&world, &ada, PASSWORD, "").send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let data = &answer.json()["data"];
    let mut names: Vec<_> = data.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["access_token", "expires_in", "refresh_token", "token_type"]);
    assert_eq!((&data["token_type"], &data["expires_in"]), (&json!("Bearer"), &json!(3600)));
    let token = text(data, "access_token");
    assert_fresh(&world, &token).await;
    post(&world, &text(data, "refresh_token"), "/v1/auth/refresh-token", &json!({})).data().await;
    // The tokens of the replaced session are no longer valid. Other sessions continue, and aren't fresher
    // than before.
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).send().await.status, 401);
    let refresh = post(&world, &ada.refresh_token, "/v1/auth/refresh-token", &json!({}));
    assert_eq!(refresh.refused().await.0, 401);
    assert_stale(&world, &other.access_token).await;
    let listed = world.get("/v1/auth/sessions").bearer(&token).data().await;
    assert_eq!(listed["total"], 2);
    assert_eq!(prove(&world, &ada, PASSWORD, "").refused().await.0, 401, "the earlier session has ended");
}

#[on_each_database]
async fn proof_needs_the_second_factor_too(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    assert_eq!(prove(&world, &ada, PASSWORD, "").refused().await, (401, "second_factor_required".into()));
    let answer = prove(&world, &ada, PASSWORD, "000000").send().await;
    assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_one_time_code"));
    assert_eq!(answer.json()["error"]["param"], "one_time_code");
    let code = app.code(world.clock.now());
    let answer = prove(&world, &ada, "Wrong-Kettle-1", &code).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (401, "wrong_password"));
    assert_eq!(answer.json()["error"]["param"], "password");
    let token = text(&prove(&world, &ada, PASSWORD, &code).data().await, "access_token");
    let ada = TestUser { access_token: token, ..ada };
    assert_eq!(prove(&world, &ada, PASSWORD, &code).refused().await.0, 401, "the code is used up");
    let token = text(&prove(&world, &ada, PASSWORD, &codes[0]).data().await, "access_token");
    assert_eq!(state(&world, &token).await["recovery_codes_left"], 9);
}

#[on_each_database]
async fn proofs_count_like_logins(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    for number in 0..10 {
        let (password, code) = if number % 2 == 0 { ("Wrong-Kettle-1", "") } else { (PASSWORD, "000000") };
        assert_eq!(prove(&world, &ada, password, code).refused().await.0, 401);
    }
    let refused = prove(&world, &ada, PASSWORD, "000000").refused().await;
    assert_eq!(refused, (429, "too_many_attempts".into()));
    assert_eq!(super::login(&world, PASSWORD, "").refused().await, (429, "too_many_attempts".into()));
}

#[on_each_database]
async fn sessions_from_before_count_from_their_login(world: World) {
    let ada = world.user("ada").await;
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE sessions SET authenticated_at = NULL").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_fresh(&world, &ada.access_token).await;
    world.clock.advance_ms(15 * MINUTE_MS);
    assert_stale(&world, &ada.access_token).await;
}

#[on_each_database]
async fn clock_that_ran_ahead_makes_no_session_fresh_for_ever(world: World) {
    world.clock.advance_ms(60 * MINUTE_MS);
    let ada = world.user("ada").await;
    world.clock.advance_ms(-60 * MINUTE_MS);
    // The user's tokens are from the future too, so the test opens a new session.
    let token = world.session(ada.id).await;
    let mut tx = world.app.db.write().await.unwrap();
    let ahead = world.clock.now().plus_ms(60 * MINUTE_MS);
    sql("UPDATE sessions SET authenticated_at = $1").bind(ahead).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_stale(&world, &token.access_token).await;
}

/// Confirming a new address ends every session except the one that requested the change, or the session that
/// replaced it.
#[on_each_database]
async fn session_in_the_place_of_another_keeps_its_pending_address(world: World) {
    let ada = world.user("ada").await;
    let body = json!({"new_email": "new@example.com", "password": PASSWORD});
    post(&world, &ada.access_token, "/v1/auth/change-email", &body).data().await;
    let token = text(&prove(&world, &ada, PASSWORD, "").data().await, "access_token");
    let link = world.mailed_token("new@example.com").await;
    let fields = [("token", link.as_str()), ("password", PASSWORD)];
    let answer = world.call(Method::POST, "/change-email").form(&fields).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    world.catch_up().await;
    assert_eq!(world.get("/v1/auth/me").bearer(&token).data().await["user"]["email"], "new@example.com");
}

/// Counted by hand: ten wrong codes are checked, regardless of correct passwords in between and of the
/// endpoint that gets the codes (RFC 4226, section 7.3).
#[on_each_database]
async fn right_passwords_dont_forget_wrong_codes(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    let mut looked_at = 0;
    for round in 0..6 {
        for _ in 0..8 {
            match prove(&world, &ada, PASSWORD, "000000").refused().await {
                (401, code) => {
                    assert_eq!(code, "invalid_one_time_code");
                    looked_at += 1;
                }
                refused => assert_eq!(refused, (429, "too_many_attempts".into())),
            }
        }
        // This request needs only the right password.
        let body = json!({"new_email": format!("new{round}@example.com"), "password": PASSWORD});
        let status = post(&world, &ada.access_token, "/v1/auth/change-email", &body).send().await.status;
        assert!([200, 429].contains(&status), "{status}");
    }
    assert_eq!(looked_at, 10);
    // Logins also have to wait because of these guesses.
    let refused = super::login(&world, PASSWORD, "000000").refused().await;
    assert_eq!(refused, (429, "too_many_attempts".into()));
}

/// Guesses with someone else's session are recorded, like guesses at the login.
#[on_each_database]
async fn refused_proofs_are_recorded(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    let (wrong, new) = ("Wrong-Kettle-1", "Violet-Kettle-Orbit-9");
    let change_email = json!({"new_email": "new@example.com", "password": wrong});
    let change_password =
        json!({"current_password": wrong, "new_password": new, "new_password_confirmation": new});
    let ways: [(&str, Value, &str); 4] = [
        ("/v1/auth/reauthenticate", json!({"password": wrong}), "invalid_credentials"),
        (
            "/v1/auth/reauthenticate",
            json!({"password": PASSWORD, "one_time_code": "000000"}),
            "invalid_one_time_code",
        ),
        ("/v1/auth/change-email", change_email, "invalid_credentials"),
        ("/v1/auth/change-password", change_password, "invalid_credentials"),
    ];
    for (number, (path, body, reason)) in ways.into_iter().enumerate() {
        // At most one entry per minute is written for each reason.
        world.clock.advance_ms(MINUTE_MS);
        assert_eq!(post(&world, &ada.access_token, path, &body).refused().await.0, 401, "{path}");
        let reasons = super::refusals(&world).await;
        assert_eq!((reasons.len(), reasons.last().map(String::as_str)), (number + 1, Some(reason)), "{path}");
    }
    // The tenth wrong guess within a day triggers an e-mail, regardless of the endpoint.
    for _ in 0..6 {
        post(&world, &ada.access_token, "/v1/auth/reauthenticate", &json!({"password": wrong}))
            .refused()
            .await;
    }
    assert_eq!(super::mails(&world, "Failed sign-in attempts on your account").await.len(), 1);
}

/// A stolen session and password aren't enough to change the password or address of an account with a second
/// factor.
#[on_each_database]
async fn password_alone_changes_nothing_where_a_factor_is(world: World) {
    let ada = world.user("ada").await;
    let new = "Violet-Kettle-Orbit-9";
    let changes = |token: &str| {
        let email = json!({"new_email": "new@example.com", "password": PASSWORD});
        let password =
            json!({"current_password": PASSWORD, "new_password": new, "new_password_confirmation": new});
        [("/v1/auth/change-email", email), ("/v1/auth/change-password", password)]
            .map(|(path, body)| post(&world, token, path, &body))
    };
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    world.clock.advance_ms(16 * MINUTE_MS);
    for change in changes(&ada.access_token) {
        assert_eq!(change.refused().await, (403, "reauthentication_required".into()));
    }
    let code = app.code(world.clock.now());
    let token = text(&prove(&world, &ada, PASSWORD, &code).data().await, "access_token");
    for change in changes(&token) {
        assert_eq!(change.send().await.status, 200);
    }
    // Without a second factor, the password is enough.
    let bob = world.user("bob").await;
    world.clock.advance_ms(16 * MINUTE_MS);
    for change in changes(&bob.access_token) {
        assert_eq!(change.send().await.status, 200);
    }
}
