//! API keys over HTTP, and API keys as callers (docs/contract/api-keys.md).

mod end_rotation;
pub mod fields;
mod last_use;
mod rotate;
mod update;

use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;

use fields::Field;
use support::world::{START, World};
use support::{Database, on_each_database};

#[on_each_database]
async fn key_is_created_listed_and_read(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/api-keys", place.project_path());
    let all = fields::all();
    let body = fields::with(json!({"expires_at": "2026-03-11T14:00:00+02:00"}), &all, |field| &field.sent);
    let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
    assert_eq!(answer.header("cache-control"), "private, no-store");
    let made = answer.json()["data"].clone();
    let key = made["key"].as_str().unwrap();
    assert!(key.starts_with("tk_") && key.len() == 3 + 43 + 6, "{key}");
    let shown = |other: Value| fields::with(other, &all, |field| &field.shown);
    let created_by = json!({"id": ada.id.to_string(), "email": "ada@example.com", "username": "ada"});
    let expected = json!({"id": made["id"], "key": key, "created_at": START, "expires_at": "2026-03-11T12:00:00.000Z",
        "created_by": created_by});
    let expected = shown(expected);
    assert_eq!(made, expected);

    let listed = world.get(&path).bearer(&ada.access_token).data().await;
    let mut item =
        shown(json!({"id": made["id"], "created_at": START, "expires_at": "2026-03-11T12:00:00.000Z",
        "last_used_at": null, "status": "active"}));
    item.as_object_mut().unwrap().remove("restrictions");
    assert_eq!(listed, json!({"api_keys": [item], "total": 1, "page": 1, "page_size": 20}));

    let read =
        world.get(&format!("{path}/{}", made["id"].as_str().unwrap())).bearer(&ada.access_token).send().await;
    assert!(!read.text.contains(key), "a secret is shown once");
    let usage = json!({"total_requests": 0, "total_tokens": 0, "last_used_at": null, "last_used_ip": null});
    let expected =
        shown(json!({"id": made["id"], "created_at": START, "expires_at": "2026-03-11T12:00:00.000Z",
        "usage": usage, "status": "active", "created_by": created_by}));
    assert_eq!(read.json()["data"], expected);

    world.clock.advance_ms(DAY_MS);
    let token = world.token(tollkeeper::accounts::jwt::TokenKind::Access, ada.id, ada.session_id, 60).await;
    let listed = world.get(&format!("{path}?status=expired")).bearer(&token).data().await;
    assert_eq!(listed["api_keys"][0]["status"], "expired");
    assert_eq!(world.get(&format!("{path}?status=active")).bearer(&token).data().await["total"], 0);
    assert_eq!(world.get("/v1/models").bearer(key).refused().await, (401, "api_key_expired".into()));
}

#[on_each_database]
async fn default_key_has_all_permissions_and_no_restrictions(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/api-keys", place.project_path());
    let made = world.post(&path, &json!({"name": "Plain"})).bearer(&ada.access_token).data().await;
    for Field { place, default, .. } in fields::all() {
        assert_eq!(made.pointer(place), Some(&default.unwrap_or(json!("Plain"))), "{place}");
    }
    assert_eq!(made["expires_at"], json!(null));
    let again = world.post(&path, &json!({"name": "pLAIN"})).bearer(&ada.access_token).refused().await;
    assert_eq!(again, (409, "name_taken".into()));
}

#[on_each_database]
async fn invalid_keys_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let path = format!("{}/api-keys", place.project_path());
    let mut cases = Vec::new();
    for field in fields::all() {
        cases.extend(field.invalid.iter().map(|(value, rest)| (field.body(value), field.detail(rest))));
    }
    let others = [
        (json!({"expires_at": START}), "expires_at in_the_past"),
        (json!({"expires_at": "tomorrow"}), "expires_at invalid_timestamp"),
        (json!({"restrictions": {"rate_limits": 5}}), "restrictions.rate_limits unknown_field"),
        (json!({"restriction": {"rate_limit": 5}}), "restriction unknown_field"),
    ];
    cases.extend(others.map(|(body, detail)| (body, detail.to_owned())));
    for (mut body, detail) in cases {
        body["name"] = json!("x");
        let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "invalid_request"),
            "{body}: {}",
            answer.text
        );
        let details = answer.details();
        assert!(details.iter().any(|d| d.starts_with(&detail)), "{body}: {details:?}");
    }
    let body = json!({"expires_at": START, "restrictions": {"models": ["gpt-9"], "rate_limit": 0}, "permisions": []});
    let answer = world.post(&path, &body).bearer(&ada.access_token).send().await;
    assert_eq!(answer.details().len(), 5, "all mistakes are reported: {}", answer.text);
    assert!(answer.text.contains("did you mean `permissions`?"));
    assert_eq!(world.get(&path).bearer(&ada.access_token).data().await["total"], 0);
}

#[on_each_database]
async fn key_acts_for_its_creator_inside_its_own_project(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let other = world.place(&ada, "Other").await;
    let sibling = world.project(&ada, &place.organization, "Sibling").await;
    let (key_id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let status = async |path: &str| world.get(path).bearer(&key).send().await.status;
    assert_eq!(status(&place.organization_path()).await, 200);
    assert_eq!(status(&place.project_path()).await, 200);
    assert_eq!(status(&format!("{}/api-keys/{key_id}", place.project_path())).await, 200);
    assert_eq!(status(&other.organization_path()).await, 403);
    assert_eq!(status(&format!("/v1/organizations/{}/projects/{sibling}", place.organization)).await, 403);
    assert_eq!(
        status(&format!("/v1/organizations/{}/projects/{}", other.organization, place.project)).await,
        404
    );
    let organizations = world.get("/v1/organizations").bearer(&key).data().await;
    assert_eq!(
        (organizations["total"].clone(), organizations["organizations"][0]["name"].clone()),
        (json!(1), json!("Acme"))
    );
    let path = format!("/v1/organizations/{}/projects", place.organization);
    assert_eq!(world.get(&path).bearer(&key).data().await["total"], 1);
    world.post(&path, &json!({"name": "By key"})).bearer(&key).data().await;
    let refused = world.post("/v1/organizations", &json!({"name": "x"})).bearer(&key).refused().await;
    assert_eq!(refused, (403, "outside_api_key_scope".into()));
    assert_eq!(world.get("/v1/auth/me").bearer(&key).refused().await, (401, "invalid_access_token".into()));
}

#[on_each_database]
async fn restrictions_hold_on_every_use(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"name": "k", "restrictions": {"allowed_ips": ["192.0.2.0/24"], "rate_limit": 2}});
    let (_, key) = world.key(&ada, &place, &body).await;
    assert_eq!(world.get("/v1/models").bearer(&key).refused().await, (403, "ip_not_allowed".into()));
    // No proxy is trusted here, so the header is ignored.
    let spoofed = world.get("/v1/models").bearer(&key).header("x-forwarded-for", "192.0.2.1").refused().await;
    assert_eq!(spoofed, (403, "ip_not_allowed".into()));
    for _ in 0..2 {
        world.get(&place.project_path()).bearer(&key).from("192.0.2.1").data().await;
    }
    world.get("/v1/models").bearer(&key).from("192.0.2.1").bare().await;
    let answer = world.get(&place.project_path()).bearer(&key).from("192.0.2.1").send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
    assert_eq!((answer.header("retry-after"), answer.header("retry-after-ms")), ("30", "30000"));
    world.clock.advance_ms(30_000);
    world.get(&place.project_path()).bearer(&key).from("192.0.2.1").data().await;
}

#[on_each_database(&[("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.0/8")])]
async fn address_restriction_uses_the_trusted_proxys_header(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"name": "k", "restrictions": {"allowed_ips": ["192.0.2.1"]}});
    let (_, key) = world.key(&ada, &place, &body).await;
    let from = async |hops: &str| {
        world.get("/v1/models").bearer(&key).header("x-forwarded-for", hops).send().await.status
    };
    assert_eq!(from("192.0.2.1").await, 200);
    assert_eq!(from("192.0.2.1, 127.0.0.9").await, 200);
    assert_eq!(from("192.0.2.1, 198.51.100.7").await, 403);
}

#[on_each_database]
fn configuration_limits_what_keys_may_manage(database: Database) {
    for (management, read, write) in [("read", 200, 403), ("none", 403, 403)] {
        database.run(&[("TOLLKEEPER_API_KEYS__MANAGEMENT", management)], async |world| {
            let ada = world.user("ada").await;
            let place = world.place(&ada, "Acme").await;
            let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
            assert_eq!(world.get(&place.project_path()).bearer(&key).send().await.status, read);
            let path = format!("{}/api-keys", place.project_path());
            assert_eq!(world.post(&path, &json!({"name": "x"})).bearer(&key).send().await.status, write);
            world.get("/v1/models").bearer(&key).bare().await;
        });
    }
}

#[on_each_database]
async fn cached_key_and_malformed_key_cost_no_query(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    world.get("/v1/models").bearer(&key).bare().await;
    let before = world.app.db.statement_count();
    for _ in 0..10 {
        world.get("/v1/models").bearer(&key).bare().await;
    }
    let mut wrong = key.clone();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    for garbage in ["tk_", "tk_short", wrong.as_str(), &format!("tk_{}", "a".repeat(4000))] {
        assert_eq!(world.get("/v1/models").bearer(garbage).refused().await, (401, "invalid_api_key".into()));
    }
    assert_eq!(world.app.db.statement_count(), before);
    // Many simultaneous calls with a well-formed key that doesn't exist cause one query.
    let unknown = tollkeeper::keys::secret::ApiKeySecret::generate("tk_", &world.app.random);
    let calls = (0..16).map(|_| world.get("/v1/models").bearer(unknown.expose()).refused());
    for refused in futures_util::future::join_all(calls).await {
        assert_eq!(refused, (401, "invalid_api_key".into()));
    }
    assert_eq!(world.app.db.statement_count(), before + 1);
    // A known key stays cached as long as the feed is read, and an unknown key for a second.
    world.clock.advance_ms(1_000);
    world.get("/v1/models").bearer(&key).bare().await;
    assert_eq!(world.app.db.statement_count(), before + 1);
    world.get("/v1/models").bearer(unknown.expose()).refused().await;
    world.get("/v1/models").bearer(unknown.expose()).refused().await;
    assert_eq!(world.app.db.statement_count(), before + 2);
}
