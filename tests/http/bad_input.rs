//! Invalid requests and the errors that they get.

use http::Method;
use serde_json::{Value, json};

use support::http::{Answer, Call};
use support::world::World;
use support::{Database, on_each_database};

/// Checks status, code and the whole shape of an error (docs/contract/README.md#errors).
fn check(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["status_code"], status);
    assert_eq!(body["status_message"], code.to_uppercase());
    assert_eq!(body["data"], json!({}));
    let mut fields: Vec<_> = body["error"].as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "details", "message", "param", "type"]);
    assert!(answer.header("x-request-id").starts_with("req_"));
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

fn create(world: &World, token: &str) -> Call {
    world.call(Method::POST, "/v1/organizations").bearer(token)
}

#[on_each_database]
async fn non_json_bodies_are_refused(world: World) {
    let ada = world.user("ada").await;
    let deep = format!("{{\"name\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let bodies: Vec<Vec<u8>> = vec![
        b"{".to_vec(),
        b"nope".to_vec(),
        b"{\"name\":\"x\",}".to_vec(),
        b"{\"name\":\"a\",\"name\":\"b\"}".to_vec(),
        b"{\"settings\":{\"default_role\":\"member\",\"default_role\":\"admin\"},\"name\":\"x\"}".to_vec(),
        b"\xff\xfe".to_vec(),
        b"{\"name\":\"\xc3\x28\"}".to_vec(),
        b"{\"name\":\"\\ud800\"}".to_vec(),
        b"[]".to_vec(),
        b"\"name\"".to_vec(),
        b"null".to_vec(),
        b"{} {}".to_vec(),
        deep.into_bytes(),
    ];
    for body in bodies {
        let answer = create(&world, &ada.access_token)
            .header("content-type", "application/json")
            .raw(body.clone())
            .send()
            .await;
        check(&answer, 400, "invalid_json");
    }
    let none = create(&world, &ada.access_token).send().await;
    check(&none, 400, "invalid_request");
    assert_eq!(none.details(), ["name required"]);
}

#[on_each_database]
async fn other_content_types_are_refused(world: World) {
    let ada = world.user("ada").await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json", ""] {
        let answer = create(&world, &ada.access_token)
            .header("content-type", kind)
            .raw("{\"name\":\"x\"}")
            .send()
            .await;
        check(&answer, 400, "unsupported_content_type");
        assert_eq!(answer.json()["error"]["param"], "content-type");
    }
    let missing = create(&world, &ada.access_token).raw("{\"name\":\"x\"}").send().await;
    check(&missing, 400, "unsupported_content_type");
    for (n, kind) in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/merge-patch+json"]
        .iter()
        .enumerate()
    {
        let body = format!("{{\"name\":\"x{n}\"}}");
        create(&world, &ada.access_token).header("content-type", kind).raw(body).data().await;
    }
}

#[on_each_database]
async fn wrong_types_and_invalid_texts_are_refused(world: World) {
    let ada = world.user("ada").await;
    let cases: Vec<(Value, &str)> = vec![
        (json!({"name": 1}), "name wrong_type"),
        (json!({"name": ["x"]}), "name wrong_type"),
        (json!({"name": "x".repeat(101)}), "name too_long"),
        (json!({"name": "a\u{7}b"}), "name"),
        (json!({"name": "x", "description": "a\u{0}b"}), "description"),
        (json!({"name": "x", "description": "x".repeat(1001)}), "description too_long"),
        (json!({"name": "x", "settings": 1}), "settings wrong_type"),
        (json!({"name": "x", "settings": {"default_role": "owner"}}), "settings.default_role unknown_value"),
        (
            json!({"name": "x", "settings": {"allow_public_projects": "yes"}}),
            "settings.allow_public_projects wrong_type",
        ),
        (
            json!({"name": "x", "settings": {"allow_public_project": true}}),
            "settings.allow_public_project unknown_field",
        ),
        (json!({"name": "x", "\u{0}": 1}), "\u{0} unknown_field"),
    ];
    for (body, detail) in cases {
        let answer = create(&world, &ada.access_token).json(&body).send().await;
        check(&answer, 400, "invalid_request");
        assert!(answer.details().iter().any(|d| d.starts_with(detail)), "{body}: {:?}", answer.details());
    }
    let body = json!({"name": "x".repeat(100), "description": "line\nline\ttab", "settings": null});
    create(&world, &ada.access_token).json(&body).data().await;
}

#[on_each_database]
async fn nul_characters_are_refused_outside_of_names_too(world: World) {
    let ada = world.user("ada").await;
    let search = world.get("/v1/organizations?search=%00").bearer(&ada.access_token).send().await;
    check(&search, 400, "invalid_request");
    assert_eq!(search.details(), ["search invalid_characters"]);
    let body = json!({"email": "ada\u{0}@example.com", "password": "x\u{0}"});
    let login = world.call(Method::POST, "/v1/auth/login").json(&body).send().await;
    check(&login, 400, "invalid_request");
    assert_eq!(login.details(), ["email invalid_characters", "password invalid_characters"]);
}

#[on_each_database]
async fn too_large_bodies_are_refused(world: World) {
    let ada = world.user("ada").await;
    let just = format!("{{\"name\":\"{}\"}}", "x".repeat(256 * 1024 - 11));
    assert_eq!(just.len(), 256 * 1024);
    let answer = create(&world, &ada.access_token)
        .header("content-type", "application/json")
        .raw(just.clone())
        .send()
        .await;
    check(&answer, 400, "invalid_request");
    let answer = create(&world, &ada.access_token)
        .header("content-type", "application/json")
        .raw(format!("{just} "))
        .send()
        .await;
    check(&answer, 413, "payload_too_large");
    let declared = create(&world, &ada.access_token)
        .header("content-length", "99999999999")
        .json(&json!({"name": "x"}))
        .send()
        .await;
    check(&declared, 413, "payload_too_large");
    // The gate comes first: an unauthenticated caller's body isn't read.
    let stranger = create(&world, "").raw(format!("{just} ")).send().await;
    check(&stranger, 401, "missing_credentials");
}

#[on_each_database]
async fn unknown_paths_and_methods_are_refused(world: World) {
    for path in ["/v1/nothing", "/v1/organizations/", "/v1", "/v2/models", "/v1/auth/register/x"] {
        let answer = world.get(path).send().await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "unknown_path"), "{path}");
        // The SDKs of model providers call the other paths, so errors there have no `data`.
        let is_management = path.starts_with("/v1/auth/") || path.starts_with("/v1/organizations/");
        assert_eq!(answer.json().get("data").is_some(), is_management, "{path}");
    }
    for (method, path, allow) in [
        (Method::PATCH, "/v1/organizations", "GET,HEAD,POST"),
        (Method::DELETE, "/v1/auth/login", "POST"),
        (Method::GET, "/v1/auth/register", "POST"),
        (Method::OPTIONS, "/v1/auth/me", "GET,HEAD,PUT"),
    ] {
        let answer = world.call(method, path).send().await;
        check(&answer, 405, "method_not_allowed");
        let mut methods: Vec<_> = answer.header("allow").split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allow);
    }
    let answer = world.call(Method::POST, "/v1/models").send().await;
    assert_eq!((answer.status, answer.json().as_object().unwrap().len()), (405, 1), "no envelope");
    let head = world.call(Method::HEAD, "/healthz").send().await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
}

#[on_each_database]
async fn unknown_and_malformed_ids_are_not_found(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (own, foreign) = (world.place(&ada, "Own").await, world.place(&bob, "Foreign").await);
    let (key, _) = world.key(&bob, &foreign, &json!({"name": "k"})).await;
    let unknown = "01h2xcejqtf2nbrexx3vqjhp41";
    let cases = [
        (format!("/v1/organizations/org_{unknown}"), 404, "organization_not_found"),
        ("/v1/organizations/nonsense".into(), 404, "organization_not_found"),
        ("/v1/organizations/%00".into(), 404, "organization_not_found"),
        ("/v1/organizations/%ff".into(), 404, "organization_not_found"),
        (format!("/v1/organizations/{}", own.project), 404, "organization_not_found"),
        (format!("/v1/organizations/{}", own.organization.to_uppercase()), 404, "organization_not_found"),
        (foreign.organization_path(), 403, "insufficient_role"),
        (foreign.project_path(), 403, "insufficient_role"),
        (format!("{}/projects/proj_{unknown}", own.organization_path()), 404, "project_not_found"),
        (format!("{}/projects/{}", own.organization_path(), foreign.project), 404, "project_not_found"),
        (format!("{}/api-keys/{key}", own.project_path()), 404, "api_key_not_found"),
        (format!("{}/api-keys/x", own.project_path()), 404, "api_key_not_found"),
        (format!("{}/api-keys/{key}", foreign.project_path()), 403, "insufficient_role"),
        (format!("{}/api-keys/x", foreign.project_path()), 404, "api_key_not_found"),
        (format!("/v1/organizations/org_{}", "0".repeat(5_000)), 404, "organization_not_found"),
    ];
    for (path, status, code) in cases {
        let answer = world.get(&path).bearer(&ada.access_token).send().await;
        check(&answer, status, code);
    }
}

#[on_each_database]
async fn checks_run_in_the_order_401_404_403_400(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let foreign = world.place(&bob, "Foreign").await;
    let broken = |path: &str, token: &str| world.call(Method::POST, path).bearer(token).raw("{");
    let keys = format!("{}/api-keys", foreign.project_path());
    check(&broken(&keys, "").send().await, 401, "missing_credentials");
    check(
        &broken("/v1/organizations/x/projects", &ada.access_token).send().await,
        404,
        "organization_not_found",
    );
    check(&broken(&keys, &ada.access_token).send().await, 403, "insufficient_role");
    let answer = broken(&keys, &bob.access_token).header("content-type", "application/json").send().await;
    check(&answer, 400, "invalid_json");
}

#[on_each_database]
async fn malformed_credentials_are_refused(world: World) {
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    let me = |value: &str| world.get("/v1/auth/me").header("authorization", value);
    let cases = [
        (String::new(), "missing_credentials"),
        ("Bearer".into(), "missing_credentials"),
        ("Bearer ".into(), "missing_credentials"),
        (format!("Basic {token}"), "missing_credentials"),
        (token.clone(), "missing_credentials"),
        ("Bearer x".into(), "invalid_access_token"),
        (format!("Bearer {token}x"), "invalid_access_token"),
        (format!("Bearer {token} {token}"), "invalid_access_token"),
        (format!("Bearer {}", "a.".repeat(4_000)), "invalid_access_token"),
    ];
    for (value, code) in cases {
        let answer = me(&value).send().await;
        check(&answer, 401, code);
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
    }
    check(
        &me(&format!("Bearer {token}")).header("authorization", "Bearer x").send().await,
        401,
        "missing_credentials",
    );
    me(&format!("bearer  {token} ")).data().await;
}

#[on_each_database]
async fn sdk_headers_are_never_refused(world: World) {
    let ada = world.user("ada").await;
    let call = world.get("/v1/models").bearer(&ada.access_token);
    let call = call
        .header("x-stainless-lang", "python")
        .header("OpenAI-Organization", "org-x")
        .header("OpenAI-Project", "p");
    call.bare().await;
}

#[on_each_database]
fn cross_origin_calls_are_off_by_default(database: Database) {
    database.run(&[], async |world| {
        let preflight = world
            .call(Method::OPTIONS, "/v1/auth/me")
            .header("origin", "https://evil.example")
            .header("access-control-request-method", "GET");
        let answer = preflight.send().await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""));
    });
    database.run(&[("TOLLKEEPER_CORS_ORIGINS", "https://app.example")], async |world| {
        for (origin, allowed) in
            [("https://app.example", "https://app.example"), ("https://evil.example", "")]
        {
            let preflight = world
                .call(Method::OPTIONS, "/v1/auth/me")
                .header("origin", origin)
                .header("access-control-request-method", "GET");
            assert_eq!(preflight.send().await.header("access-control-allow-origin"), allowed);
        }
    });
}
