//! No sign-in method bypasses an account's second factor.

use http::Method;
use serde_json::json;

use super::{ADA, entries, logged_in, login, post, state, text};
use support::authenticator::STEP_MS;
use support::on_each_database;
use support::world::{PASSWORD, World};

const NEW: &str = "Violet-Kettle-Orbit-9";
const DUE: (u16, &str) = (401, "second_factor_required");

async fn assert_due(world: &World, password: &str) {
    let (status, code) = login(world, password, "").refused().await;
    assert_eq!((status, code.as_str()), DUE);
}

#[on_each_database]
async fn reset_by_mail_gives_no_session_and_keeps_the_factor(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
    let token = world.mailed_token(ADA).await;
    let body = json!({"token": token, "password": NEW, "password_confirmation": NEW});
    let answer = world.post("/v1/auth/reset-password", &body).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!answer.text.contains("_token") && answer.header("set-cookie").is_empty(), "{}", answer.text);
    assert_due(&world, NEW).await;
    let token = text(&login(&world, NEW, &app.code(world.clock.now())).data().await, "access_token");
    assert_eq!(state(&world, &token).await["recovery_codes_left"], 10);
    login(&world, NEW, &codes[0]).data().await;
}

#[on_each_database]
async fn reset_on_the_page_gives_no_session_and_keeps_the_factor(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
    let token = world.mailed_token(ADA).await;
    let fields = [("token", token.as_str()), ("password", NEW), ("password_confirmation", NEW)];
    let answer = world.call(Method::POST, "/reset-password").form(&fields).send().await;
    assert_eq!((answer.status, answer.header("set-cookie")), (200, ""), "{}", answer.text);
    assert_due(&world, NEW).await;
}

#[on_each_database]
async fn change_of_the_password_keeps_the_factor(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let body = json!({"current_password": PASSWORD, "new_password": NEW, "new_password_confirmation": NEW});
    post(&world, &ada.access_token, "/v1/auth/change-password", &body).data().await;
    assert_due(&world, NEW).await;
    login(&world, NEW, &app.code(world.clock.now())).data().await;
}

#[on_each_database]
async fn change_of_the_address_keeps_the_factor_and_gives_no_session(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    let body = json!({"new_email": "new@example.com", "password": PASSWORD});
    post(&world, &ada.access_token, "/v1/auth/change-email", &body).data().await;
    let token = world.mailed_token("new@example.com").await;
    let fields = [("token", token.as_str()), ("password", PASSWORD)];
    let answer = world.call(Method::POST, "/change-email").form(&fields).send().await;
    assert_eq!((answer.status, answer.header("set-cookie")), (200, ""), "{}", answer.text);
    let body = json!({"email": "new@example.com", "password": PASSWORD});
    let (status, code) = world.post("/v1/auth/login", &body).refused().await;
    assert_eq!((status, code.as_str()), DUE);
}

#[on_each_database]
async fn verifying_the_address_keeps_the_factor_and_gives_no_session(world: World) {
    let ada = world.unverified_user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    post(&world, &ada.access_token, "/v1/auth/resend-verification", &json!({})).data().await;
    let token = world.mailed_token(ADA).await;
    let fields = [("token", token.as_str()), ("password", PASSWORD)];
    let answer = world.call(Method::POST, "/verify-email").form(&fields).send().await;
    assert_eq!((answer.status, answer.header("set-cookie")), (200, ""), "{}", answer.text);
    assert_due(&world, PASSWORD).await;
}

/// Anyone can register another person's address and add an app. The app doesn't lock out the owner, who sets
/// a password with an e-mailed link.
#[on_each_database]
async fn first_proof_of_an_address_by_a_reset_removes_a_strangers_factor(world: World) {
    let stranger = world.unverified_user("ada").await;
    let (app, codes) = world.add_authenticator(&stranger.access_token).await;
    world.post("/v1/auth/forgot-password", &json!({"email": ADA})).data().await;
    let token = world.mailed_token(ADA).await;
    let body = json!({"token": token, "password": NEW, "password_confirmation": NEW});
    world.post("/v1/auth/reset-password", &body).data().await;
    let token = text(&login(&world, NEW, "").data().await, "access_token");
    let off = json!({"totp": null, "passkeys": 0, "recovery_codes_left": 0, "asked_after_password": false});
    assert_eq!(state(&world, &token).await, off);
    drop((app, codes));
}

#[on_each_database]
async fn removal_by_the_owner_is_the_end_of_old_codes(world: World) {
    let ada = world.user("ada").await;
    let (old, old_codes) = world.add_authenticator(&ada.access_token).await;
    super::remove(&world, &ada.access_token).data().await;
    let (new, _) = world.add_authenticator(&ada.access_token).await;
    world.clock.advance_ms(STEP_MS);
    let now = world.clock.now();
    for code in [old.code(now), old_codes[0].clone()] {
        assert_eq!(login(&world, PASSWORD, &code).refused().await, (401, "invalid_one_time_code".into()));
    }
    logged_in(&world, &new.code(now)).await;
    assert_eq!(entries(&world, "user.totp_added").await.len(), 2);
}
