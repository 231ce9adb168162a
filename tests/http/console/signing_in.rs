//! Signing in to the console, and signing out.

use http::Method;
use serde_json::json;

use support::console::Browser;
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const SIGN_IN: &str = "/console/sign-in";

async fn register(world: &World) {
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "username": "ada"});
    world.post("/v1/auth/register", &body).data().await;
}

#[on_each_database]
async fn person_signs_in_makes_an_organization_and_signs_out(world: World) {
    register(&world).await;
    let mut browser = Browser::signed_out();
    let answer = browser.get(&world, "/").send().await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console/"));
    let answer = browser.get(&world, "/console/organizations/new?a=b").send().await;
    let sign_in = "/console/sign-in?next=/console/organizations/new%3Fa%3Db";
    assert_eq!((answer.status, answer.header("location")), (303, sign_in));
    let page = browser.page(&world, sign_in).await;
    assert!(page.contains(r#"name="next" value="/console/organizations/new?a=b""#), "{page}");

    let fields =
        [("email", "Ada@Example.com "), ("password", PASSWORD), ("next", "/console/organizations/new?a=b")];
    let answer = browser.post(&world, SIGN_IN, &fields).send().await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console/organizations/new?a=b"));
    browser.take(&answer);
    let answer = browser.get(&world, "/console/").send().await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console/organizations"));
    assert!(browser.page(&world, "/console/organizations").await.contains("Create an organization"));

    let place =
        browser.done(&world, "/console/organizations/new", &[("name", "Acme"), ("description", "")]).await;
    let page = browser.page(&world, &place).await;
    assert!(page.contains("The organization is ready.") && page.contains("<h1>Acme</h1>"), "{page}");
    let answer = browser.get(&world, "/console").send().await;
    assert_eq!(format!("{}?done=organization_created", answer.header("location")), place);

    let answer = browser.post(&world, "/console/sign-out", &[]).send().await;
    assert_eq!((answer.status, answer.header("location")), (303, "/console/sign-in?done=signed_out"));
    assert_eq!(answer.header("clear-site-data"), "\"cache\"");
    let signed_out = browser.get(&world, &place).send().await;
    assert_eq!(signed_out.status, 303, "the session has ended, regardless of the browser's cookie");
    browser.take(&answer);
    assert_eq!(browser.cookie, "");
    assert!(browser.page(&world, answer.header("location")).await.contains("You’re signed out."));
}

#[on_each_database]
async fn wrong_password_keeps_the_address_and_waits_grow(world: World) {
    register(&world).await;
    let browser = Browser::signed_out();
    let fields = [("email", "ada@example.com"), ("password", "Wrong-Kettle-Orbit-1"), ("next", "/console/x")];
    for _ in 0..10 {
        let answer = browser.post(&world, SIGN_IN, &fields).send().await;
        assert_eq!(answer.status, 401, "{}", answer.text);
        assert!(answer.text.contains("Request failed"), "{}", answer.text);
        assert!(
            answer.text.contains("value=\"ada@example.com\"") && answer.text.contains("value=\"/console/x\"")
        );
        assert!(!answer.text.contains("Wrong-Kettle"), "{}", answer.text);
        assert_eq!((answer.header("set-cookie"), answer.header("www-authenticate")), ("", ""));
    }
    let answer = browser.post(&world, SIGN_IN, &fields).send().await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert!(answer.text.contains("Try again in "), "{}", answer.text);
    let unknown = [("email", "nobody@example.com"), ("password", PASSWORD)];
    assert_eq!(browser.post(&world, SIGN_IN, &unknown).send().await.status, 401);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "1")])]
async fn sign_in_is_limited_by_address(world: World) {
    let browser = Browser::signed_out();
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    assert_eq!(browser.post(&world, SIGN_IN, &fields).send().await.status, 401);
    let answer = browser.post(&world, SIGN_IN, &fields).send().await;
    assert_eq!(answer.status, 429);
    assert!(answer.text.contains("Please wait a moment"), "{}", answer.text);
    assert!(answer.text.contains("value=\"ada@example.com\"") && !answer.text.contains(PASSWORD));
    assert_eq!(browser.get(&world, SIGN_IN).send().await.status, 200, "the page isn't");
}

#[on_each_database(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")])]
async fn unverified_address_can_be_required_to_be_verified(world: World) {
    register(&world).await;
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let answer = Browser::signed_out().post(&world, SIGN_IN, &fields).send().await;
    assert_eq!((answer.status, answer.header("set-cookie")), (403, ""));
    assert!(answer.text.contains("role=\"alert\""), "{}", answer.text);
}

#[on_each_database]
fn cookie_belongs_to_this_host_and_no_script(database: Database) {
    for (url, name, attributes) in [
        ("https://console.example", "__Host-tollkeeper", "; Path=/; Secure; HttpOnly; SameSite=Lax"),
        ("http://console.example", "tollkeeper", "; Path=/; HttpOnly; SameSite=Lax"),
    ] {
        database.run(&[("TOLLKEEPER_PUBLIC_URL", url)], async |world| {
            register(&world).await;
            let browser = Browser::signed_out();
            let page = browser.page(&world, SIGN_IN).await;
            assert_eq!(
                page.contains("This connection isn&#39;t encrypted")
                    || page.contains("This connection isn't encrypted"),
                name == "tollkeeper"
            );
            let sign_in = async |remember_me: &str| {
                let fields =
                    [("email", "ada@example.com"), ("password", PASSWORD), ("remember_me", remember_me)];
                let answer = browser.post(&world, SIGN_IN, &fields).send().await;
                assert_eq!(answer.status, 303, "{}", answer.text);
                let cookie = answer.header("set-cookie").to_owned();
                let (value, rest) = cookie.split_once(';').unwrap();
                (value.strip_prefix(&format!("{name}=")).unwrap().to_owned(), format!(";{rest}"))
            };
            let (token, attributes_found) = sign_in("").await;
            assert_eq!(attributes_found, attributes);
            assert!(token.len() < 500 && token.matches('.').count() == 2, "{token}");
            assert_eq!(sign_in("true").await.1, format!("{attributes}; Max-Age=2592000"));

            let get = |cookie: String| world.get("/console/organizations").header("cookie", &cookie);
            assert_eq!(get(format!("a=b; {name}={token}; c=d")).send().await.status, 200);
            let other_name = if name == "tollkeeper" { "__Host-tollkeeper" } else { "tollkeeper" };
            assert_eq!(get(format!("{other_name}={token}")).send().await.status, 303);
            assert_eq!(
                get(format!("{name}={token}; {name}=other")).send().await.status,
                303,
                "one of them belongs to a stranger"
            );
            // The API ignores cookies, and the cookie's token isn't valid as a bearer token.
            assert_eq!(
                world.get("/v1/auth/me").header("cookie", &format!("{name}={token}")).refused().await.0,
                401
            );
            assert_eq!(world.get("/v1/auth/me").bearer(&token).refused().await.0, 401);
            let models = world.get("/v1/models").bearer(&token);
            assert_eq!(models.refused().await.0, 401);
            let refresh = world.post("/v1/auth/refresh-token", &json!({})).bearer(&token);
            assert_eq!(refresh.refused().await.0, 401);
        });
    }
}

#[on_each_database]
async fn next_sign_in_ends_the_session_before(world: World) {
    register(&world).await;
    let mut browser = Browser::signed_out();
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let first = browser.post(&world, SIGN_IN, &fields).send().await;
    browser.take(&first);
    let before = browser.clone();
    let second = browser.post(&world, SIGN_IN, &fields).send().await;
    browser.take(&second);
    assert_eq!(before.get(&world, "/console/organizations").send().await.status, 303);
    assert_eq!(browser.get(&world, "/console/organizations").send().await.status, 200);
    // Signing out twice, or without a session, isn't an error.
    for _ in 0..2 {
        let place = browser.done(&world, "/console/sign-out", &[]).await;
        assert_eq!(place, "/console/sign-in?done=signed_out");
    }
}

#[on_each_database]
async fn session_is_listed_and_ends_like_others(world: World) {
    let user = world.user("ada").await;
    let (browser, session) = world.browser_session(user.id, false).await;
    world.clock.advance_ms(61_000);
    let page =
        browser.get(&world, "/console/organizations").header("user-agent", "Firefox").from("192.0.2.7");
    assert_eq!(page.send().await.status, 200);
    let listed = world.get("/v1/auth/sessions").bearer(&user.access_token).data().await;
    let found =
        listed["sessions"].as_array().unwrap().iter().find(|row| row["id"] == session.to_string()).unwrap();
    assert_eq!((&found["user_agent"], &found["address"]), (&json!("Firefox"), &json!("192.0.2.7")));
    assert_ne!(found["last_seen_at"], found["created_at"]);
    let path = format!("/v1/auth/sessions/{session}");
    world.call(Method::DELETE, &path).bearer(&user.access_token).data().await;
    assert_eq!(browser.get(&world, "/console/organizations").send().await.status, 303);
}
