//! The second factor in the console: the second step of sign-in, its pages in the account, and the page that
//! asks for a proof of identity.

use serde_json::json;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::db::sql;

use super::pages::{check_headers, check_size};
use support::authenticator::{Authenticator, STEP_MS};
use support::console::{Browser, hidden};
use support::http::{Answer, Call};
use support::twin::Twin;
use support::world::{PASSWORD, TestUser, World};
use support::{Database, on_each_database};

const SIGN_IN: &str = "/console/sign-in";
const STEP: &str = "/console/sign-in/second-factor";
const STATE: &str = "/console/account/second-factor";
const TOTP: &str = "/console/account/second-factor/totp";
const CONFIRM: &str = "/console/account/second-factor/totp/confirm";
const CODES: &str = "/console/account/second-factor/recovery-codes";
const REMOVE: &str = "/console/account/second-factor/remove";
const AGAIN: &str = "/console/reauthenticate";

/// Returns the cookies that an answer sets, with their names.
fn cookies(answer: &Answer) -> Vec<(String, String)> {
    let lines = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    lines
        .map(|line| line.split_once('=').unwrap())
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

/// Takes the first step of a sign-in, and returns its answer with the cookie for the second one.
async fn first_step(world: &World, next: &str, remember_me: &str) -> (Answer, String) {
    let fields =
        [("email", "ada@example.com"), ("password", PASSWORD), ("next", next), ("remember_me", remember_me)];
    let answer = Browser::signed_out().post(world, SIGN_IN, &fields).send().await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let [(name, value)] = cookies(&answer).try_into().unwrap();
    assert_eq!(name, "tollkeeper-second-factor");
    assert!(value.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600"), "{value}");
    let cookie = format!("{name}={}", value.split(';').next().unwrap());
    (answer, cookie)
}

fn second_step(world: &World, cookie: &str, code: &str, next: &str) -> Call {
    let fields = [("one_time_code", code), ("next", next)];
    Browser::signed_out().post(world, STEP, &fields).header("cookie", cookie)
}

/// Returns the browser with the session that an answer has set.
fn signed_in(answer: &Answer) -> Browser {
    let (_, value) = cookies(answer).into_iter().find(|(name, _)| name == "tollkeeper").expect("a session");
    Browser { cookie: value.split(';').next().unwrap().to_owned() }
}

#[on_each_database]
async fn sign_in_asks_for_the_code_in_a_second_step(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let (answer, cookie) = first_step(&world, "/console/models?search=a", "").await;
    assert_eq!(answer.header("location"), "/console/sign-in/second-factor?next=/console/models%3Fsearch%3Da");
    let page = Browser::signed_out().get(&world, answer.header("location")).header("cookie", &cookie);
    let page = page.send().await;
    check_headers(&page, STEP);
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(hidden(&page.text, "next"), "/console/models?search=a");
    assert!(page.text.contains(r#"autocomplete="one-time-code""#), "{}", page.text);
    assert!(!page.text.contains("ada"), "the page doesn't reveal the account: {}", page.text);

    // The cookie between the two steps isn't a session.
    let pending = cookie.split_once('=').unwrap().1.to_owned();
    let as_session = Browser { cookie: pending.clone() };
    assert_eq!(as_session.get(&world, "/console/account").send().await.status, 303);
    assert_eq!(world.get("/v1/auth/me").bearer(&pending).send().await.status, 401);

    let wrong = second_step(&world, &cookie, "000000", "/console/models?search=a").send().await;
    assert_eq!(wrong.status, 401, "{}", wrong.text);
    check_headers(&wrong, STEP);
    assert!(wrong.text.contains(r##"href="#one_time_code""##) && cookies(&wrong).is_empty());
    assert!(!wrong.text.contains("000000") && !wrong.text.contains('`'), "{}", wrong.text);
    assert_eq!(hidden(&wrong.text, "next"), "/console/models?search=a");

    let code = app.code(world.clock.now());
    let right = second_step(&world, &cookie, &code, "/console/models?search=a").send().await;
    assert_eq!((right.status, right.header("location")), (303, "/console/models?search=a"));
    let names: Vec<_> = cookies(&right).into_iter().collect();
    assert!(names[1].0 == "tollkeeper-second-factor" && names[1].1.starts_with("; "), "{names:?}");
    assert!(names[1].1.ends_with("Max-Age=0") && !names[0].1.contains("Max-Age"), "{names:?}");
    assert_eq!(signed_in(&right).get(&world, STATE).send().await.status, 200);
    // The code is used up, even if the browser has kept its cookie.
    assert_eq!(second_step(&world, &cookie, &code, "").send().await.status, 401);
}

#[on_each_database]
async fn person_may_stay_signed_in_and_use_a_recovery_code(world: World) {
    let ada = world.user("ada").await;
    let (_, codes) = world.add_authenticator(&ada.access_token).await;
    let (_, cookie) = first_step(&world, "", "true").await;
    let right = second_step(&world, &cookie, &codes[0].to_lowercase(), "//evil.example").send().await;
    assert_eq!((right.status, right.header("location")), (303, "/console/"));
    assert!(cookies(&right)[0].1.ends_with("Max-Age=2592000"));
    let page = signed_in(&right).page(&world, STATE).await;
    assert!(page.contains("You have 9 recovery codes left"), "{page}");
}

#[on_each_database]
async fn session_that_the_browser_had_ends_after_the_second_step_only(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let browser = world.browser(ada.id).await;
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let first = browser.post(&world, SIGN_IN, &fields).send().await;
    let pending = cookies(&first)[0].1.split(';').next().unwrap().to_owned();
    browser.page(&world, "/console/account").await;
    let fields = [("one_time_code", app.code(world.clock.now()))];
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let second = browser.post(&world, STEP, &fields);
    let second = second.header("cookie", &format!("tollkeeper-second-factor={pending}")).send().await;
    assert_eq!(second.status, 303, "{}", second.text);
    world.catch_up().await;
    assert_eq!(browser.get(&world, "/console/account").send().await.status, 303);
    signed_in(&second).page(&world, "/console/account").await;
}

#[on_each_database]
async fn second_step_needs_the_first_one_in_this_browser_lately(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let to_sign_in = async |cookie: &str, what: &str| {
        let get = Browser::signed_out().get(&world, &format!("{STEP}?next=/console/models"));
        let post = second_step(&world, cookie, &app.code(world.clock.now()), "");
        for call in [get.header("cookie", cookie), post] {
            let answer = call.send().await;
            assert_eq!((answer.status, answer.header("location")), (303, SIGN_IN), "{what}");
            assert!(!cookies(&answer).iter().any(|(name, _)| name == "tollkeeper"), "{what}");
        }
    };
    let (_, cookie) = first_step(&world, "", "").await;
    let (name, value) = cookie.split_once('=').unwrap();
    let mut flipped = value.to_owned().into_bytes();
    flipped[40] = if flipped[40] == b'A' { b'B' } else { b'A' };
    let flipped = format!("{name}={}", String::from_utf8(flipped).unwrap());
    let access_token = format!("{name}={}", ada.access_token);
    for (other, what) in [
        ("a=b", "no cookie"),
        (&*format!("{name}="), "an empty one"),
        (&*flipped, "a changed one"),
        (&*access_token, "a token"),
        (&*format!("{cookie}; {cookie}"), "twice"),
    ] {
        to_sign_in(other, what).await;
    }
    // A new password invalidates the cookie.
    let body = json!({"current_password": PASSWORD, "new_password": "Violet-Kettle-Orbit-9",
        "new_password_confirmation": "Violet-Kettle-Orbit-9"});
    world.post("/v1/auth/change-password", &body).bearer(&ada.access_token).data().await;
    let answer = second_step(&world, &cookie, &app.code(world.clock.now()), "").send().await;
    assert_eq!((answer.status, answer.header("location")), (303, SIGN_IN));
    assert!(!cookies(&answer).iter().any(|(name, _)| name == "tollkeeper"));
    world.clock.advance_ms(10 * MINUTE_MS);
    to_sign_in(&cookie, "ten minutes later").await;
}

#[on_each_database]
async fn codes_of_the_second_step_are_throttled_and_come_from_here(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let (_, cookie) = first_step(&world, "", "").await;
    let code = app.code(world.clock.now());
    for site in ["cross-site", "same-site", "none"] {
        let call = Call::new(&world.public, http::Method::POST, STEP);
        let call = call.form(&[("one_time_code", &code)]).header("cookie", &cookie);
        let answer = call.header("sec-fetch-site", site).send().await;
        assert_eq!((answer.status, cookies(&answer).len()), (403, 0), "{site}");
    }
    for number in 0..10 {
        assert_eq!(second_step(&world, &cookie, "000000", "").send().await.status, 401, "{number}");
    }
    let waits = second_step(&world, &cookie, &code, "").send().await;
    assert_eq!((waits.status, cookies(&waits).len()), (429, 0));
    assert!(waits.text.contains("Try again in "), "{}", waits.text);
    world.clock.advance_ms(1_000);
    assert_eq!(second_step(&world, &cookie, &code, "").send().await.status, 303);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "2")])]
async fn second_step_is_limited_by_address(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    world.clock.advance_ms(MINUTE_MS);
    let (_, cookie) = first_step(&world, "", "").await;
    assert_eq!(second_step(&world, &cookie, "000000", "").send().await.status, 401);
    assert_eq!(second_step(&world, &cookie, "000000", "").send().await.status, 429);
}

/// Returns the secret that a page shows.
fn secret(page: &str) -> String {
    let (_, rest) = page.split_once(r#"<code id="secret""#).unwrap_or_else(|| panic!("{page}"));
    rest.split_once('>').unwrap().1.split('<').next().unwrap().to_owned()
}

/// Returns the recovery codes that a page shows.
fn shown_codes(page: &str) -> Vec<String> {
    let (_, rest) = page.split_once(r#"<code id="codes">"#).unwrap_or_else(|| panic!("{page}"));
    rest.split('<').next().unwrap().lines().map(str::to_owned).collect()
}

async fn start(world: &World, browser: &Browser) -> (Authenticator, String) {
    let answer = browser.post(world, TOTP, &[]).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    check_headers(&answer, TOTP);
    check_size(&answer, TOTP);
    (Authenticator::new(&secret(&answer.text)), answer.text)
}

#[on_each_database]
async fn app_is_set_up_on_the_pages_and_removed_there(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, STATE).await;
    assert!(
        page.contains("You currently sign in with your password alone.") && page.contains(TOTP),
        "{page}"
    );
    let page = browser.page(&world, TOTP).await;
    assert!(page.contains("Show the QR code") && !page.contains("<svg class"), "{page}");

    let (app, page) = start(&world, &browser).await;
    assert!(page.contains(r#"<svg class="qr" role="img""#) && page.contains(r##"stroke="#000""##), "{page}");
    assert!(browser.page(&world, STATE).await.contains("You currently sign in with your password alone."));
    // A wrong code shows the same secret again.
    let wrong = browser.post(&world, CONFIRM, &[("code", "000000")]).send().await;
    assert_eq!((wrong.status, secret(&wrong.text)), (401, secret(&page)));
    check_headers(&wrong, CONFIRM);
    assert!(wrong.text.contains(r##"href="#code""##), "{}", wrong.text);
    let empty = browser.post(&world, CONFIRM, &[("code", "")]).send().await;
    assert_eq!((empty.status, secret(&empty.text)), (400, secret(&page)));

    let code = app.code(world.clock.now());
    let done = browser.post(&world, CONFIRM, &[("code", &code)]).send().await;
    assert_eq!(done.status, 200, "{}", done.text);
    check_headers(&done, CONFIRM);
    let codes = shown_codes(&done.text);
    assert_eq!(codes.len(), 10, "{}", done.text);
    assert!(
        done.text.contains("data-kept") && done.text.contains("be able to see them again"),
        "{}",
        done.text
    );
    // A browser may send the form again.
    let again = browser.post(&world, CONFIRM, &[("code", &code)]).send().await;
    assert_eq!(again.status, 409, "{}", again.text);
    assert!(!codes.iter().any(|code| again.text.contains(code)));
    let page = browser.page(&world, STATE).await;
    assert!(page.contains("You have 10 recovery codes left") && !page.contains(&codes[0]), "{page}");
    world.catch_up().await;
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).send().await.status, 401);

    let page = browser.page(&world, CODES).await;
    let replaced = hidden(&page, "replaced");
    let renewed = browser.post(&world, CODES, &[("replaced", &replaced)]).send().await;
    let new = shown_codes(&renewed.text);
    assert!(new.len() == 10 && new[0] != codes[0], "{}", renewed.text);
    world.clock.advance_ms(1);
    let again = browser.post(&world, CODES, &[("replaced", "2026-03-10T11:00:00.000Z")]).send().await;
    assert_eq!(again.status, 412, "a form that was already submitted: {}", again.text);
    assert_eq!(browser.post(&world, CODES, &[("replaced", "soon")]).send().await.status, 400);

    assert!(browser.page(&world, REMOVE).await.contains("You can then sign in with your password alone."));
    let place = browser.done(&world, REMOVE, &[]).await;
    assert_eq!(place, format!("{STATE}?done=second_factor_removed"));
    assert!(browser.page(&world, &place).await.contains("Your second factor is removed."));
    assert_eq!(browser.post(&world, REMOVE, &[]).send().await.status, 404);
    for path in [REMOVE, CODES] {
        assert_eq!(browser.get(&world, path).send().await.status, 404, "{path}");
    }
}

#[on_each_database]
async fn other_app_is_set_up_on_the_pages(world: World) {
    let ada = world.user("ada").await;
    let (_, codes) = world.add_authenticator(&ada.access_token).await;
    let browser = world.browser(ada.id).await;
    assert!(browser.page(&world, TOTP).await.contains("replaces your current one"));
    let (app, _) = start(&world, &browser).await;
    let code = app.code(world.clock.now());
    let place = browser.done(&world, CONFIRM, &[("code", &code)]).await;
    assert_eq!(place, format!("{STATE}?done=totp_replaced"));
    let page = browser.page(&world, &place).await;
    assert!(page.contains("The new authenticator app is in use."), "{page}");
    assert!(page.contains("You have 10 recovery codes left") && !page.contains(&codes[0]), "{page}");
}

#[on_each_database]
async fn few_recovery_codes_are_told(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    let browser = world.browser(ada.id).await;
    for (used, words) in [
        (8, "You have 2 recovery codes left. You can’t sign in"),
        (9, "You have 1 recovery code left. You can’t sign in"),
    ] {
        let mut tx = world.app.db.write().await.unwrap();
        let text = "UPDATE recovery_codes SET used_at = 1 WHERE code_hash IN
                        (SELECT code_hash FROM recovery_codes ORDER BY code_hash LIMIT $1)";
        sql(text).bind(used).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let page = browser.page(&world, STATE).await;
        assert!(page.contains(words), "{page}");
    }
}

#[on_each_database(&[("TOLLKEEPER_SIGN_IN__TOTP", "false")])]
async fn apps_that_are_switched_off_are_not_offered(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, STATE).await;
    assert!(page.contains("so you can’t add one") && !page.contains("Set up"), "{page}");
    let answer = browser.post(&world, TOTP, &[]).send().await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    check_headers(&answer, TOTP);
}

/// Returns a browser whose user signed in twenty minutes ago.
async fn stale(world: &World, user: &TestUser, remember_me: bool) -> Browser {
    let (browser, _) = world.browser_session(user.id, remember_me).await;
    world.clock.advance_ms(20 * MINUTE_MS);
    browser
}

#[on_each_database]
async fn changes_ask_the_person_again(world: World) {
    let ada = world.user("ada").await;
    let browser = stale(&world, &ada, false).await;
    assert_eq!(browser.get(&world, STATE).send().await.status, 200);
    for path in [TOTP, CODES, REMOVE] {
        let answer = browser.get(&world, path).send().await;
        check_headers(&answer, path);
        assert_eq!((answer.status, answer.header("location")), (303, &*format!("{AGAIN}?next={path}")));
    }
    for path in [TOTP, CONFIRM, CODES, REMOVE] {
        let answer = browser.post(&world, path, &[("code", "123456")]).send().await;
        assert_eq!((answer.status, answer.header("location")), (303, &*format!("{AGAIN}?next={STATE}")));
    }
    let page = browser.page(&world, &format!("{AGAIN}?next={TOTP}")).await;
    assert_eq!(hidden(&page, "next"), TOTP);
    assert!(!page.contains("one_time_code"), "{page}");

    let fields = [("password", "Wrong-Kettle-1"), ("next", TOTP)];
    let wrong = browser.post(&world, AGAIN, &fields).send().await;
    assert_eq!((wrong.status, cookies(&wrong).len()), (401, 0), "{}", wrong.text);
    check_headers(&wrong, AGAIN);
    assert!(wrong.text.contains(r##"href="#password""##) && !wrong.text.contains("Wrong-Kettle"));
    assert_eq!(hidden(&wrong.text, "next"), TOTP);

    let fields = [("password", PASSWORD), ("next", TOTP)];
    let right = browser.post(&world, AGAIN, &fields).send().await;
    assert_eq!((right.status, right.header("location")), (303, TOTP));
    assert!(!cookies(&right)[0].1.contains("Max-Age"));
    let new = signed_in(&right);
    assert_eq!(new.get(&world, TOTP).send().await.status, 200);
    world.catch_up().await;
    assert_eq!(browser.get(&world, STATE).send().await.status, 303, "that session has ended");
}

#[on_each_database]
async fn page_that_asks_again_asks_for_the_code_too(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let browser = stale(&world, &ada, true).await;
    let page = browser.page(&world, AGAIN).await;
    assert!(page.contains(r#"name="one_time_code""#), "{page}");
    let missing = browser.post(&world, AGAIN, &[("password", PASSWORD)]).send().await;
    assert_eq!(missing.status, 401, "{}", missing.text);
    assert!(missing.text.contains(r##"href="#one_time_code""##), "{}", missing.text);
    let code = app.code(world.clock.now());
    let fields = [("password", PASSWORD), ("one_time_code", &*code), ("next", "https://evil.example")];
    let right = browser.post(&world, AGAIN, &fields).send().await;
    assert_eq!((right.status, right.header("location")), (303, "/console/"));
    assert!(cookies(&right)[0].1.ends_with("Max-Age=2592000"), "as it was before");
    world.clock.advance_ms(STEP_MS);
    let again = signed_in(&right).post(&world, AGAIN, &fields).send().await;
    assert_eq!(again.status, 401, "the code is used up");
}

#[on_each_database]
async fn forms_of_other_pages_change_nothing(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let browser = world.browser(ada.id).await;
    let code = app.code(world.clock.now());
    for path in [TOTP, CONFIRM, CODES, REMOVE, AGAIN] {
        let call = browser.sends(Call::new(&world.public, http::Method::POST, path));
        let fields = [("code", &*code), ("password", PASSWORD), ("one_time_code", &*code)];
        let answer = call.form(&fields).header("sec-fetch-site", "same-site").send().await;
        assert_eq!((answer.status, cookies(&answer).len()), (403, 0), "{path}");
    }
    assert!(browser.page(&world, STATE).await.contains("You have 10 recovery codes left"));
    // No code was used up either.
    let fields = [("password", PASSWORD), ("one_time_code", &*code)];
    assert_eq!(browser.post(&world, AGAIN, &fields).send().await.status, 303);
}

#[on_each_database]
fn hostile_texts_are_never_shown(database: Database) {
    const HOSTILE: &str = "\"><script>alert('1')</script>";
    database.run(&[], async |world| {
        let ada = world.user("ada").await;
        world.add_authenticator(&ada.access_token).await;
        let browser = world.browser(ada.id).await;
        let (_, cookie) = first_step(&world, "", "").await;
        start(&world, &browser).await;
        let fields =
            [("code", HOSTILE), ("one_time_code", HOSTILE), ("password", HOSTILE), ("next", HOSTILE)];
        let calls = [
            (STEP, Browser::signed_out().post(&world, STEP, &fields).header("cookie", &cookie)),
            (CONFIRM, browser.post(&world, CONFIRM, &fields)),
            (AGAIN, browser.post(&world, AGAIN, &fields)),
        ];
        for (path, call) in calls {
            let answer = call.send().await;
            assert_eq!(answer.status, 401, "{path}: {}", answer.text);
            check_headers(&answer, path);
            assert!(!answer.text.contains("<script>alert"), "{path}");
            // Codes and passwords aren't shown, even as text.
            assert!(!answer.text.contains("alert(") || hidden(&answer.text, "next").contains("alert("));
            assert!(answer.text.matches("alert(").count() <= 1, "{path}: {}", answer.text);
        }
    });
}

#[on_each_database]
async fn qr_code_of_the_longest_address_fits_the_page(world: World) {
    let ada = world.user("ada").await;
    let domain = ["ü".repeat(18), "ö".repeat(18), "ä".repeat(18), "example".to_owned()].join(".");
    let email = format!("{}@{domain}", "é".repeat(32));
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE users SET email = $1").bind(email.as_str()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    start(&world, &world.browser(ada.id).await).await;
}

/// The cookie of the second step opens one session, regardless of the codes that are sent with it later.
#[on_each_database]
async fn second_step_is_good_once(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    let (_, cookie) = first_step(&world, "", "").await;
    // A wrong code doesn't use up the cookie.
    assert_eq!(second_step(&world, &cookie, "000000", "").send().await.status, 401);
    let answer = second_step(&world, &cookie, &app.code(world.clock.now()), "").send().await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console/"), "{}", answer.text);
    let answer = second_step(&world, &cookie, &codes[0], "").send().await;
    assert_eq!((answer.status, answer.header("location")), (303, SIGN_IN), "{}", answer.text);
    assert!(!cookies(&answer).iter().any(|(name, _)| name == "tollkeeper"));
}

/// With a different code for each, eight second steps at once open one session, at whichever replica they arrive.
#[on_each_database]
async fn of_many_second_steps_at_once_one_opens_a_session(world: World) {
    let ada = world.user("ada").await;
    let (_, codes) = world.add_authenticator(&ada.access_token).await;
    let (_, cookie) = first_step(&world, "", "").await;
    let twins = Twin::both(&world).await;
    let steps = codes[..8].iter().enumerate().map(|(number, code)| {
        let call = twins[number % 2].call(http::Method::POST, STEP).header("sec-fetch-site", "same-origin");
        call.header("cookie", &cookie).form(&[("one_time_code", code.as_str())]).send()
    });
    let answers = futures_util::future::join_all(steps).await;
    let opened = answers.iter().filter(|answer| answer.header("location") == "/console/");
    assert_eq!(opened.count(), 1, "{answers:?}");
}
