//! Logins and proofs of identity with a passkey.

use serde_json::json;
use tollkeeper::clock::{DAY_MS, MINUTE_MS};

use super::{INVALID, add, entries, logged_in, login, login_options, mails, origin, post, prove, text};
use support::on_each_database;
use support::security_key::encode;
use support::world::{PASSWORD, World};

#[on_each_database]
async fn passkey_logs_in_without_address_and_password(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let asked = login_options(&world).await;
    assert_eq!(asked["public_key"]["allowCredentials"], json!([]), "the options don't name an account");
    assert_eq!(asked["public_key"]["userVerification"], "required");
    let signed = key.sign(&asked["public_key"], &origin(&world));
    let answer = login(&world, &asked, &signed).send().await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"), "{}", answer.text);
    let data = &answer.json()["data"];
    let mut names: Vec<_> = data.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["access_token", "expires_in", "refresh_token", "token_type", "user"]);
    let user = json!({"id": ada.id.to_string(), "email": super::ADA, "username": "ada", "full_name": null});
    assert_eq!(data["user"], user);
    world.get("/v1/auth/me").bearer(&text(data, "access_token")).data().await;
    let refresh = post(&world, &text(data, "refresh_token"), "/v1/auth/refresh-token", &json!({}));
    refresh.data().await;
    assert_eq!(entries(&world, "session.started").await.len(), 1);
}

#[on_each_database]
async fn login_is_that_of_a_new_network_too(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    for (network, told) in [("10.1.1.1", 0), ("10.2.2.2", 1)] {
        let asked = login_options(&world).await;
        let signed = key.sign(&asked["public_key"], &origin(&world));
        login(&world, &asked, &signed).from(network).data().await;
        assert_eq!(mails(&world, "New sign-in to your account").await.len(), told, "{network}");
        world.clock.advance_ms(MINUTE_MS);
    }
    world.clock.advance_ms(DAY_MS);
}

#[on_each_database(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")])]
async fn address_has_to_be_verified_where_that_is_asked_for(world: World) {
    let ada = world.unverified_user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let asked = login_options(&world).await;
    let signed = key.sign(&asked["public_key"], &origin(&world));
    assert_eq!(login(&world, &asked, &signed).refused().await, (403, "email_not_verified".into()));
}

/// Anyone can register another person's address and add a passkey. The passkey is removed once the address is
/// verified.
#[on_each_database]
async fn first_proof_of_an_address_by_a_reset_removes_a_strangers_passkey(world: World) {
    let stranger = world.unverified_user("ada").await;
    let (mut key, _) = add(&world, &stranger.access_token, "Stranger's").await;
    let new = reset(&world).await;
    let asked = login_options(&world).await;
    let signed = key.sign(&asked["public_key"], &origin(&world));
    let (status, code) = login(&world, &asked, &signed).refused().await;
    assert_eq!((status, code.as_str()), INVALID);
    let body = json!({"email": super::ADA, "password": new});
    let token = text(&world.post("/v1/auth/login", &body).data().await, "access_token");
    // The owner's user handle is a new one.
    let (own, _) = add(&world, &token, "Own").await;
    assert_ne!(encode(&own.handle), encode(&key.handle));
}

/// Sets a new password with an e-mailed link, and returns the password.
async fn reset(world: &World) -> &'static str {
    const NEW: &str = "Violet-Kettle-Orbit-9";
    world.post("/v1/auth/forgot-password", &json!({"email": super::ADA})).data().await;
    let token = world.mailed_token(super::ADA).await;
    let body = json!({"token": token, "password": NEW, "password_confirmation": NEW});
    world.post("/v1/auth/reset-password", &body).data().await;
    NEW
}

#[on_each_database]
async fn reset_keeps_the_passkeys_of_the_owner(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    reset(&world).await;
    assert_eq!(logged_in(&world, &mut key).await["user"]["id"], ada.id.to_string());
}

#[on_each_database]
async fn passkey_proves_who_the_person_is(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let (mut of_bob, _) = add(&world, &bob.access_token, "Bob's").await;
    let before = text(&logged_in(&world, &mut key).await, "access_token");
    world.clock.advance_ms(20 * MINUTE_MS);
    let asked = post(&world, &before, "/v1/auth/reauthenticate/options", &json!({})).data().await;
    let id = encode(&key.credential_id);
    assert_eq!(asked["public_key"]["allowCredentials"], json!([{"type": "public-key", "id": id}]));
    let (status, code) = prove(&world, &before, &mut of_bob).await.refused().await;
    assert_eq!((status, code.as_str()), INVALID, "another person's");
    let answer = prove(&world, &before, &mut key).await.data().await;
    let mut names: Vec<_> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["access_token", "expires_in", "refresh_token", "token_type"]);
    let token = text(&answer, "access_token");
    super::options(&world, &token).await;
    assert_eq!(world.get("/v1/auth/me").bearer(&before).send().await.status, 401, "it has ended");
}

#[on_each_database]
async fn proof_takes_one_way_or_the_other(world: World) {
    let ada = world.user("ada").await;
    let missing = async |body: serde_json::Value| {
        let answer = post(&world, &ada.access_token, "/v1/auth/reauthenticate", &body).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{body}");
        let details = &answer.json()["error"]["details"];
        assert_eq!((details[0]["code"].clone(), details[1].clone()), (json!("required"), json!(null)));
        text(&details[0], "param")
    };
    assert_eq!(missing(json!({})).await, "password");
    assert_eq!(missing(json!({"one_time_code": "123456"})).await, "password");
    assert_eq!(missing(json!({"ceremony": "x"})).await, "credential");
    assert_eq!(missing(json!({"password": PASSWORD, "credential": {}})).await, "ceremony");
    let none = post(&world, &ada.access_token, "/v1/auth/reauthenticate/options", &json!({}));
    assert_eq!(none.refused().await, (404, "passkey_not_found".into()));
}
