//! `GET /service/v1/forward-auth` in process: the answers for each kind of proxy.

use http::Method;
use serde_json::{Value, json};

use support::books::wallet;
use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{TestUser, World};

const CHAT: &str = "/service/v1/forward-auth?operation=chat&model=svc-1&reserve=false";

/// Builds a request with the service token.
fn ask(world: &World, url: &str) -> Call {
    let call = Call::new(&world.service, Method::GET, url);
    call.header("x-tollkeeper-service-token", world.app.api.service_token.expose())
}

/// Returns the identity headers, sorted by name.
fn identity(answer: &Answer) -> Vec<(String, String)> {
    let ours = answer.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-tollkeeper-"));
    let mut ours: Vec<_> =
        ours.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    ours.sort();
    ours
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (format!("x-tollkeeper-{name}"), (*value).to_owned())).collect()
}

#[on_each_database]
async fn allowed_call_has_identity_headers(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k", "restrictions": {"max_tokens": 9}})).await;
    let user = ada.id.to_string();
    let of_key = named(&[
        ("api-key-id", &id),
        ("max-tokens", "9"),
        ("model", "svc-1"),
        ("organization-id", &place.organization),
        ("project-id", &place.project),
        ("reservation-id", ""),
        ("user-id", &user),
    ]);
    let answer = ask(&world, CHAT).bearer(&key).send().await;
    assert_eq!((answer.status, identity(&answer)), (200, of_key.clone()));
    let body = answer.json();
    assert_eq!((&body["allowed"], &body["api_key_id"]), (&json!(true), &json!(id)));
    assert_eq!(body["limits"]["model"]["remaining_requests"], 59);
    let head = Call::new(&world.service, Method::HEAD, CHAT)
        .header("x-tollkeeper-service-token", world.app.api.service_token.expose());
    let head = head.bearer(&key).send().await;
    assert_eq!((head.status, identity(&head), head.text.as_str()), (200, of_key, ""));
    // A HEAD only checks; a GET reserves the price of the call.
    let url = CHAT.replace("&reserve=false", "");
    for (method, reserves) in [(Method::HEAD, false), (Method::GET, true)] {
        let asked = Call::new(&world.service, method.clone(), &url)
            .header("x-tollkeeper-service-token", world.app.api.service_token.expose());
        assert_eq!(asked.bearer(&key).send().await.status, 200);
        assert_eq!(wallet(&world, &place.organization).await.1 > 0, reserves, "{method}");
    }
    let post = Call::new(&world.service, Method::POST, CHAT).send().await;
    assert_eq!((post.status, post.header("allow")), (405, "GET,HEAD"));
    let public = Call::new(&world.public, Method::GET, CHAT).send().await;
    assert_eq!(public.status, 404, "it is not on the public listener");
}

/// Calls with a user's access token, for this project.
async fn call_as_user(world: &World, user: &TestUser, url: &str, headers: &[(&str, &str)]) -> Answer {
    let call = ask(world, url).bearer(&user.access_token);
    headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send().await
}

#[on_each_database]
async fn user_names_the_project_by_query_or_sdk_headers(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let fixed = format!("{CHAT}&organization_id={}&project_id={}", place.organization, place.project);
    let sdk = [("openai-organization", other.organization.as_str()), ("openai-project", &other.project)];
    let answer = call_as_user(&world, &ada, CHAT, &sdk).await;
    assert_eq!((answer.status, answer.header("x-tollkeeper-project-id")), (200, other.project.as_str()));
    assert_eq!(answer.headers["x-tollkeeper-api-key-id"], "", "present, so that a proxy can copy it");
    let answer = call_as_user(&world, &ada, &fixed, &sdk).await;
    assert_eq!(answer.header("x-tollkeeper-project-id"), place.project, "the operator's setting applies");
    let answer = call_as_user(&world, &ada, CHAT, &[]).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "project_required"));
    // A key has its own project, and an SDK's headers never cause a refusal.
    let mut call = ask(&world, CHAT).bearer(&key);
    for (name, value) in sdk {
        call = call.header(name, value);
    }
    assert_eq!(call.send().await.header("x-tollkeeper-project-id"), place.project);
}

#[on_each_database]
async fn refusals_are_the_same_in_both_modes(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let key = async |name: &str, body: Value| {
        let mut body = body;
        body["name"] = json!(name);
        world.key(&ada, &place, &body).await.1
    };
    let plain = key("plain", json!({})).await;
    let slow = key("slow", json!({"restrictions": {"rate_limit": 1}})).await;
    ask(&world, CHAT).bearer(&slow).bare().await;
    let cases = [
        (CHAT, String::new(), 401, "missing_credentials"),
        (CHAT, "tk_x".into(), 401, "invalid_api_key"),
        (CHAT, key("files", json!({"permissions": ["files"]})).await, 403, "missing_permission"),
        (
            CHAT,
            key("pro", json!({"restrictions": {"models": ["svc-1-pro"]}})).await,
            403,
            "model_not_allowed",
        ),
        (
            CHAT,
            key("far", json!({"restrictions": {"allowed_ips": ["192.0.2.1"]}})).await,
            403,
            "ip_not_allowed",
        ),
        (CHAT, slow, 429, "rate_limited"),
        (CHAT, ada.access_token.clone(), 400, "project_required"),
        ("/service/v1/forward-auth?operation=chat&model=%D0%BA%0A%22", plain.clone(), 404, "model_not_found"),
        (&format!("{CHAT}&max_tokens=4097"), plain, 400, "max_tokens_exceeded"),
    ];
    for (url, bearer, status, code) in cases {
        let plain = ask(&world, url).bearer(&bearer).send().await;
        assert_eq!((plain.status, plain.code().as_str()), (status, code));
        assert_eq!(identity(&plain), [], "a refusal has no identity headers");
        let nginx = ask(&world, &format!("{url}&mode=nginx")).bearer(&bearer).send().await;
        assert_eq!(nginx.status, if status == 401 { 401 } else { 403 }, "{code}");
        assert_eq!(nginx.header("x-tollkeeper-status"), status.to_string());
        assert_eq!(nginx.header("x-tollkeeper-code"), code);
        let error: Value = serde_json::from_str(nginx.header("x-tollkeeper-error")).unwrap();
        assert_eq!((&error, nginx.json()), (&plain.json(), plain.json()));
        for name in ["retry-after", "retry-after-ms", "x-should-retry", "www-authenticate", "cache-control"] {
            assert_eq!(nginx.header(name), plain.header(name), "{code} {name}");
        }
        assert_eq!(plain.header("retry-after"), if status == 429 { "60" } else { "" });
    }
}

#[on_each_database]
async fn only_a_proxy_with_the_service_token_may_ask(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let token = world.app.api.service_token.expose();
    let bare = |mode: &str| Call::new(&world.service, Method::GET, &format!("{CHAT}{mode}")).bearer(&key);
    // Both modes answer 401 without `x-tollkeeper-status`, because the proxy is refused, not the user's call.
    for mode in ["", "&mode=nginx"] {
        let name = "x-tollkeeper-service-token";
        let cases = [
            (bare(mode), "missing_credentials"),
            (bare(mode).header(name, ""), "invalid_service_token"),
            (bare(mode).header(name, &token[1..]), "invalid_service_token"),
            (bare(mode).header(name, &format!("{token}x")), "invalid_service_token"),
            (bare(mode).header(name, &format!("Bearer {token}")), "invalid_service_token"),
            (bare(mode).header(name, token).header(name, token), "missing_credentials"),
        ];
        for (number, (call, code)) in cases.into_iter().enumerate() {
            let answer = call.send().await;
            assert_eq!((answer.status, answer.code().as_str()), (401, code), "case {number}");
            assert_eq!(answer.header("x-tollkeeper-status"), "");
        }
    }
    let as_bearer = Call::new(&world.service, Method::GET, CHAT).bearer(token).send().await;
    assert_eq!(as_bearer.status, 401, "the bearer token must be the user's credential");
    let as_user = ask(&world, CHAT).bearer(token).send().await;
    assert_eq!((as_user.status, as_user.code().as_str()), (401, "invalid_api_key"));
}

#[on_each_database]
async fn client_cannot_change_the_request_to_the_service(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k", "permissions": ["models"]})).await;
    // The request as Traefik and Caddy send it, with all headers of the client.
    let call = ask(&world, CHAT)
        .bearer(&key)
        .header("x-forwarded-method", "GET")
        .header("x-forwarded-uri", "/v1/chat/completions?operation=models")
        .header("x-forwarded-for", "203.0.113.7")
        .header("x-tollkeeper-operation", "models")
        .header("x-tollkeeper-model", "svc-1-pro")
        .header("x-tollkeeper-organization-id", "org_evil");
    assert_eq!(call.refused().await, (403, "missing_permission".into()));
    for (query, detail) in [
        ("", "operation required"),
        ("?operation=fly", "operation unknown_value"),
        ("?operation=chat", "model required"),
        ("?operation=chat&model=svc-1&model=svc-1-pro", "model wrong_type"),
        ("?operation=files&mode=apache", "mode unknown_value"),
        ("?operation=files&max_tokens=many", "max_tokens wrong_type"),
    ] {
        let answer = ask(&world, &format!("/service/v1/forward-auth{query}")).bearer(&key).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{query}");
        assert_eq!(answer.details(), [detail]);
    }
}

#[on_each_database(&[("TOLLKEEPER_TRUSTED_PROXIES", "10.0.0.0/8")])]
async fn client_address_comes_from_the_proxy(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"name": "k", "restrictions": {"allowed_ips": ["192.0.2.1", "2001:db8::/32"]}});
    let (_, key) = world.key(&ada, &place, &body).await;
    let cases: [(&[&str], u16); 11] = [
        (&[], 403),
        (&["192.0.2.1"], 200),
        (&["::ffff:192.0.2.1"], 200),
        (&["2001:db8:ffff::1"], 200),
        (&["2001:db9::1"], 403),
        (&["192.0.2.1:4711"], 200),
        // The client's own values are on the left.
        (&["192.0.2.1, 198.51.100.7"], 403),
        (&["198.51.100.7, 192.0.2.1"], 200),
        (&["192.0.2.1", "198.51.100.7"], 403),
        // Another proxy in front of the proxy.
        (&["198.51.100.7, 192.0.2.1, 10.1.2.3"], 200),
        (&["192.0.2.1, garbage"], 403),
    ];
    for (hops, status) in cases {
        // The proxy's own address is never the client's.
        let call = ask(&world, CHAT).bearer(&key).from("192.0.2.1");
        let answer = hops.iter().fold(call, |call, hop| call.header("x-forwarded-for", hop)).send().await;
        assert_eq!(answer.status, status, "{hops:?}");
    }
}
