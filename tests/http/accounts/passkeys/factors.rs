//! Effects of passkeys on a login with the password.

use http::Method;
use serde_json::{Value, json};

use super::{add, at, create, list, logged_in, mails, options, origin, post, prove, state, text};
use support::authenticator::{STEP_MS, texts};
use support::http::Call;
use support::on_each_database;
use support::security_key::SecurityKey;
use support::world::{PASSWORD, World};

fn password(world: &World, code: Option<&str>) -> Call {
    let mut body = json!({"email": super::ADA, "password": PASSWORD});
    if let Some(code) = code {
        body["one_time_code"] = code.into();
    }
    world.post("/v1/auth/login", &body)
}

async fn is_due(world: &World) -> bool {
    let answer = password(world, None).send().await;
    assert!(answer.status == 200 || answer.code() == "second_factor_required", "{}", answer.text);
    answer.status != 200
}

/// Adds a passkey with this value of `asked_after_password`.
async fn add_asking(world: &World, token: &str, is_asked: Option<bool>) -> (SecurityKey, Value) {
    let (mut key, waiting) = (SecurityKey::new(), options(world, token).await);
    let credential = key.make(&waiting["public_key"], &origin(world));
    let body = json!({
        "ceremony": waiting["ceremony"], "credential": credential, "name": "x", "asked_after_password": is_asked,
    });
    (key, post(world, token, "/v1/auth/passkeys", &body).data().await)
}

#[on_each_database]
async fn first_passkey_is_asked_for_after_the_password(world: World) {
    let ada = world.user("ada").await;
    let other = world.session(ada.id).await;
    let token = &ada.access_token;
    let (mut key, added) = add(&world, token, "Laptop").await;
    let codes = texts(&added["recovery_codes"]);
    assert_eq!(codes.len(), 10);
    let expected =
        json!({"totp": null, "passkeys": 1, "recovery_codes_left": 10, "asked_after_password": true});
    assert_eq!(state(&world, token).await, expected);
    let ended = world.get("/v1/auth/me").bearer(&other.access_token).send().await.status;
    assert_eq!(ended, 401, "the session was opened with only the password");
    assert!(is_due(&world).await);
    assert_eq!(password(&world, Some("123456")).refused().await, (401, "invalid_one_time_code".into()));
    // Each recovery code replaces the passkey once. A login with the passkey needs neither a password nor a
    // code.
    password(&world, Some(&codes[0])).data().await;
    assert_eq!(password(&world, Some(&codes[0])).refused().await.1, "invalid_one_time_code");
    let session = text(&logged_in(&world, &mut key).await, "access_token");
    assert_eq!(state(&world, &session).await["recovery_codes_left"], 9);
    // Confirming the identity with the passkey needs no code either.
    prove(&world, &session, &mut key).await.data().await;
    let body = json!({"password": PASSWORD});
    let refused = post(&world, token, "/v1/auth/reauthenticate", &body).refused().await;
    assert_eq!(refused, (401, "second_factor_required".into()));
}

#[on_each_database]
async fn second_passkey_changes_nothing_for_the_password(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let (_, first) = add(&world, token, "Laptop").await;
    let other =
        text(&password(&world, Some(&texts(&first["recovery_codes"])[0])).data().await, "access_token");
    let (_, second) = add(&world, token, "Phone").await;
    assert_eq!(second["recovery_codes"], json!(null));
    assert_eq!(state(&world, token).await["recovery_codes_left"], 9);
    world.get("/v1/auth/me").bearer(&other).data().await;

    let remove = async |added: &Value| {
        let id = text(&added["passkey"], "id");
        text(&at(&world, token, Method::DELETE, &id).data().await, "message")
    };
    assert!(remove(&first).await.contains("still requires a second factor"));
    assert!(is_due(&world).await);
    assert!(remove(&second).await.contains("password alone"));
    assert!(!is_due(&world).await);
    let none = json!({"totp": null, "passkeys": 0, "recovery_codes_left": 0, "asked_after_password": false});
    assert_eq!(state(&world, token).await, none);
    let told = mails(&world, "A passkey was removed from your account").await;
    let says = |words: &str| told.iter().filter(|mail| mail.contains(words)).count();
    assert_eq!(
        (says("still requires a second factor"), says("sign in with only your password")),
        (1, 1),
        "{told:?}"
    );
    // The next passkey is a first factor again.
    assert_eq!(texts(&add(&world, token, "New").await.1["recovery_codes"]).len(), 10);
}

#[on_each_database]
async fn person_may_leave_the_password_as_it_is(world: World) {
    let ada = world.user("ada").await;
    let other = world.session(ada.id).await;
    let token = &ada.access_token;
    let (mut key, added) = add_asking(&world, token, Some(false)).await;
    assert_eq!(added["recovery_codes"], json!(null), "no factor that they could replace");
    let expected =
        json!({"totp": null, "passkeys": 1, "recovery_codes_left": 0, "asked_after_password": false});
    assert_eq!(state(&world, token).await, expected);
    assert!(!is_due(&world).await);
    logged_in(&world, &mut key).await;
    world.get("/v1/auth/me").bearer(&other.access_token).data().await;
    // The next passkey keeps the setting, unless the request changes it.
    let (_, second) = add_asking(&world, token, None).await;
    assert_eq!(second["recovery_codes"], json!(null));
    assert!(!is_due(&world).await);
    let (_, third) = add_asking(&world, token, Some(true)).await;
    assert_eq!(texts(&third["recovery_codes"]).len(), 10);
    assert!(is_due(&world).await);
    // A later passkey can't switch it off.
    add_asking(&world, token, Some(false)).await;
    assert!(is_due(&world).await);
    assert_eq!(list(&world, token).await.as_array().map(Vec::len), Some(4));
}

#[on_each_database]
async fn app_and_passkeys_stand_beside_each_other(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let (app, codes) = world.add_authenticator(token).await;
    let (_, added) = add(&world, token, "Laptop").await;
    assert_eq!(added["recovery_codes"], json!(null), "they were created with the app");
    password(&world, Some(&app.code(world.clock.now()))).data().await;
    // Without the app, the passkey is still required, and the recovery codes are kept.
    let removed = world.call(Method::DELETE, "/v1/auth/totp").bearer(token).data().await;
    assert!(text(&removed, "message").contains("still requires a second factor"), "{removed}");
    let [mail] = mails(&world, "A second factor was removed from your account").await.try_into().unwrap();
    assert!(mail.contains("still requires a passkey or a recovery code"), "{mail}");
    world.clock.advance_ms(STEP_MS);
    let late = password(&world, Some(&app.code(world.clock.now()))).refused().await;
    assert_eq!(late, (401, "invalid_one_time_code".into()), "the app was removed");
    password(&world, Some(&codes[0])).data().await;
    // Adding an app to an account with a passkey returns no new codes, and the old codes remain valid.
    let started = post(&world, token, "/v1/auth/totp", &json!({})).data().await;
    let app = support::authenticator::Authenticator::new(&text(&started, "secret"));
    let code = json!({"code": app.code(world.clock.now())});
    let confirmed = post(&world, token, "/v1/auth/totp/confirm", &code).data().await;
    assert_eq!(confirmed["recovery_codes"], json!(null));
    assert_eq!(state(&world, token).await["recovery_codes_left"], 9);
    // Without the passkey, the app is still required.
    at(&world, token, Method::DELETE, &text(&added["passkey"], "id")).data().await;
    assert!(is_due(&world).await);
    assert_eq!(state(&world, token).await["recovery_codes_left"], 9);
}

#[on_each_database]
async fn passkey_without_a_name_is_refused(world: World) {
    let ada = world.user("ada").await;
    let waiting = options(&world, &ada.access_token).await;
    let made = SecurityKey::new().make(&waiting["public_key"], &origin(&world));
    for name in ["", " ", &"x".repeat(101)] {
        let refused = create(&world, &ada.access_token, &waiting, &made, name).refused().await;
        assert_eq!(refused, (400, "invalid_request".into()), "{name:?}");
    }
}
