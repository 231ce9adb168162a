//! Checks every route with every kind of caller and target against a readable golden table.
//!
//! `TOLLKEEPER_TEST_BLESS=1 cargo test --test http access::matrix` rewrites the table. Review its diff like
//! any other change of permissions. The rows come from the table of routes, so a new route fails until it is
//! in the golden file.

pub mod scene;
pub mod table;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::api::routes::{self, Route};
use tollkeeper::ids::{ApiKeyId, SessionId};
use tollkeeper::web::route::Listener;

use scene::{Caller, Member, NamedKey, NamedSession, Scene, Target};
use support::http::Call;
use support::stripe::with_payments;
use support::world::{World, insert_session};
use support::{Database, on_each_database};
use table::{Row, Table};

const GOLDEN: &str = "tests/http/access/matrix.txt";

#[on_each_database]
fn access_matrix(database: Database) {
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    let bless = std::env::var_os("TOLLKEEPER_TEST_BLESS").is_some();
    // Rate limits count all keys of a user together, and many callers here are keys of one owner.
    with_payments(database, &[("TOLLKEEPER_LIMITS__ENABLED", "false")], async |world| {
        let scene = Scene::new(&world).await;
        let mut table = Table::new(&scene.callers, table::HOW_TO_READ, table::PLACES);
        for route in routes::table() {
            let mut rows = Vec::new();
            for target in scene.targets(route.path) {
                rows.push(Row {
                    place: target.title,
                    statuses: statuses(&world, &scene, &route, &target).await,
                });
            }
            table.add(&route, rows);
        }
        let found = table.render();
        if bless {
            std::fs::write(GOLDEN, &found).unwrap();
        } else if found != golden {
            let wrong: Vec<_> = found.lines().filter(|line| !golden.contains(line)).collect();
            panic!("on {}, these lines differ from {GOLDEN}:\n{}", world.backend, wrong.join("\n"));
        }
    });
}

/// Returns `true` if a successful call of the route removes something that the next caller needs.
fn takes_away(route: &Route) -> bool {
    route.method == Method::DELETE || route.path.ends_with("/end-rotation")
}

/// Returns `true` if a successful call of the route opens a page of Stripe, which works for one caller at a
/// time.
fn opens_page(route: &Route) -> bool {
    route.path.ends_with("/payment-method")
}

/// Returns the status that each caller gets. Restores the database after calls that change it.
async fn statuses(world: &World, scene: &Scene, route: &Route, target: &Target) -> Vec<u16> {
    if !takes_away(route) && !opens_page(route) {
        let calls = scene.callers.iter().enumerate();
        return join_all(calls.map(|(number, caller)| status(world, route, caller, number, target))).await;
    }
    let mut statuses = Vec::new();
    for (number, caller) in scene.callers.iter().enumerate() {
        let status = status(world, route, caller, number, target).await;
        if status == 200 {
            scene::restore(world).await;
        }
        statuses.push(status);
    }
    statuses
}

async fn status(world: &World, route: &Route, caller: &Caller, number: usize, target: &Target) -> u16 {
    let member = match &target.member {
        Member::Caller => &caller.user_id,
        Member::Other(id) => id,
    };
    let key = match &target.key {
        NamedKey::Caller => &caller.key_id,
        NamedKey::Other(id) => id,
    };
    let is_session = caller.bearer.matches('.').count() == 2;
    let session = match &target.session {
        NamedSession::Caller if is_session => fresh_session(world, &caller.bearer).await.0.to_string(),
        NamedSession::Caller => "sess_of_nobody".to_owned(),
        NamedSession::Other(id) => id.clone(),
    };
    let path = route
        .path
        .replace("{organization_id}", &target.organization)
        .replace("{project_id}", &target.project)
        .replace("{key_id}", key)
        .replace("{member_id}", member)
        .replace("{reservation_id}", "res_01h2xcejqtf2nbrexx3vqjhp41")
        .replace("{invoice_id}", &target.invoice)
        .replace("{budget_id}", &target.budget)
        .replace("{payment_id}", &target.payment)
        .replace("{webhook_id}", &target.webhook)
        .replace("{delivery_id}", &target.delivery)
        .replace("{call_id}", &target.call)
        .replace("{session_id}", &session)
        .replace("{passkey_id}", "passkey_01h2xcejqtf2nbrexx3vqjhp41")
        .replace("{invitation_id}", &target.invitation)
        .replace("{connection_id}", "con_01h2xcejqtf2nbrexx3vqjhp41")
        .replace("{subject}", "accounts")
        .replace("{*model_id}", "svc-1");
    assert!(!path.contains('{'), "{path}: say here what this parameter stands for");
    let path = if route.path == scene::FORWARD_AUTH {
        let (organization, project) = (&target.organization, &target.project);
        format!("{path}?operation=files&organization_id={organization}&project_id={project}")
    } else {
        path
    };
    let router = if route.listener == Listener::Service { &world.service } else { &world.public };
    // A logout ends its session, so each such call gets a new session.
    let bearer = match route.path {
        "/v1/auth/logout" if is_session => fresh_session(world, &caller.bearer).await.1,
        _ => caller.bearer.clone(),
    };
    // Each call has its own address, because some limits count by address.
    let call =
        Call::new(router, route.method.clone(), &path).bearer(&bearer).from(&format!("10.0.0.{number}"));
    let call = if route.path == scene::FORWARD_AUTH && target.title != scene::NO_SERVICE_TOKEN {
        call.header("x-tollkeeper-service-token", world.app.api.service_token.expose())
    } else {
        call
    };
    let call = match (&route.method, route.content_type) {
        (&Method::GET | &Method::DELETE, _) => call,
        // An empty change still needs the role.
        (&Method::PUT, _) => call.json(&json!({})),
        // Refused because of its token, which also shows that the gate let the call through.
        (_, "text/html") => call.form(&[("token", "x"), ("password", "x"), ("password_confirmation", "x")]),
        _ => call.json(&body(route.path, &format!("{number} in {}", target.title))),
    };
    call.send().await.status
}

/// Opens another session of the bearer's user; returns its id and its token.
async fn fresh_session(world: &World, bearer: &str) -> (SessionId, String) {
    let keyset = world.app.accounts.keyset().await.unwrap();
    let (now, url) = (world.clock.now(), &world.app.api.public_url);
    let (kind, claims) = [TokenKind::Access, TokenKind::Refresh]
        .into_iter()
        .find_map(|kind| Some((kind, keyset.verify(bearer, kind, url, url, now).ok()?)))
        .unwrap();
    let session = SessionId::new(now, &world.app.random);
    let mut tx = world.app.db.write().await.unwrap();
    let ends = now.plus_ms(1_000_000);
    insert_session(&mut tx, session, claims.sub, now, ends).await;
    tx.commit().await.unwrap();
    (session, world.token(kind, claims.sub, session, 60).await)
}

/// Returns the request body for a route that takes one: a valid body if it does no harm, otherwise an empty
/// object. If the empty object is refused with 400, the gate let the call through.
fn body(path: &str, unique: &str) -> Value {
    let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
    match path {
        "/service/v1/authorize" => json!({"credential": "tk_x", "operation": "files"}),
        "/service/v1/usage" => {
            let unknown_key = ApiKeyId::parse("key_01h2xcejqtf2nbrexx3vqjhp41").unwrap().to_string();
            json!({"events": [{"id": "e", "source": "s", "time": "2026-03-10T00:00:00Z", "model": "svc-1",
                "api_key_id": unknown_key, "kind": "chat", "prompt_tokens": 1}]})
        }
        "/v1/auth/forgot-password" => json!({"email": format!("{}@example.com", unique.replace(' ', ""))}),
        _ if ends(&["/invitations"]) => {
            json!({"email": format!("{}@example.com", unique.replace([' ', ','], ""))})
        }
        _ if ends(&["/webhooks"]) => json!({"url": "https://example.com/events", "events": ["invoice.paid"]}),
        _ if ends(&["/{webhook_id}/redeliver"]) => json!({"since": "2026-01-01T00:00:00Z"}),
        _ if ends(&["/organizations", "/projects", "/api-keys", "/budgets"]) => json!({ "name": unique }),
        _ => json!({}),
    }
}
