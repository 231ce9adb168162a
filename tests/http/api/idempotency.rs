//! `Idempotency-Key`: a repeated request gets its first answer again (docs/contract/README.md#idempotency).

mod claims;
mod refusals;
mod secrets;

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::{DAY_MS, HOUR_MS};
use tollkeeper::db::sql;
use tollkeeper::jobs::sweep::sweep;
use tollkeeper::tenants::roles::OrganizationRole;

use support::documented;
use support::http::{Answer, Call};
use support::on_each_database;
use support::world::{Place, TestUser, World};

/// A request of an operation that takes a key.
#[derive(Clone, Debug)]
struct Request {
    operation: String,
    path: String,
    /// Null if the operation reads no body.
    body: Value,
}

impl Request {
    fn call(&self, world: &World, token: &str) -> Call {
        let call = world.call(Method::POST, &self.path).bearer(token);
        if self.body.is_null() { call } else { call.json(&self.body) }
    }

    fn keyed(&self, world: &World, token: &str, key: &str) -> Call {
        self.call(world, token).header("idempotency-key", key)
    }

    async fn send(&self, world: &World, token: &str, key: &str) -> Answer {
        self.keyed(world, token, key).send().await
    }
}

/// An organization whose owner can call each of the operations.
struct Scene {
    owner: TestUser,
    place: Place,
    requests: Vec<Request>,
}

/// Returns the `operationId` and path of each operation that takes a key.
fn operations() -> Vec<(String, String)> {
    let document = documented::document();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap();
            if parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key") {
                assert_eq!(method, "post");
                if operation["operationId"] == "create_payment" {
                    // This operation needs Stripe: tests/money/payments/buying.rs repeats it.
                    continue;
                }
                found.push((operation["operationId"].as_str().unwrap().to_owned(), path.clone()));
            }
        }
    }
    assert_eq!(found.len(), 14, "docs/contract/README.md#idempotency lists them");
    found
}

/// Creates a scene; its names contain `tag`.
async fn scene(world: &World, tag: &str) -> Scene {
    let owner = world.user(&format!("owner{tag}")).await;
    let guest = world.user(&format!("guest{tag}")).await;
    let place = world.place(&owner, &format!("Acme {tag}")).await;
    world.join_organization(&place, &guest, OrganizationRole::Member).await;
    let token = &owner.access_token;
    let (api_key, _) = world.key(&owner, &place, &json!({"name": "rotated"})).await;
    let rotate = format!("{}/api-keys/{api_key}/rotate", place.project_path());
    world.post(&rotate, &json!({})).bearer(token).data().await;
    let invite = format!("{}/invitations", place.organization_path());
    let invited = json!({"email": format!("invited{tag}@example.com")});
    let invitation = world.post(&invite, &invited).bearer(token).data().await;
    let webhooks = format!("{}/webhooks", place.organization_path());
    let made = json!({"url": "https://example.com/events", "events": ["invoice.paid"]});
    let webhook = world.post(&webhooks, &made).bearer(token).data().await;
    let webhook_id = webhook["id"].as_str().unwrap();
    let test = format!("{webhooks}/{webhook_id}/test");
    let tested = world.call(Method::POST, &test).bearer(token).data().await;
    let request = |(operation, path): (String, String)| {
        let path = path
            .replace("{organization_id}", &place.organization)
            .replace("{project_id}", &place.project)
            .replace("{key_id}", &api_key)
            .replace("{webhook_id}", webhook_id)
            .replace("{delivery_id}", tested["delivery_id"].as_str().unwrap())
            .replace("{invitation_id}", invitation["invitation_id"].as_str().unwrap());
        let body = match operation.as_str() {
            "create_organization" => json!({"name": format!("Made {tag}")}),
            "create_invitation" => json!({"email": format!("new{tag}@example.com")}),
            "create_project" | "create_api_key" => {
                json!({"name": "Made"})
            }
            "create_project_member" => {
                json!({"user_id": guest.id.to_string(), "role": "viewer"})
            }
            "create_budget" => {
                json!({"name": "Made", "scope": "organization", "period": "day", "limit": 1})
            }
            "rotate_api_key" => json!({"grace_seconds": 60}),
            "create_webhook" => made.clone(),
            "redeliver_failed_events" => json!({"since": "2026-03-01T00:00:00Z"}),
            "resend_invitation" | "end_api_key_rotation" => Value::Null,
            "rotate_webhook" | "test_webhook" | "redeliver_event" => Value::Null,
            other => panic!("{other}: say here what its body is"),
        };
        Request { operation, path, body }
    };
    let requests = operations().into_iter().map(request).collect();
    Scene { owner, place, requests }
}

impl Scene {
    /// Returns the request of this operation.
    fn request(&self, operation: &str) -> &Request {
        self.requests.iter().find(|request| request.operation == operation).unwrap()
    }
}

/// Returns the number of rows of each table that the operations write.
async fn counts(world: &World) -> Vec<i64> {
    let tables = [
        "organizations",
        "projects",
        "project_members",
        "api_keys",
        "api_key_secrets",
        "invitations",
        "budgets",
        "webhooks",
        "webhook_deliveries",
        "outbox",
        "audit_log",
    ];
    let mut tx = world.app.db.read().await.unwrap();
    let mut counts = Vec::new();
    for table in tables {
        let (rows,): (i64,) = sql(format!("SELECT COUNT(*) FROM {table}")).one(&mut tx).await.unwrap();
        counts.push(rows);
    }
    counts
}

async fn number(world: &World, text: &'static str) -> i64 {
    let (number,): (i64,) = sql(text).one(&mut world.app.db.read().await.unwrap()).await.unwrap();
    number
}

async fn change(world: &World, text: impl Into<String>) {
    let mut tx = world.app.db.write().await.unwrap();
    sql(text.into()).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Checks that an answer is a replay of the first answer.
fn assert_repeats(answer: &Answer, first: &Answer, what: &str) {
    assert_eq!((answer.status, &answer.text), (first.status, &first.text), "{what}");
    assert_eq!(answer.header("idempotency-replayed"), "true", "{what}");
    assert_ne!(answer.header("x-request-id"), first.header("x-request-id"), "{what}");
    let rest = |answer: &Answer| {
        let mut headers = answer.headers.clone();
        headers.remove("idempotency-replayed");
        headers.remove("x-request-id");
        headers
    };
    assert_eq!(rest(answer), rest(first), "{what}");
}

fn is_reused(answer: &Answer) -> bool {
    let details = ["idempotency-key idempotency_key_reused".to_owned()];
    answer.code() == "idempotency_key_reused"
        && (answer.status, answer.details().as_slice()) == (409, &details)
        && (answer.header("x-should-retry"), answer.header("retry-after")) == ("false", "")
        && answer.header("idempotency-replayed").is_empty()
}

#[on_each_database]
async fn repeated_request_is_done_once(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    for request in &scene.requests {
        let what = format!("{} on {}", request.operation, world.backend);
        let before = counts(&world).await;
        let first = request.send(&world, token, "key").await;
        assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{what}: {}", first.text);
        let after = counts(&world).await;
        assert_ne!(before, after, "{what}");
        for _ in 0..3 {
            assert_repeats(&request.send(&world, token, "key").await, &first, &what);
        }
        assert_eq!(counts(&world).await, after, "{what}");

        // A request with another query or body isn't the same request.
        let mut other = request.clone();
        other.path += "?a=b";
        let other = other.send(&world, token, "key").await;
        assert!(is_reused(&other), "{what}: {}", other.text);
        if !request.body.is_null() {
            let mut other = request.clone();
            other.body["description"] = Value::Null;
            let answer = other.send(&world, token, "key").await;
            // An invalid body is refused as usual.
            let is_invalid = answer.status == 400 && answer.header("idempotency-replayed").is_empty();
            assert!(is_reused(&answer) || is_invalid, "{what}: {}", answer.text);
            let spaced = request.call(&world, token).header("idempotency-key", "key");
            let spaced = spaced.raw(format!(" {}", request.body)).send().await;
            assert!(is_reused(&spaced), "{what}: {}", spaced.text);
        }
        assert_eq!(counts(&world).await, after, "{what}");
        assert_repeats(&request.send(&world, token, "key").await, &first, &what);

        // With another key or without a key, the operation runs again, or is refused because it was already
        // done.
        for call in [request.keyed(&world, token, "KEY"), request.call(&world, token)] {
            let before = counts(&world).await;
            let again = call.send().await;
            let is_done = counts(&world).await != before;
            assert_eq!((again.status == 200, again.header("idempotency-replayed")), (is_done, ""), "{what}");
        }
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys WHERE answer IS NULL").await, 0);
}

#[on_each_database]
async fn answer_is_kept_for_a_day(world: World) {
    let scene = scene(&world, "a").await;
    let rotate = scene.request("rotate_api_key");
    let first = rotate.send(&world, &scene.owner.access_token, "key").await;
    world.clock.advance_ms(HOUR_MS);
    let token = async || world.token(TokenKind::Access, scene.owner.id, scene.owner.session_id, 3600).await;
    let later = rotate.send(&world, &token().await, "later").await;
    assert_eq!(later.status, 200);
    world.clock.advance_ms(DAY_MS - HOUR_MS - 1);
    sweep(&world.app).await.unwrap();
    assert_repeats(&rotate.send(&world, &token().await, "key").await, &first, "a day");

    world.clock.advance_ms(1);
    sweep(&world.app).await.unwrap();
    let again = rotate.send(&world, &token().await, "key").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, ""));
    assert_ne!(again.json()["data"]["key"], first.json()["data"]["key"]);
    assert_repeats(&rotate.send(&world, &token().await, "later").await, &later, "23 hours");
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, 2);
}

#[on_each_database]
async fn old_answers_are_removed_in_slices(world: World) {
    let series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1201)";
    let bytes = if world.app.db.is_postgres() { "AS BYTEA" } else { "AS BLOB" };
    let rows = format!(
        "{series} INSERT INTO idempotency_keys (id, content_hash, holder, leased_until, created_at)
             SELECT CAST('k' || CAST(i AS TEXT) {bytes}), CAST('x' {bytes}), 'x', 0, i FROM n"
    );
    change(&world, rows).await;
    let scene = scene(&world, "a").await;
    let rotate = scene.request("rotate_api_key");
    let first = rotate.send(&world, &scene.owner.access_token, "key").await;
    sweep(&world.app).await.unwrap();
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, 1);
    assert_repeats(&rotate.send(&world, &scene.owner.access_token, "key").await, &first, "the newest");
}

#[on_each_database]
async fn key_belongs_to_its_caller_and_path(world: World) {
    let scene = scene(&world, "a").await;
    let (owner, place) = (&scene.owner, &scene.place);
    let bob = world.user("bob").await;
    world.join_organization(place, &bob, OrganizationRole::Owner).await;
    let (_, by_owner) = world.key(owner, place, &json!({"name": "caller 1"})).await;
    let (_, by_owner_too) = world.key(owner, place, &json!({"name": "caller 2"})).await;
    let create = scene.request("create_api_key");
    let mut secrets = BTreeSet::new();
    // A key and its creator are different callers, and so are two keys of one user.
    for (number, token) in
        [&owner.access_token, &bob.access_token, &by_owner, &by_owner_too].into_iter().enumerate()
    {
        let mine = Request { body: json!({"name": format!("made {number}")}), ..create.clone() };
        let first = mine.send(&world, token, "same").await;
        assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.text);
        secrets.insert(first.json()["data"]["key"].to_string());
        assert_repeats(&mine.send(&world, token, "same").await, &first, "its caller");
    }
    assert_eq!(secrets.len(), 4);
    // Another session of the same user is the same caller.
    let again = world.session(owner.id).await;
    let mine = Request { body: json!({"name": "made 0"}), ..create.clone() };
    let answer = mine.send(&world, &again.access_token, "same").await;
    assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, "true"));

    let other = world.project(owner, &place.organization, "Other").await;
    let path = format!("{}/projects/{other}/api-keys", place.organization_path());
    let elsewhere = Request { path, body: json!({"name": "made 0"}), ..create.clone() };
    let first = elsewhere.send(&world, &owner.access_token, "same").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""));
    assert!(secrets.insert(first.json()["data"]["key"].to_string()));
}

#[on_each_database]
async fn other_operations_ignore_the_header(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    // Even a malformed key isn't refused.
    for key in ["key", "not valid"] {
        let path = scene.place.organization_path();
        for _ in 0..2 {
            let answer = world.get(&path).bearer(token).header("idempotency-key", key).send().await;
            assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, ""));
            let put = world.call(Method::PUT, &path).bearer(token).json(&json!({}));
            let put = put.header("idempotency-key", key).send().await;
            assert_eq!((put.status, put.header("idempotency-replayed")), (200, ""));
        }
        let body = json!({"email": format!("{}@example.com", key.len()), "password": "Violet-Kettle-Orbit-9",
                          "username": format!("user{}", key.len())});
        let register = || world.post("/v1/auth/register", &body).header("idempotency-key", key);
        assert_eq!(register().send().await.status, 200);
        assert_eq!(register().refused().await.0, 409);
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, 0);
}
