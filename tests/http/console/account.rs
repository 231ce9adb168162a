//! The pages of the user's own account.

use serde_json::Value;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use support::console::Browser;
use support::on_each_database;
use support::world::{PASSWORD, World};

const ACCOUNT: &str = "/console/account";

/// Sends a form, asserts that it is refused, and returns the status and the page.
async fn refused(browser: &Browser, world: &World, path: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let answer = browser.post(world, path, fields).send().await;
    assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
    (answer.status, answer.text)
}

#[on_each_database]
async fn profile_is_changed_and_mistakes_keep_what_was_typed(world: World) {
    let ada = world.user("ada").await;
    world.user("bob").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, ACCOUNT).await;
    assert!(page.contains(r#"name="username" type="text" value="ada""#), "{page}");
    assert!(page.contains("ada@example.com") && page.contains("verified</span>"), "{page}");

    let hostile = "<script>alert('1')</script>";
    let fields = [("username", "ada.l"), ("full_name", hostile), ("phone", "+49 30 1234567")];
    let place = browser.done(&world, ACCOUNT, &fields).await;
    assert_eq!(place, "/console/account?done=profile_saved");
    let page = browser.page(&world, &place).await;
    assert!(page.contains("Your profile is saved.") && page.contains("+49301234567"), "{page}");
    assert!(page.contains("&#60;script&#62;") && !page.contains("<script>"), "{page}");

    let fields = [("username", "bob"), ("full_name", "Ada"), ("phone", "")];
    let (status, page) = refused(&browser, &world, ACCOUNT, &fields).await;
    assert_eq!(status, 409, "{page}");
    assert!(page.contains(r#"value="bob""#) && page.contains(r##"href="#username""##), "{page}");
    let (status, page) = refused(&browser, &world, ACCOUNT, &[("username", ""), ("phone", "12")]).await;
    assert_eq!(status, 400, "{page}");
    assert!(page.contains(r##"href="#username""##) && page.contains(r##"href="#phone""##), "{page}");
    let page = browser.page(&world, ACCOUNT).await;
    assert!(page.contains(r#"value="ada.l""#), "nothing was changed: {page}");

    browser.done(&world, ACCOUNT, &[("username", "ada"), ("full_name", ""), ("phone", "")]).await;
    let data: Value = serde_json::from_str(&browser.page(&world, "/console/account/data").await).unwrap();
    assert_eq!((&data["user"]["full_name"], &data["user"]["phone"]), (&Value::Null, &Value::Null));
}

#[on_each_database]
async fn password_change_ends_every_other_session_and_says_so(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let other = world.browser(ada.id).await;
    let path = "/console/account/password";
    let new = "Another-Horse-8-Paper";
    let form = |current, new, again| {
        [("current_password", current), ("new_password", new), ("new_password_confirmation", again)]
    };
    let (status, page) = refused(&browser, &world, path, &form("wrong", new, new)).await;
    assert_eq!(status, 401, "{page}");
    assert!(page.contains(r##"href="#current_password""##) && !page.contains(new), "{page}");
    let (_, page) = refused(&browser, &world, path, &form(PASSWORD, new, "else")).await;
    assert!(page.contains(r##"href="#new_password_confirmation""##), "{page}");
    let (_, page) = refused(&browser, &world, path, &form(PASSWORD, "short", "short")).await;
    assert!(page.contains(r##"href="#new_password""##), "{page}");
    other.page(&world, ACCOUNT).await;

    let place = browser.done(&world, path, &form(PASSWORD, new, new)).await;
    assert_eq!(place, "/console/account/sessions?done=password_changed");
    let page = browser.page(&world, &place).await;
    assert!(page.contains("Your other sessions have ended.") && page.contains("1 session<"), "{page}");
    world.catch_up().await;
    assert_eq!(other.get(&world, ACCOUNT).send().await.status, 303);
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).send().await.status, 401);
    let (status, _) = refused(&browser, &world, path, &form(PASSWORD, new, new)).await;
    assert_eq!(status, 401, "the old password no longer works");
}

#[on_each_database]
async fn sessions_are_listed_and_ended(world: World) {
    let ada = world.user("ada").await;
    let bob = world.user("bob").await;
    let browser = world.browser(ada.id).await;
    let (other, other_id) = world.browser_session(ada.id, false).await;
    let agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
    let call = other.get(&world, ACCOUNT).header("user-agent", agent).from("203.0.113.7");
    assert_eq!(call.send().await.status, 200);
    let path = "/console/account/sessions";
    let page = browser.page(&world, path).await;
    assert!(page.contains("Firefox on Linux") && page.contains("203.0.113.7"), "{page}");
    assert_eq!(page.matches("this one").count(), 1, "{page}");
    assert_eq!(page.matches(">End<").count(), 2, "the current session isn't offered: {page}");

    let delete = |id: &dyn std::fmt::Display| format!("{path}/{id}/delete");
    let strange = browser.post(&world, &delete(&bob.session_id), &[]).send().await;
    assert_eq!(strange.status, 404, "a session of another user");
    let place = browser.done(&world, &delete(&other_id), &[]).await;
    assert!(browser.page(&world, &place).await.contains("The session has ended."));
    assert_eq!(browser.post(&world, &delete(&other_id), &[]).send().await.status, 404, "twice");
    world.catch_up().await;
    assert_eq!(other.get(&world, ACCOUNT).send().await.status, 303);
    let place = browser.done(&world, &format!("{path}/others/delete"), &[]).await;
    let page = browser.page(&world, &place).await;
    assert!(page.contains("Your other sessions have ended.") && !page.contains("End all others"), "{page}");
    world.catch_up().await;
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).send().await.status, 401);
    let me = world.get("/v1/auth/me").bearer(&bob.access_token).send().await;
    assert_eq!(me.status, 200, "others keep theirs");
}

#[on_each_database]
async fn address_is_verified_again_and_changed_by_a_link(world: World) {
    let ada = world.unverified_user("ada").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, ACCOUNT).await;
    assert!(page.contains("not verified") && page.contains("Send the link again"), "{page}");
    let place = browser.done(&world, "/console/account/verification", &[]).await;
    assert_eq!(place, "/console/account?done=verification_sent");

    let path = "/console/account/email";
    let form = |email, password| [("new_email", email), ("password", password)];
    let (status, page) = refused(&browser, &world, path, &form("lovelace@example.org", "wrong")).await;
    assert_eq!(status, 401, "{page}");
    assert!(page.contains(r#"value="lovelace@example.org""#) && page.contains(r##"href="#password""##));
    let (_, page) = refused(&browser, &world, path, &form("ada@example.com", PASSWORD)).await;
    assert!(page.contains(r##"href="#new_email""##), "{page}");
    let place = browser.done(&world, path, &form("lovelace@example.org", PASSWORD)).await;
    let page = browser.page(&world, &place).await;
    assert!(page.contains("We sent a link to lovelace@example.org."), "{page}");
    assert!(page.contains("<p>ada@example.com"), "nothing changes before the link is used: {page}");
}

#[on_each_database]
async fn theme_is_kept_in_a_cookie_and_rendered_by_the_server(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let path = "/console/account/theme";
    assert!(browser.page(&world, ACCOUNT).await.contains("<html lang=\"en\">"));
    let answer = browser.post(&world, path, &[("theme", "dark")]).send().await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let cookie = answer.header("set-cookie").to_owned();
    assert!(cookie.starts_with("tollkeeper-theme=dark; Path=/; HttpOnly; SameSite=Lax; "), "{cookie}");
    let both = format!("{}; tollkeeper-theme=dark", browser.cookie);
    let browser_in_dark = Browser { cookie: both };
    let page = browser_in_dark.page(&world, ACCOUNT).await;
    assert!(page.contains("<html lang=\"en\" data-theme=\"dark\">"), "{page}");
    assert!(page.contains("value=\"dark\" checked"), "{page}");
    let strange = Browser { cookie: format!("{}; tollkeeper-theme=\"><script>", browser.cookie) };
    assert!(strange.page(&world, ACCOUNT).await.contains("<html lang=\"en\">"));
    let answer = browser.post(&world, path, &[("theme", "system")]).send().await;
    assert!(answer.header("set-cookie").starts_with("tollkeeper-theme=; "), "{answer:?}");
    assert_eq!(browser.post(&world, path, &[("theme", "pink")]).send().await.status, 400);
}

#[on_each_database]
async fn personal_data_is_a_file(world: World) {
    let ada = world.user("ada").await;
    let bob = world.user("bob").await;
    let organization = world.organization(&ada, "acme").await;
    world.organization(&bob, "other").await;
    let answer = world.browser(ada.id).await.get(&world, "/console/account/data").send().await;
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"tollkeeper-account.json\"");
    assert_eq!(answer.header("cache-control"), "no-store");
    let data = answer.json();
    assert_eq!(data["user"]["email"], "ada@example.com");
    let organizations = data["organizations"].as_array().unwrap();
    assert_eq!(organizations.len(), 1, "{data}");
    assert_eq!((&organizations[0]["id"], &organizations[0]["role"]), (&organization.into(), &"owner".into()));
    assert_eq!(data["sessions"].as_array().unwrap().len(), 2, "{data}");
    assert!(!answer.text.contains("bob"), "{data}");
}

/// Visitors who aren't signed in are redirected to sign in, and a form from another site is refused.
#[on_each_database]
async fn account_belongs_to_the_person_who_is_signed_in(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    for path in ["", "/password", "/sessions", "/email", "/data"] {
        let path = format!("{ACCOUNT}{path}");
        let answer = Browser::signed_out().get(&world, &path).send().await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.header("location").starts_with("/console/sign-in?next="), "{answer:?}");
    }
    for path in ["", "/password", "/email", "/theme", "/verification", "/sessions/others/delete"] {
        let call = browser.sends(world.call(http::Method::POST, &format!("{ACCOUNT}{path}")));
        let answer = call.header("sec-fetch-site", "cross-site").form(&[("theme", "dark")]).send().await;
        assert_eq!(answer.status, 403, "{path}");
    }
}

/// A stolen cookie and the password change neither address nor password of an account with a second factor.
#[on_each_database]
async fn old_session_changes_no_account_with_a_second_factor(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let new = "Violet-Kettle-Orbit-9";
    let forms = [
        ("/console/account/email", vec![("new_email", "new@example.com"), ("password", PASSWORD)]),
        (
            "/console/account/password",
            vec![("current_password", PASSWORD), ("new_password", new), ("new_password_confirmation", new)],
        ),
    ];
    let browsers = [world.browser(ada.id).await, world.browser(bob.id).await];
    world.clock.advance_ms(15 * MINUTE_MS);
    let [mut with_factor, without] = browsers;
    let again = "/console/reauthenticate";
    for (path, fields) in &forms {
        let before = queued(&world).await;
        let answer = with_factor.post(&world, path, fields).send().await;
        assert_eq!(
            (answer.status, answer.header("location").split('?').next()),
            (303, Some(again)),
            "{path}"
        );
        assert_eq!(queued(&world).await, before, "{path}");
        // The password is all that an account without a factor asks for.
        without.done(&world, path, fields).await;
        assert!(queued(&world).await > before, "{path}");
    }
    let code = app.code(world.clock.now());
    let proof = [("password", PASSWORD), ("one_time_code", &*code)];
    let answer = with_factor.post(&world, again, &proof).send().await;
    with_factor.take(&answer);
    for (path, fields) in &forms {
        with_factor.done(&world, path, fields).await;
    }
}

/// Returns the number of mails that wait to be sent.
async fn queued(world: &World) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (count,): (i64,) = sql("SELECT COUNT(*) FROM outbox").one(&mut tx).await.unwrap();
    count
}
