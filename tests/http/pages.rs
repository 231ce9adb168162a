//! The pages that e-mails link to, in process; `tests/browser/main.rs` tests them in a browser.

use http::Method;
use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::clock::{Clock, Time};
use tollkeeper::web::route::Listener;

use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{Folder, PASSWORD, START, World, config, runtime};

const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";
const EMAIL: &str = "ada@example.com";
const PATHS: [&str; 4] = ["/verify-email", "/reset-password", "/change-email", "/invitations/accept"];

async fn register(world: &World) {
    let body = json!({"email": EMAIL, "password": PASSWORD, "username": "ada"});
    world.post("/v1/auth/register", &body).data().await;
}

async fn request_reset(world: &World) -> String {
    register(world).await;
    world.mailed_token(EMAIL).await;
    world.clock.advance_ms(1);
    world.post("/v1/auth/forgot-password", &json!({ "email": EMAIL })).data().await;
    world.mailed_token(EMAIL).await
}

fn form(world: &World, path: &str, fields: &[(&str, &str)]) -> Call {
    world.call(Method::POST, path).form(fields)
}

fn reset(world: &World, token: &str, password: &str, again: &str) -> Call {
    let fields = [("token", token), ("password", password), ("password_confirmation", again)];
    form(world, "/reset-password", &fields)
}

async fn may_log_in(world: &World, password: &str) -> bool {
    let body = json!({"email": EMAIL, "password": password});
    world.post("/v1/auth/login", &body).send().await.status == 200
}

/// Checks the properties that every page has.
fn check(answer: &Answer, status: u16, title: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let heading = format!("<h1>{title}</h1>");
    assert!(answer.text.contains(&heading), "{heading}: {}", answer.text);
    check_headers(answer);
    assert!(!answer.text.contains("<script"), "{}", answer.text);
    assert!(answer.text.starts_with("<!doctype html>\n<html lang=\"en\">"));
    let error = if status == 200 { "" } else { "Error: " };
    assert!(answer.text.contains(&format!("<title>{error}{title}</title>")), "{}", answer.text);
}

fn check_headers(answer: &Answer) {
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    assert!(answer.header("x-request-id").starts_with("req_"));
    let policy = answer.header("content-security-policy");
    let (start, rest) = policy.split_once("'sha256-").unwrap();
    let (hash, end) = rest.split_once('\'').unwrap();
    assert_eq!(start, "default-src 'none'; style-src ");
    assert_eq!(end, "; form-action 'self'; frame-ancestors 'none'; base-uri 'none'");
    assert_eq!(hash.len(), 44);
    if let Some((_, rest)) = answer.text.split_once("<style>") {
        use base64::Engine;
        let style = rest.split_once("</style>").unwrap().0;
        let found = ring::digest::digest(&ring::digest::SHA256, style.as_bytes());
        assert_eq!(hash, base64::engine::general_purpose::STANDARD.encode(found), "the style's own hash");
    }
}

#[on_each_database]
async fn opening_the_page_uses_no_token_and_a_click_confirms_once(world: World) {
    register(&world).await;
    let token = world.mailed_token(EMAIL).await;
    let before = world.app.db.statement_count();
    for _ in 0..100 {
        let page = world.get(&format!("/verify-email?token={token}")).send().await;
        check(&page, 200, "Confirm your e-mail address");
        assert!(page.text.contains(&format!("name=\"token\" value=\"{token}\"")), "{}", page.text);
        assert!(page.text.contains("<form method=\"post\" action=\"verify-email\">"), "{}", page.text);
    }
    assert_eq!(world.app.db.statement_count(), before, "a look asks the database nothing");
    let fields = [("token", token.as_str()), ("password", PASSWORD)];
    let done = form(&world, "/verify-email", &fields).send().await;
    check(&done, 200, "Your address is confirmed");
    assert!(done.text.contains(EMAIL));
    let again = form(&world, "/verify-email", &fields).send().await;
    check(&again, 400, "This link no longer works");
    assert!(again.text.contains("your address is confirmed"), "{}", again.text);
}

#[on_each_database]
async fn verification_link_lives_a_day(world: World) {
    register(&world).await;
    let token = world.mailed_token(EMAIL).await;
    world.clock.advance_ms(tollkeeper::clock::DAY_MS);
    let late = form(&world, "/verify-email", &[("token", &token), ("password", PASSWORD)]).send().await;
    check(&late, 400, "This link no longer works");
    world.clock.advance_ms(-1);
    // A token copied by hand may have spaces around it.
    let padded = format!(" {token}\r\n");
    let done = form(&world, "/verify-email", &[("token", &padded), ("password", PASSWORD)]).send().await;
    check(&done, 200, "Your address is confirmed");
}

#[on_each_database]
async fn reset_reports_every_broken_rule_and_keeps_the_link(world: World) {
    let token = request_reset(&world).await;
    let page = world.get(&format!("/reset-password?token={token}")).send().await;
    check(&page, 200, "Choose a new password");
    assert_eq!(page.text.matches("autocomplete=\"new-password\"").count(), 2);

    let weak = reset(&world, &token, "kettle", "kettle").send().await;
    check(&weak, 400, "Choose a new password");
    for sentence in [
        "The password must be at least 8 characters.",
        "The password needs an upper-case letter.",
        "The password needs a digit.",
    ] {
        assert!(weak.text.contains(sentence), "{sentence}: {}", weak.text);
    }
    assert!(weak.text.contains("role=\"alert\""));
    assert!(weak.text.contains(&format!("name=\"token\" value=\"{token}\"")));
    assert!(!weak.text.contains("kettle"), "passwords don't come back: {}", weak.text);

    let differ = reset(&world, &token, NEW_PASSWORD, "Another-Kettle-9").send().await;
    check(&differ, 400, "Choose a new password");
    assert!(differ.text.contains("The passwords don’t match."), "{}", differ.text);
    assert!(!differ.text.contains('`') && !weak.text.contains('`'), "plain words");
    let missing = form(&world, "/reset-password", &[("token", &token)]).send().await;
    check(&missing, 400, "Choose a new password");
    assert!(missing.text.contains("The password is required."), "{}", missing.text);
    assert!(may_log_in(&world, PASSWORD).await);

    let done = reset(&world, &token, NEW_PASSWORD, NEW_PASSWORD).send().await;
    check(&done, 200, "Your password has changed");
    check(&reset(&world, &token, NEW_PASSWORD, NEW_PASSWORD).send().await, 400, "This link no longer works");
}

#[on_each_database]
async fn reset_ends_every_session(world: World) {
    let token = request_reset(&world).await;
    let body = json!({"email": EMAIL, "password": PASSWORD});
    let before = world.post("/v1/auth/login", &body).data().await;
    let access = before["access_token"].as_str().unwrap();
    world.get("/v1/auth/me").bearer(access).data().await;
    check(&reset(&world, &token, NEW_PASSWORD, NEW_PASSWORD).send().await, 200, "Your password has changed");
    assert_eq!(world.get("/v1/auth/me").bearer(access).refused().await.0, 401);
    assert!(!may_log_in(&world, PASSWORD).await);
    assert!(may_log_in(&world, NEW_PASSWORD).await);
}

#[on_each_database]
async fn link_without_a_token_asks_for_it(world: World) {
    for path in PATHS {
        for query in ["", "?token=", "?token=abc", "?token=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "?x=1"] {
            let page = world.get(&format!("{path}{query}")).send().await;
            assert_eq!(page.status, 200);
            check_headers(&page);
            assert!(page.text.contains("This link is incomplete."), "{}", page.text);
            assert!(page.text.contains("<label for=\"token\">"), "{}", page.text);
            assert!(!page.text.contains("<script"));
        }
        for query in ["?token=a&token=b", "?token=%ff", &format!("?token={}", "A".repeat(600))] {
            let page = world.get(&format!("{path}{query}")).send().await;
            check(&page, 400, "Invalid request");
        }
        for fields in [&[][..], &[("token", "")], &[("token", "x")], &[("token", &"A".repeat(43))]] {
            let both = [("password", NEW_PASSWORD), ("password_confirmation", NEW_PASSWORD)];
            let fields = [fields, &both].concat();
            let page = form(&world, path, &fields).send().await;
            check(&page, 400, "This link no longer works");
        }
    }
}

#[on_each_database]
async fn input_is_never_rendered_as_html(world: World) {
    let evil = "\"><script>alert('1')</script><b a=\"";
    let escaped = "&#34;&#62;&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;&#60;b a=&#34;";
    let page = reset(&world, evil, evil, "Another-Kettle-9").send().await;
    check(&page, 400, "Choose a new password");
    assert!(page.text.contains(&format!("value=\"{escaped}\"")), "{}", page.text);
    assert!(!page.text.contains("alert('1')"), "{}", page.text);
    let page = form(&world, "/reset-password", &[("token", evil), (evil, evil)]).send().await;
    check(&page, 400, "Choose a new password");
    let page = world.get("/verify-email/%3Cscript%3E").send().await;
    check(&page, 404, "Page not found");
    let address = "o'brien&co@example.com";
    let body = json!({"email": address, "password": PASSWORD, "username": "obrien"});
    world.post("/v1/auth/register", &body).data().await;
    let token = world.mailed_token(address).await;
    let page = form(&world, "/verify-email", &[("token", &token), ("password", PASSWORD)]).send().await;
    check(&page, 200, "Your address is confirmed");
    assert!(page.text.contains("o&#39;brien&#38;co@example.com"), "{}", page.text);
}

#[on_each_database]
async fn errors_are_pages(world: World) {
    for path in PATHS {
        let head = world.call(Method::HEAD, path).send().await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
        check_headers(&head);
        let put = world.call(Method::PUT, path).send().await;
        check(&put, 405, "This action isn’t supported");
        assert_eq!(put.header("allow"), "GET,HEAD,POST");
        check(&world.get(&format!("{path}/")).send().await, 404, "Page not found");
        let json = world.post(path, &json!({"token": "x"})).send().await;
        check(&json, 400, "Invalid request");
        for kind in ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencodedx"] {
            let call = world.call(Method::POST, path).header("content-type", kind).raw("token=x");
            check(&call.send().await, 400, "Invalid request");
        }
        let kind = "Application/X-WWW-Form-Urlencoded; charset=utf-8";
        let call = world
            .call(Method::POST, path)
            .header("content-type", kind)
            .raw("token=x&password=a&password_confirmation=a");
        check(&call.send().await, 400, "This link no longer works");
        for body in [&b"token=%ff"[..], b"token=\xff"] {
            let call = world
                .call(Method::POST, path)
                .header("content-type", "application/x-www-form-urlencoded")
                .raw(body);
            check(&call.send().await, 400, "Invalid request");
        }
        let long = "x".repeat(16 * 1024);
        let large = form(&world, path, &[("token", &long)]).send().await;
        check(&large, 413, "The input is too long");
        let id = large.header("x-request-id");
        assert!(large.text.contains(id), "the page contains the request id: {}", large.text);
    }
    // The longest allowed passwords fit.
    let long = "ẞ".repeat(512);
    let page = reset(&world, &"A".repeat(43), &long, &long).send().await;
    check(&page, 400, "This link no longer works");
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "2")])]
async fn rate_limited_page_shows_the_wait(world: World) {
    for _ in 0..2 {
        check(
            &form(&world, "/verify-email", &[("token", "x")]).send().await,
            400,
            "This link no longer works",
        );
    }
    for (number, path) in PATHS.into_iter().enumerate() {
        let page = form(&world, path, &[("token", "x")]).send().await;
        check(&page, 429, "Please wait a moment");
        assert_eq!(page.header("retry-after"), "30");
        assert!(page.text.contains("Wait 30 seconds, then go back and try again."), "{}", page.text);
        let elsewhere = form(&world, path, &[]).from(&format!("192.0.2.{number}")).send().await;
        check(&elsewhere, 400, "This link no longer works");
        assert_eq!(world.get(path).send().await.status, 200, "looking isn't counted");
    }
}

#[test]
fn unready_server_answers_with_a_page() {
    runtime().block_on(async {
        let folder = Folder::new();
        let clock = Clock::fixed(Time::parse(START).unwrap());
        let app = App::new(config(&folder.0, None, &[]), clock).unwrap();
        let router = tollkeeper::api::routes::dispatcher(&app.api, Listener::Public);
        for path in PATHS {
            let page = Call::new(&router, Method::GET, path).send().await;
            check(&page, 503, "Something went wrong");
            assert_eq!(page.header("retry-after"), "1");
            assert!(page.text.contains(page.header("x-request-id")), "{}", page.text);
        }
    });
}
