//! A ceremony is valid once, for five minutes, for its purpose and its session.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::{EXPIRED, add, create, list, logged_in, login, login_options, options, origin, post, text};
use support::http::Call;
use support::on_each_database;
use support::security_key::SecurityKey;
use support::world::World;

async fn assert_expired(call: Call, what: &str) {
    let (status, code) = call.refused().await;
    assert_eq!((status, code.as_str()), EXPIRED, "{what}");
}

async fn used(world: &World) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM used_ceremonies").one(&mut tx).await.unwrap();
    count
}

#[on_each_database]
async fn ceremony_is_good_once(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let waiting = options(&world, token).await;
    let mut key = SecurityKey::new();
    let made = key.make(&waiting["public_key"], &origin(&world));
    create(&world, token, &waiting, &made, "Laptop").data().await;
    assert_expired(create(&world, token, &waiting, &made, "Laptop"), "the same passkey").await;
    // Another authenticator that got the same challenge can't use it either.
    let other = SecurityKey::new().make(&waiting["public_key"], &origin(&world));
    assert_expired(create(&world, token, &waiting, &other, "Other"), "another passkey").await;
    assert_eq!(list(&world, token).await.as_array().map(Vec::len), Some(1));

    let asked = login_options(&world).await;
    let signed = key.sign(&asked["public_key"], &origin(&world));
    login(&world, &asked, &signed).data().await;
    assert_expired(login(&world, &asked, &signed), "the same signature").await;
    let again = key.sign(&asked["public_key"], &origin(&world));
    assert_expired(login(&world, &asked, &again), "another signature").await;
}

#[on_each_database]
async fn ceremony_is_over_after_five_minutes(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let (mut key, _) = add(&world, token, "Laptop").await;
    let session = text(&logged_in(&world, &mut key).await, "access_token");
    let adding = options(&world, &session).await;
    let asked = [login_options(&world).await, login_options(&world).await];
    world.clock.advance_ms(5 * MINUTE_MS - 1);
    let signed = key.sign(&asked[0]["public_key"], &origin(&world));
    login(&world, &asked[0], &signed).data().await;
    world.clock.advance_ms(1);
    let signed = key.sign(&asked[1]["public_key"], &origin(&world));
    assert_expired(login(&world, &asked[1], &signed), "a login").await;
    let made = SecurityKey::new().make(&adding["public_key"], &origin(&world));
    assert_expired(create(&world, &session, &adding, &made, "Late"), "a passkey").await;
    // The clock is set back by more than a minute after the ceremony was sealed.
    let ahead = login_options(&world).await;
    world.clock.advance_ms(-61_000);
    let signed = key.sign(&ahead["public_key"], &origin(&world));
    assert_expired(login(&world, &ahead, &signed), "from ahead").await;
}

#[on_each_database]
async fn ceremony_is_for_its_purpose_and_session(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let session = text(&logged_in(&world, &mut key).await, "access_token");
    let other = text(&logged_in(&world, &mut key).await, "access_token");
    let proving =
        async |token: &str| post(&world, token, "/v1/auth/reauthenticate/options", &json!({})).data().await;
    let prove = |token: &str, ceremony: &Value, credential: &Value| {
        let body = json!({"ceremony": ceremony["ceremony"], "credential": credential});
        post(&world, token, "/v1/auth/reauthenticate", &body)
    };
    // Another session of the same user, and another user's session.
    let (adding, asked, proof) =
        (options(&world, &session).await, login_options(&world).await, proving(&session).await);
    let made = SecurityKey::new().make(&adding["public_key"], &origin(&world));
    for (token, what) in [(&other, "another session"), (&bob.access_token, "another person")] {
        assert_expired(create(&world, token, &adding, &made, "x"), what).await;
        let signed = key.sign(&proof["public_key"], &origin(&world));
        assert_expired(prove(token, &proof, &signed), what).await;
    }
    // A ceremony for another purpose.
    for (ceremony, what) in [(&adding, "of adding"), (&proof, "of a proof")] {
        let mut public_key = ceremony["public_key"].clone();
        public_key["rpId"] = "localhost".into();
        let signed = key.sign(&public_key, &origin(&world));
        assert_expired(login(&world, ceremony, &signed), what).await;
    }
    let signed = key.sign(&asked["public_key"], &origin(&world));
    assert_expired(prove(&session, &asked, &signed), "of a login").await;
    assert_expired(create(&world, &session, &asked, &made, "x"), "of a login").await;
    assert_expired(create(&world, &session, &proof, &made, "x"), "of a proof").await;
    // Malformed ceremonies, and a changed one.
    for ceremony in ["", "x", "AAAA", &format!("{}A", text(&asked, "ceremony"))] {
        let body = json!({"ceremony": ceremony, "credential": signed});
        assert_expired(world.post("/v1/auth/passkey-login", &body), ceremony).await;
    }
    // All these ceremonies are still valid for their own purposes.
    login(&world, &asked, &signed).data().await;
    create(&world, &session, &adding, &made, "Second").data().await;
    let signed = key.sign(&proof["public_key"], &origin(&world));
    prove(&session, &proof, &signed).data().await;
}

#[on_each_database]
async fn answer_that_is_refused_uses_no_ceremony_and_writes_nothing(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let before = used(&world).await;
    let asked = login_options(&world).await;
    let good = key.sign(&asked["public_key"], &origin(&world));
    let bad = key.sign(&asked["public_key"], "https://evil.example");
    assert_eq!(login(&world, &asked, &bad).refused().await.0, 401);
    assert_eq!(used(&world).await, before);
    login(&world, &asked, &good).data().await;
    assert_eq!(used(&world).await, before + 1);
}

#[on_each_database]
async fn used_ceremonies_are_forgotten_once_they_are_over(world: World) {
    let ada = world.user("ada").await;
    add(&world, &ada.access_token, "Laptop").await;
    let clean = async || {
        let mut tx = world.app.db.write().await.unwrap();
        tollkeeper::accounts::cleanup::remove_expired(&mut tx, world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
    };
    assert_eq!(used(&world).await, 1);
    // Used ceremonies are kept for longer than they are valid, because another replica's clock may be behind.
    world.clock.advance_ms(6 * MINUTE_MS - 1);
    clean().await;
    assert_eq!(used(&world).await, 1);
    world.clock.advance_ms(1);
    clean().await;
    assert_eq!(used(&world).await, 0);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn of_64_uses_of_one_ceremony_at_once_one_wins(world: World) {
    let ada = world.user("ada").await;
    let (mut key, _) = add(&world, &ada.access_token, "Laptop").await;
    let asked = login_options(&world).await;
    let signed: Vec<_> = (0..64).map(|_| key.sign(&asked["public_key"], &origin(&world))).collect();
    let logins = join_all(signed.iter().map(|signed| login(&world, &asked, signed).send())).await;
    assert_one_wins(&world, logins.iter().map(|answer| (answer.status, answer.text.clone())));

    let token = text(&logged_in(&world, &mut key).await, "access_token");
    let adding = options(&world, &token).await;
    let made: Vec<_> =
        (0..64).map(|_| SecurityKey::new().make(&adding["public_key"], &origin(&world))).collect();
    let added = join_all(made.iter().map(|made| create(&world, &token, &adding, made, "x").send())).await;
    assert_one_wins(&world, added.iter().map(|answer| (answer.status, answer.text.clone())));
    assert_eq!(list(&world, &token).await.as_array().map(Vec::len), Some(2));
}

fn assert_one_wins(world: &World, answers: impl Iterator<Item = (u16, String)>) {
    let mut won = 0;
    for (status, text) in answers {
        match status {
            200 => won += 1,
            status => assert!(status == EXPIRED.0 && text.contains(EXPIRED.1), "{status}: {text}"),
        }
    }
    assert_eq!(won, 1, "{}", world.backend);
}
