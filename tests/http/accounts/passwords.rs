//! New passwords: the sessions and links that they end, concurrent logins, and limits.

mod hijacking;
mod overlapping;
mod sessions;

use serde_json::{Value, json};
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};

use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, World};

const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";

fn change(world: &World, token: &str, current: &str, new: &str) -> Call {
    let body = json!({"current_password": current, "new_password": new, "new_password_confirmation": new});
    world.post("/v1/auth/change-password", &body).bearer(token)
}

fn reset(world: &World, token: &str, password: &str) -> Call {
    let body = json!({"token": token, "password": password, "password_confirmation": password});
    world.post("/v1/auth/reset-password", &body)
}

async fn forgot(world: &World, name: &str) {
    let body = json!({"email": format!("{name}@example.com")});
    world.post("/v1/auth/forgot-password", &body).data().await;
}

async fn register(world: &World, name: &str, password: &str) {
    let body = json!({"email": format!("{name}@example.com"), "password": password, "username": name});
    world.post("/v1/auth/register", &body).data().await;
}

fn login(world: &World, name: &str, password: &str) -> Call {
    world.post("/v1/auth/login", &json!({"email": format!("{name}@example.com"), "password": password}))
}

async fn access_token(world: &World, name: &str, password: &str) -> String {
    text(&login(world, name, password).data().await, "access_token")
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap().to_owned()
}

/// Sends due e-mails, and returns those to a user with this subject.
async fn mails(world: &World, name: &str, subject: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let (to, subject) = (format!("To: {name}@example.com"), format!("Subject: {subject}"));
    texts.filter(|text| text.contains(&to) && text.contains(&subject)).collect()
}

#[on_each_database]
async fn password_change_voids_older_reset_links(world: World) {
    let ada = world.user("ada").await;
    forgot(&world, "ada").await;
    let link = world.mailed_token("ada@example.com").await;
    world.clock.advance_ms(1);
    // Another link has been requested, but its e-mail hasn't been sent.
    forgot(&world, "ada").await;
    world.clock.advance_ms(1);
    change(&world, &ada.access_token, PASSWORD, NEW_PASSWORD).data().await;
    let refused = reset(&world, &link, "Another-Kettle-77").refused().await;
    assert_eq!(refused, (400, "invalid_token".into()));
    assert_eq!(
        mails(&world, "ada", "Choose a new password").await.len(),
        1,
        "the other e-mail is never sent"
    );
    login(&world, "ada", NEW_PASSWORD).data().await;
    // A link requested afterward works.
    world.clock.advance_ms(1);
    forgot(&world, "ada").await;
    let link = world.mailed_token("ada@example.com").await;
    reset(&world, &link, "Another-Kettle-77").data().await;
    login(&world, "ada", "Another-Kettle-77").data().await;
}

#[on_each_database]
async fn password_reset_voids_earlier_links(world: World) {
    world.user("ada").await;
    forgot(&world, "ada").await;
    let link = world.mailed_token("ada@example.com").await;
    world.clock.advance_ms(1);
    forgot(&world, "ada").await;
    world.clock.advance_ms(1);
    reset(&world, &link, NEW_PASSWORD).data().await;
    assert_eq!(mails(&world, "ada", "Choose a new password").await.len(), 1);
}

#[on_each_database]
async fn password_change_keeps_the_verification_link(world: World) {
    register(&world, "ada", PASSWORD).await;
    let link = world.mailed_token("ada@example.com").await;
    let token = access_token(&world, "ada", PASSWORD).await;
    change(&world, &token, PASSWORD, NEW_PASSWORD).data().await;
    world.post("/v1/auth/verify-email", &json!({ "token": link })).data().await;
}

#[on_each_database]
async fn unchanged_password_is_refused(world: World) {
    let ada = world.user("ada").await;
    let other = access_token(&world, "ada", PASSWORD).await;
    let answer = change(&world, &ada.access_token, PASSWORD, PASSWORD).send().await;
    assert_eq!(
        (answer.status, answer.details()),
        (400, vec!["new_password password_unchanged".to_owned()]),
        "{}",
        answer.text
    );
    forgot(&world, "ada").await;
    let link = world.mailed_token("ada@example.com").await;
    let answer = reset(&world, &link, PASSWORD).send().await;
    assert_eq!(
        (answer.status, answer.details()),
        (400, vec!["password password_unchanged".to_owned()]),
        "{}",
        answer.text
    );
    assert_eq!(mails(&world, "ada", "Your password was changed").await, Vec::<String>::new());
    world.get("/v1/auth/me").bearer(&other).data().await;
    // The link still works.
    reset(&world, &link, NEW_PASSWORD).data().await;
}

#[on_each_database]
async fn decomposed_letters_are_the_same_password(world: World) {
    let ada = world.user("ada").await;
    change(&world, &ada.access_token, PASSWORD, "Caf\u{e9}-Kettle-Orbit-9").data().await;
    let again = change(&world, &ada.access_token, "Caf\u{e9}-Kettle-Orbit-9", "Cafe\u{301}-Kettle-Orbit-9");
    assert_eq!(again.send().await.details(), ["new_password password_unchanged"]);
}

#[on_each_database]
async fn unverified_address_gets_no_mail_about_passwords(world: World) {
    register(&world, "victim", PASSWORD).await;
    let token = access_token(&world, "victim", PASSWORD).await;
    change(&world, &token, PASSWORD, NEW_PASSWORD).data().await;
    assert_eq!(mails(&world, "victim", "Your password was changed").await, Vec::<String>::new());
    let ada = world.user("ada").await;
    change(&world, &ada.access_token, PASSWORD, NEW_PASSWORD).data().await;
    assert_eq!(mails(&world, "ada", "Your password was changed").await.len(), 1);
}

#[on_each_database]
async fn password_changes_are_limited_to_five_an_hour(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let password = |n: usize| format!("Violet-Kettle-Orbit-{n}");
    let mut current = PASSWORD.to_owned();
    for n in 0..5 {
        change(&world, &ada.access_token, &current, &password(n)).data().await;
        // Refused changes don't count.
        assert_eq!(change(&world, &ada.access_token, PASSWORD, "weak").send().await.status, 400);
        current = password(n);
        world.clock.advance_ms(MINUTE_MS);
        world.catch_up().await;
    }
    let answer = change(&world, &ada.access_token, &current, &password(5)).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), (55 * 60).to_string());
    change(&world, &bob.access_token, PASSWORD, &password(0)).data().await;
    world.clock.advance_ms(HOUR_MS - 5 * MINUTE_MS - 1);
    let token = access_token(&world, "ada", &current).await;
    let refused = change(&world, &token, &current, &password(5)).refused().await;
    assert_eq!(refused, (429, "too_many_attempts".into()));
    world.clock.advance_ms(1);
    change(&world, &token, &current, &password(5)).data().await;
    // The next change has to wait until the second of the first five no longer counts.
    let answer = change(&world, &token, &password(5), &password(6)).send().await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, "60"));
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn password_changes_are_unlimited_without_limits(world: World) {
    let ada = world.user("ada").await;
    let password = |n: usize| format!("Violet-Kettle-Orbit-{n}");
    let mut current = PASSWORD.to_owned();
    for n in 0..7 {
        change(&world, &ada.access_token, &current, &password(n)).data().await;
        current = password(n);
    }
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "2")])]
async fn password_change_counts_as_a_login_of_its_address(world: World) {
    let ada = world.user("ada").await;
    let wrong = || change(&world, &ada.access_token, "Wrong-Kettle-1", NEW_PASSWORD);
    assert_eq!(login(&world, "ada", "Wrong-Kettle-1").send().await.status, 401);
    assert_eq!(wrong().refused().await, (401, "wrong_password".into()));
    assert_eq!(wrong().refused().await, (429, "rate_limited".into()));
    assert_eq!(login(&world, "ada", PASSWORD).refused().await, (429, "rate_limited".into()));
    assert_eq!(wrong().from("192.0.2.9").refused().await, (401, "wrong_password".into()));
    // A call without a session doesn't count against the address.
    let unauthenticated = change(&world, "nothing", PASSWORD, NEW_PASSWORD).from("192.0.2.9");
    assert_eq!(unauthenticated.refused().await, (401, "invalid_access_token".into()));
    assert_eq!(wrong().from("192.0.2.9").refused().await, (401, "wrong_password".into()));
}
