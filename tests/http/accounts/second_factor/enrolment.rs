//! Adding, replacing and removing an authenticator app.

use serde_json::{Value, json};
use tollkeeper::clock::{MINUTE_MS, Time};
use tollkeeper::db::sql;

use super::{ADA, entries, logged_in, login, mails, post, remove, state, text};
use support::authenticator::{Authenticator, STEP_MS, texts};
use support::on_each_database;
use support::world::{PASSWORD, START, World};

const ADDED: &str = "An authenticator app was added to your account";
const REMOVED: &str = "A second factor was removed from your account";

#[on_each_database]
async fn app_is_added_asked_for_and_removed(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let none = json!({"totp": null, "passkeys": 0, "recovery_codes_left": 0, "asked_after_password": false});
    assert_eq!(state(&world, token).await, none);

    let started = post(&world, token, "/v1/auth/totp", &json!({})).data().await;
    assert_eq!(started["expires_at"], "2026-03-10T12:10:00.000Z");
    let secret = text(&started, "secret");
    assert_eq!(secret.len(), 32, "160 bits");
    let url = format!(
        "otpauth://totp/127%2E0%2E0%2E1:ada%40example%2Ecom?secret={secret}&issuer=127%2E0%2E0%2E1&algorithm=SHA1&\
         digits=6&period=30"
    );
    assert_eq!(started["otpauth_url"], url);
    assert_eq!(state(&world, token).await, none, "nothing has changed");
    login(&world, PASSWORD, "").data().await;

    let app = Authenticator::new(&secret);
    let code = app.code(world.clock.now());
    let confirmed = post(&world, token, "/v1/auth/totp/confirm", &json!({"code": code})).data().await;
    let codes = texts(&confirmed["recovery_codes"]);
    assert_eq!(codes.len(), 10);
    for code in &codes {
        assert!(code.len() == 27 && code.matches('-').count() == 3, "{code}");
    }
    let on = json!({"totp": {"since": START}, "passkeys": 0, "recovery_codes_left": 10, "asked_after_password": true});
    assert_eq!(state(&world, token).await, on);
    let [mail] = mails(&world, ADDED).await.try_into().unwrap();
    assert!(mail.contains("2026-03-10 12:00 UTC") && mail.contains("127.0.0.1"), "{mail}");
    assert!(!mail.contains("http"), "a notice has no link: {mail}");

    let answer = login(&world, PASSWORD, "").send().await;
    assert_eq!((answer.status, answer.code().as_str()), (401, "second_factor_required"));
    assert_eq!(answer.json()["error"]["param"], "one_time_code");
    assert_eq!(
        login(&world, PASSWORD, &code).refused().await,
        (401, "invalid_one_time_code".into()),
        "the code that confirmed it is used up"
    );
    world.clock.advance_ms(STEP_MS);
    let token = logged_in(&world, &app.code(world.clock.now())).await;

    let removed = remove(&world, &token).data().await;
    assert!(text(&removed, "message").contains("removed"));
    assert_eq!(state(&world, &token).await, none);
    assert_eq!(mails(&world, REMOVED).await.len(), 1);
    login(&world, PASSWORD, "").data().await;
    login(&world, PASSWORD, "000000").data().await;
    assert_eq!(remove(&world, &token).refused().await, (404, "second_factor_not_found".into()));
    let id = ada.id.to_string();
    for action in ["user.totp_added", "user.totp_removed"] {
        assert_eq!(entries(&world, action).await, [[id.clone(), id.clone()]], "{action}");
    }
}

#[on_each_database]
async fn seed_is_stored_sealed_and_codes_as_hashes(world: World) {
    let ada = world.user("ada").await;
    let started = post(&world, &ada.access_token, "/v1/auth/totp", &json!({})).data().await;
    let secret = text(&started, "secret");
    let app = Authenticator::new(&secret);
    let code = json!({"code": app.code(world.clock.now())});
    let confirmed = post(&world, &ada.access_token, "/v1/auth/totp/confirm", &code).data().await;
    let mut tx = world.app.db.read().await.unwrap();
    let (sealed,): (Vec<u8>,) = sql("SELECT sealed_seed FROM totp").one(&mut tx).await.unwrap();
    assert_eq!(sealed.len(), 1 + 12 + 20 + 16);
    let hashes: Vec<(Vec<u8>,)> = sql("SELECT code_hash FROM recovery_codes").all(&mut tx).await.unwrap();
    assert!(hashes.len() == 10 && hashes.iter().all(|(hash,)| hash.len() == 32));
    drop(tx);
    // The database contains neither the secret nor a code as plain text.
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    if world.backend == "sqlite" {
        let file = std::fs::read(world.data_dir.join("tollkeeper.db")).unwrap();
        let wal = std::fs::read(world.data_dir.join("tollkeeper.db-wal")).unwrap_or_default();
        let mut secrets = texts(&confirmed["recovery_codes"]);
        secrets.push(secret);
        for secret in secrets {
            let plain = secret.replace('-', "");
            for bytes in [&file, &wal] {
                assert!(!bytes.windows(plain.len()).any(|part| part == plain.as_bytes()), "{plain}");
            }
        }
    }
}

#[on_each_database]
async fn sealed_seed_is_bound_to_its_person(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    world.add_authenticator(&ada.access_token).await;
    let (app, _) = world.add_authenticator(&bob.access_token).await;
    // Bob, who can write to the database, copies the secret of his app to Ada's account.
    let mut tx = world.app.db.write().await.unwrap();
    let text = "UPDATE totp SET sealed_seed = (SELECT t.sealed_seed FROM totp t WHERE t.user_id = $2) WHERE user_id = $1";
    sql(text).bind(ada.id).bind(bob.id).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let code = app.code(world.clock.now());
    assert_eq!(login(&world, PASSWORD, &code).refused().await, (500, "internal_error".into()));
}

#[on_each_database]
async fn secret_waits_ten_minutes_and_the_latest_one_counts(world: World) {
    let ada = world.user("ada").await;
    let confirm = "/v1/auth/totp/confirm";
    let start = async || {
        let started = post(&world, &ada.access_token, "/v1/auth/totp", &json!({})).data().await;
        Authenticator::new(started["secret"].as_str().unwrap())
    };
    let nothing = (409, "no_totp_pending".to_owned());
    let body = |app: &Authenticator, now: Time| json!({"code": app.code(now)});
    assert_eq!(post(&world, &ada.access_token, confirm, &json!({"code": "123456"})).refused().await, nothing);
    let first = start().await;
    world.clock.advance_ms(10 * MINUTE_MS);
    let late = post(&world, &ada.access_token, confirm, &body(&first, world.clock.now()));
    assert_eq!(late.refused().await, nothing);

    let ada = world.session(ada.id).await;
    let (second, third) = (start().await, start().await);
    let now = world.clock.now();
    let answer = post(&world, &ada.access_token, confirm, &body(&second, now)).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (401, "invalid_one_time_code"));
    assert_eq!(answer.json()["error"]["param"], "code");
    post(&world, &ada.access_token, confirm, &body(&third, now)).data().await;
    let again = post(&world, &ada.access_token, confirm, &body(&third, now));
    assert_eq!(again.refused().await, nothing, "it is in use");
}

#[on_each_database]
async fn other_app_takes_the_place_of_the_first(world: World) {
    let ada = world.user("ada").await;
    let (first, codes) = world.add_authenticator(&ada.access_token).await;
    let started = post(&world, &ada.access_token, "/v1/auth/totp", &json!({})).data().await;
    let second = Authenticator::new(started["secret"].as_str().unwrap());
    // The first app is required until the first code of the second app is confirmed.
    let other = logged_in(&world, &first.code(world.clock.now())).await;
    let body = json!({"code": second.code(world.clock.now())});
    let confirmed = post(&world, &ada.access_token, "/v1/auth/totp/confirm", &body).data().await;
    assert_eq!(confirmed["recovery_codes"], Value::Null, "the existing codes stay valid");
    assert_eq!(state(&world, &other).await["recovery_codes_left"], 10, "and other sessions remain");
    world.clock.advance_ms(STEP_MS);
    let now = world.clock.now();
    let refused = login(&world, PASSWORD, &first.code(now)).refused().await;
    assert_eq!(refused, (401, "invalid_one_time_code".into()));
    logged_in(&world, &second.code(now)).await;
    logged_in(&world, &codes[0]).await;
    assert_eq!(mails(&world, ADDED).await.len(), 2);
}

#[on_each_database]
async fn first_app_ends_every_other_session(world: World) {
    let ada = world.user("ada").await;
    let (other, bob) = (world.session(ada.id).await, world.user("bob").await);
    let browser = world.browser(ada.id).await;
    for token in [&other.access_token, &bob.access_token] {
        world.get("/v1/auth/me").bearer(token).data().await;
    }
    world.add_authenticator(&ada.access_token).await;
    world.catch_up().await;
    let refresh = post(&world, &other.refresh_token, "/v1/auth/refresh-token", &json!({}));
    assert_eq!(refresh.refused().await, (401, "invalid_refresh_token".into()));
    assert_eq!(world.get("/v1/auth/me").bearer(&other.access_token).send().await.status, 401);
    assert_eq!(browser.get(&world, "/console/account").send().await.status, 303);
    for token in [&ada.access_token, &bob.access_token] {
        world.get("/v1/auth/me").bearer(token).data().await;
    }
    post(&world, &ada.refresh_token, "/v1/auth/refresh-token", &json!({})).data().await;
}

#[on_each_database]
async fn unverified_address_gets_no_mail(world: World) {
    let ada = world.unverified_user("ada").await;
    let (_, codes) = world.add_authenticator(&ada.access_token).await;
    let token = logged_in(&world, &codes[0]).await;
    remove(&world, &token).data().await;
    for subject in [ADDED, REMOVED, "A recovery code was used on your account"] {
        assert!(mails(&world, subject).await.is_empty(), "{subject}");
    }
}

#[on_each_database]
async fn apps_can_be_switched_off_but_those_that_are_there_stay(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let mut config = world.app.config.clone();
    config.sign_in.totp = false;
    let off = tollkeeper::app::App::new(config, world.clock.clone()).unwrap();
    off.boot().await.unwrap();
    let public = off.dispatcher(tollkeeper::web::route::Listener::Public);
    let call = |method, path: &str, token: &str, body: &Value| {
        support::http::Call::new(&public, method, path).bearer(token).json(body)
    };
    let post = http::Method::POST;
    let disabled = (403, "totp_disabled".to_owned());
    let bob = world.user("bob").await;
    for path in ["/v1/auth/totp", "/v1/auth/totp/confirm"] {
        let body = if path.ends_with("confirm") { json!({"code": "123456"}) } else { json!({}) };
        assert_eq!(call(post.clone(), path, &bob.access_token, &body).refused().await, disabled);
    }
    let body = json!({"email": ADA, "password": PASSWORD});
    let refused = call(post.clone(), "/v1/auth/login", "", &body).refused().await;
    assert_eq!(refused, (401, "second_factor_required".into()));
    let body = json!({"email": ADA, "password": PASSWORD, "one_time_code": app.code(world.clock.now())});
    let token = text(&call(post, "/v1/auth/login", "", &body).data().await, "access_token");
    remove(&world, &token).data().await;
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn seeds_that_nobody_confirms_are_removed(world: World) {
    let ada = world.user("ada").await;
    post(&world, &ada.access_token, "/v1/auth/totp", &json!({})).data().await;
    let count = async || {
        let mut tx = world.app.db.read().await.unwrap();
        let (count,): (i64,) = sql("SELECT COUNT(*) FROM totp_enrolments").one(&mut tx).await.unwrap();
        count
    };
    for (ms, left) in [(10 * MINUTE_MS - 1, 1), (1, 0)] {
        world.clock.advance_ms(ms);
        let mut tx = world.app.db.write().await.unwrap();
        tollkeeper::accounts::cleanup::remove_expired(&mut tx, world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(count().await, left);
    }
}

#[on_each_database]
async fn bad_input_is_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let long = "1".repeat(65);
    for (path, body, details) in [
        ("/v1/auth/totp/confirm", json!({}), &["code required"][..]),
        ("/v1/auth/totp/confirm", json!({"code": 123_456}), &["code wrong_type"]),
        ("/v1/auth/totp/confirm", json!({"code": long}), &["code too_long"]),
        ("/v1/auth/totp/confirm", json!({"code": "1", "kind": "x"}), &["kind unknown_field"]),
        ("/v1/auth/reauthenticate", json!({}), &["password required"]),
        (
            "/v1/auth/reauthenticate",
            json!({"password": "x", "one_time_code": 5}),
            &["one_time_code wrong_type"],
        ),
        (
            "/v1/auth/login",
            json!({"email": ADA, "password": PASSWORD, "one_time_code": [1]}),
            &["one_time_code wrong_type"],
        ),
    ] {
        let answer = post(&world, &ada.access_token, path, &body).send().await;
        let expected: Vec<String> = details.iter().map(ToString::to_string).collect();
        assert_eq!((answer.status, answer.details()), (400, expected), "{path} {body}");
    }
    for token in ["", &key, &ada.refresh_token] {
        for path in
            ["/v1/auth/totp", "/v1/auth/totp/confirm", "/v1/auth/recovery-codes", "/v1/auth/reauthenticate"]
        {
            assert_eq!(post(&world, token, path, &json!({})).send().await.status, 401, "{path}");
        }
        assert_eq!(remove(&world, token).send().await.status, 401);
        assert_eq!(world.get("/v1/auth/second-factor").bearer(token).send().await.status, 401);
    }
    world.add_authenticator(&ada.access_token).await;
    for code in [
        "",
        " ",
        "12345",
        "1234567",
        "abcdef",
        "ABCDEF-ABCDEF-ABCDEF-ABCDEF",
        "１２３４５６",
        "'; --",
        "\u{1f511}",
    ] {
        let answer = login(&world, PASSWORD, code).send().await;
        let expected = if code.is_empty() { "second_factor_required" } else { "invalid_one_time_code" };
        assert_eq!((answer.status, answer.code().as_str()), (401, expected), "{code}");
    }
}
