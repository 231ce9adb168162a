//! A new account, and a forgotten password.

use support::console::Browser;
use support::on_each_database;
use support::world::{PASSWORD, World};

const EMAIL: &str = "ada@example.com";

#[on_each_database]
async fn person_registers_confirms_and_signs_in(world: World) {
    let mut browser = Browser::signed_out();
    assert!(browser.page(&world, "/console/register").await.contains("autocomplete=\"new-password\""));
    let fields = [("email", EMAIL), ("username", "ada"), ("full_name", ""), ("password", PASSWORD)];
    let place = browser.done(&world, "/console/register", &fields).await;
    assert_eq!(place, "/console/sign-in?done=registered");
    let page = browser.page(&world, &place).await;
    assert!(page.contains("role=\"status\">Your account is ready. We sent you an e-mail"), "{page}");

    let token = world.mailed_token(EMAIL).await;
    let confirmed = browser.post(&world, "/verify-email", &[("token", &token), ("password", PASSWORD)]);
    let page = confirmed.send().await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("<a href=\"console/sign-in\">"), "{}", page.text);

    let answer = browser.post(&world, "/console/sign-in", &[("email", EMAIL), ("password", PASSWORD)]);
    let answer = answer.send().await;
    assert_eq!(answer.status, 303);
    browser.take(&answer);
    assert!(browser.page(&world, "/console/organizations").await.contains(EMAIL));
}

#[on_each_database]
async fn mistakes_are_told_at_their_fields(world: World) {
    let browser = Browser::signed_out();
    let fields = [("email", "ada"), ("username", "a"), ("full_name", ""), ("password", "password")];
    let answer = browser.post(&world, "/console/register", &fields).send().await;
    assert_eq!(answer.status, 400);
    for part in [
        "<h2 id=\"mistakes-title\">There’s a problem</h2>",
        "<a href=\"#email\">E-mail address ",
        "<a href=\"#username\">Username ",
        "<a href=\"#password\">Password ",
        "id=\"email\" name=\"email\" type=\"email\" value=\"ada\"",
        "aria-invalid=\"true\" aria-describedby=\"username-hint username-mistake\"",
    ] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
    assert!(
        !answer.text.contains("value=\"password\""),
        "the page doesn't contain the password: {}",
        answer.text
    );
    assert!(!answer.text.contains('`'), "{}", answer.text);
    world.user("ada").await;
    let fields = [("email", EMAIL), ("username", "other"), ("password", PASSWORD)];
    let answer = browser.post(&world, "/console/register", &fields).send().await;
    assert_eq!(answer.status, 409);
    assert!(answer.text.contains("<a href=\"#email\">An account with this e-mail address already exists."));
}

#[on_each_database]
async fn forgotten_password_is_answered_alike_for_every_address(world: World) {
    world.user("ada").await;
    let browser = Browser::signed_out();
    assert!(browser.page(&world, "/console/forgot-password").await.contains("Send reset link"));
    for email in [EMAIL, "nobody@example.com"] {
        let place = browser.done(&world, "/console/forgot-password", &[("email", email)]).await;
        assert_eq!(place, "/console/sign-in?done=reset_requested");
    }
    let token = world.mailed_token(EMAIL).await;
    let fields = [
        ("token", token.as_str()),
        ("password", "Violet-Kettle-Orbit-9"),
        ("password_confirmation", "Violet-Kettle-Orbit-9"),
    ];
    let changed = browser.post(&world, "/reset-password", &fields).send().await;
    assert_eq!(changed.status, 200);
    assert!(changed.text.contains("<a href=\"console/sign-in\">"), "{}", changed.text);
    let answer = browser.post(&world, "/console/forgot-password", &[("email", "")]).send().await;
    assert_eq!(answer.status, 400);
    assert!(answer.text.contains("E-mail address can&#39;t be empty."), "{}", answer.text);
}
