//! Requests to change the e-mail address.

use serde_json::json;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::{entries, login, mails, text};
use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, TestUser, World};

pub const OLD: &str = "ada@example.com";
pub const NEW: &str = "Lovelace@example.org";
pub const LINK: &str = "Confirm your new e-mail address";
pub const REQUESTED: &str = "A new e-mail address for your account";
const TAKEN: &str = "Someone tried to use your e-mail address";

pub fn ask(world: &World, access_token: &str, new_email: &str, password: &str) -> Call {
    let body = json!({"new_email": new_email, "password": password});
    world.post("/v1/auth/change-email", &body).bearer(access_token)
}

async fn pending(world: &World) -> Vec<String> {
    let rows: Vec<(String,)> = sql("SELECT email FROM email_changes ORDER BY email")
        .all(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
    rows.into_iter().map(|(email,)| email).collect()
}

async fn email_of(world: &World, user: &TestUser) -> String {
    text(&world.get("/v1/auth/me").bearer(&user.access_token).data().await["user"], "email")
}

#[on_each_database]
async fn request_mails_both_addresses_and_changes_nothing(world: World) {
    let ada = world.user("ada").await;
    let answer = ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
    assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), ["message"]);
    let [link] = mails(&world, NEW, LINK).await.try_into().unwrap();
    let token = world.mailed_token(NEW).await;
    assert!(link.contains("Hi ada,") && link.contains(&format!("/change-email?token={token}")), "{link}");
    let [notice] = mails(&world, OLD, REQUESTED).await.try_into().unwrap();
    assert!(notice.contains("Lovelace@example[.]org") && !notice.contains(&token), "{notice}");
    assert_eq!(email_of(&world, &ada).await, OLD);
    login(&world, OLD, PASSWORD).data().await;
    assert_eq!(login(&world, NEW, PASSWORD).send().await.status, 401);
    let id = ada.id.to_string();
    assert_eq!(entries(&world, "user.email_change_requested").await, [[id.clone(), id]]);
    // No table contains the token.
    let mut tx = world.app.db.read().await.unwrap();
    let (outbox,): (i64,) = sql("SELECT COUNT(*) FROM outbox").one(&mut tx).await.unwrap();
    assert_eq!(outbox, 0);
}

#[on_each_database]
async fn unverified_address_is_not_told(world: World) {
    let ada = world.unverified_user("ada").await;
    ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
    assert_eq!(mails(&world, NEW, LINK).await.len(), 1);
    assert_eq!(mails(&world, OLD, REQUESTED).await.len(), 0);
}

#[on_each_database]
async fn request_does_not_reveal_accounts(world: World) {
    let ada = world.user("ada").await;
    world.user("bob").await;
    world.unverified_user("eve").await;
    // Reads the account, so that the session is cached.
    assert_eq!(email_of(&world, &ada).await, OLD);
    let mut answers = Vec::new();
    for email in ["nobody@example.com", "BOB@example.com", "eve@example.com"] {
        let before = world.app.db.statement_count();
        let answer = ask(&world, &ada.access_token, email, PASSWORD).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answers.push((answer.text, world.app.db.statement_count() - before));
    }
    assert_eq!(answers[0], answers[1], "the same text from the same statements");
    assert_eq!(answers[0], answers[2]);
    // Only the last address is still pending, and its owner gets a notice without a link.
    let [taken] = mails(&world, "eve@example.com", TAKEN).await.try_into().unwrap();
    assert!(taken.contains("Hi eve,") && taken.contains("the account ada"), "{taken}");
    assert!(!taken.contains("token"), "{taken}");
    assert_eq!(mails(&world, "BOB@example.com", TAKEN).await.len(), 0);
    ask(&world, &ada.access_token, "BOB@example.com", PASSWORD).data().await;
    assert_eq!(mails(&world, "BOB@example.com", TAKEN).await.len(), 1);
}

#[on_each_database]
async fn bad_input_is_refused_before_the_password_is_checked(world: World) {
    let ada = world.user("ada").await;
    let cases = [
        (json!({}), &["new_email required", "password required"][..]),
        (json!({"new_email": "x", "password": "wrong"}), &["new_email invalid_email"]),
        (json!({"new_email": null, "password": 5}), &["new_email required", "password wrong_type"]),
        (json!({"new_email": OLD, "password": "wrong"}), &["new_email email_unchanged"]),
        (json!({"email": NEW, "new_email": NEW, "password": PASSWORD}), &["email unknown_field"]),
    ];
    for (body, details) in cases {
        let call = world.post("/v1/auth/change-email", &body).bearer(&ada.access_token);
        let answer = call.send().await;
        assert_eq!(
            (answer.status, answer.details()),
            (400, details.iter().map(ToString::to_string).collect())
        );
    }
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    for bearer in ["", &key, &ada.refresh_token] {
        assert_eq!(ask(&world, bearer, NEW, PASSWORD).send().await.status, 401);
    }
    assert!(pending(&world).await.is_empty());
    // Another spelling of the same address is a change.
    ask(&world, &ada.access_token, "Ada@Example.com", PASSWORD).data().await;
    assert_eq!(mails(&world, "Ada@Example.com", LINK).await.len(), 1);
}

#[on_each_database]
async fn wrong_password_counts_like_a_failed_login(world: World) {
    let ada = world.user("ada").await;
    let from = "198.51.100.7";
    for number in 0..10 {
        let answer = if number % 2 == 0 {
            ask(&world, &ada.access_token, NEW, "Wrong-Kettle-1").from(from).send().await
        } else {
            login(&world, OLD, "Wrong-Kettle-1").from(from).send().await
        };
        assert_eq!(answer.status, 401, "{number}: {}", answer.text);
        if number == 0 {
            assert_eq!(answer.code(), "wrong_password");
            assert_eq!(answer.json()["error"]["param"], "password");
        }
    }
    let waits = ask(&world, &ada.access_token, NEW, PASSWORD).from(from).send().await;
    assert_eq!((waits.status, waits.code().as_str()), (429, "too_many_attempts"));
    assert_eq!(waits.header("retry-after"), "1");
    assert!(pending(&world).await.is_empty());
    // The right password resets the count.
    world.clock.advance_ms(1_000);
    for _ in 0..2 {
        ask(&world, &ada.access_token, NEW, PASSWORD).from(from).data().await;
    }
    for _ in 0..9 {
        let wrong = ask(&world, &ada.access_token, NEW, "Wrong-Kettle-1").from(from);
        assert_eq!(wrong.refused().await, (401, "wrong_password".into()));
    }
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "1")])]
async fn requests_count_as_logins_of_their_address(world: World) {
    let ada = world.user("ada").await;
    ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
    let refused = ask(&world, &ada.access_token, NEW, PASSWORD).refused().await;
    assert_eq!(refused, (429, "rate_limited".into()));
    assert_eq!(login(&world, OLD, PASSWORD).refused().await, (429, "rate_limited".into()));
}

#[on_each_database]
async fn mails_are_bounded_and_a_right_password_is_no_guess(world: World) {
    let ada = world.user("ada").await;
    for _ in 0..5 {
        ask(&world, &ada.access_token, NEW, PASSWORD).data().await;
    }
    // Sends more requests than the number of free guesses.
    for _ in 0..12 {
        let answer = ask(&world, &ada.access_token, NEW, PASSWORD).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"), "{}", answer.text);
        assert_eq!(answer.header("retry-after"), "3600");
    }
    assert!(world.post("/v1/auth/change-email", &json!({})).send().await.status == 401);
    // The refused requests have changed nothing: the previous address stays pending.
    ask(&world, &ada.access_token, "second@example.com", PASSWORD).data().await;
    assert_eq!(ask(&world, &ada.access_token, NEW, PASSWORD).send().await.status, 429);
    assert_eq!(pending(&world).await, ["second@example.com"]);
    assert_eq!(entries(&world, "user.email_change_requested").await.len(), 6);
    world.clock.advance_ms(60 * MINUTE_MS);
    world.catch_up().await;
    let later = world.session(ada.id).await;
    ask(&world, &later.access_token, NEW, PASSWORD).data().await;
}
