//! `POST /service/v1/authorize`: rates of models, and users without a key.

use serde_json::{Value, json};
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::world::{Place, World};
use support::{Database, on_each_database};

const AUTHORIZE: &str = "/service/v1/authorize";

async fn ask(world: &World, credential: &str, model: &str) -> Value {
    let body = json!({"credential": credential, "operation": "chat", "reserve": false, "model": model});
    world.ask(AUTHORIZE, &body).bare().await
}

fn code(decision: &Value) -> (i64, &str) {
    (decision["status"].as_i64().unwrap(), decision["code"].as_str().unwrap_or(""))
}

#[on_each_database]
async fn model_rate_applies_to_an_organization(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    let sibling = world.project(&ada, &place.organization, "Sibling").await;
    let sibling = Place { organization: place.organization.clone(), project: sibling };
    let (_, one) = world.key(&ada, &place, &json!({"name": "one"})).await;
    let (_, two) = world.key(&ada, &sibling, &json!({"name": "two"})).await;
    let (_, far) = world.key(&ada, &other, &json!({"name": "far"})).await;
    for used in 1..=60 {
        let yes = ask(&world, if used % 2 == 0 { &one } else { &two }, "svc-1").await;
        let left =
            json!({"limit_requests": 60, "remaining_requests": 60 - used, "reset_requests_ms": 1_000 * used});
        assert_eq!(yes["limits"], json!({"api_key": null, "model": left}), "{used}");
    }
    for key in [&one, &two] {
        let no = ask(&world, key, "svc-1").await;
        assert_eq!(code(&no), (429, "model_rate_limited"));
        assert_eq!((&no["allowed"], &no["retry_after_ms"]), (&json!(false), &json!(1_000)));
        assert_eq!(no["limits"], json!({"api_key": null, "model": null}));
        assert_eq!(no["organization_id"], place.organization, "a refusal contains the organization");
    }
    // Another model and another organization have their own meters.
    assert_eq!(code(&ask(&world, &one, "svc-1-pro").await), (200, ""));
    assert_eq!(code(&ask(&world, &far, "svc-1").await), (200, ""));
    // The wait is exact.
    world.clock.advance_ms(999);
    assert_eq!(ask(&world, &one, "svc-1").await["retry_after_ms"], 1);
    world.clock.advance_ms(1);
    assert_eq!(code(&ask(&world, &one, "svc-1").await), (200, ""));
    assert_eq!(code(&ask(&world, &two, "svc-1").await), (429, "model_rate_limited"));
}

#[on_each_database]
async fn call_refused_by_one_rate_is_returned_to_the_other(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let slow = |name: &str, limit: i64| json!({"name": name, "restrictions": {"rate_limit": limit}});
    let (_, two) = world.key(&ada, &place, &slow("two", 2)).await;
    let (_, many) = world.key(&ada, &place, &slow("many", 100)).await;
    for _ in 0..2 {
        assert_eq!(code(&ask(&world, &two, "svc-1").await), (200, ""));
    }
    for _ in 0..5 {
        assert_eq!(code(&ask(&world, &two, "svc-1").await), (429, "rate_limited"));
    }
    for used in 1..=58 {
        let limits = ask(&world, &many, "svc-1").await["limits"].take();
        assert_eq!(
            limits["model"]["remaining_requests"],
            58 - used,
            "refusals by the key don't count against the rate"
        );
        assert_eq!(limits["api_key"]["remaining_requests"], 100 - used);
    }
    for _ in 0..5 {
        assert_eq!(code(&ask(&world, &many, "svc-1").await), (429, "model_rate_limited"));
    }
    let limits = ask(&world, &many, "svc-1-pro").await["limits"].take();
    let left = limits["api_key"]["remaining_requests"].as_i64().unwrap();
    // With shared rates, a call that is returned while a lease is renewed may stay counted. Without
    // returned calls, 36 were left.
    let least = if world.app.db.is_postgres() { 39 } else { 41 };
    assert!((least..=41).contains(&left), "refusals by the model don't count against the rate: {left}");
    let files = json!({"credential": many, "operation": "files"});
    assert_eq!(world.ask(AUTHORIZE, &files).bare().await["limits"]["model"], Value::Null);
}

#[on_each_database]
async fn cached_key_is_authorized_without_a_query(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body =
        json!({"name": "k", "restrictions": {"rate_limit": 100, "models": ["svc-1"], "max_tokens": 9}});
    let (_, key) = world.key(&ada, &place, &body).await;
    ask(&world, &key, "svc-1").await;
    let before = world.app.db.statement_count();
    for _ in 0..20 {
        assert_eq!(code(&ask(&world, &key, "svc-1").await), (200, ""));
    }
    let cost = world.app.db.statement_count() - before;
    // On PostgreSQL, its two rates are borrowed, a few requests at a time, with two statements per lease.
    let due = if world.backend == "sqlite" { 0 } else { 2 * (4 + 6) };
    assert!(cost <= due, "{}: {cost}", world.backend);
}

#[on_each_database]
fn user_calls_models_by_their_role_in_the_project(database: Database) {
    use OrganizationRole as O;
    use ProjectRole as P;
    database.run(&[], async |world| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let cases = [
            (None, None, false),
            (None, Some(P::Viewer), false),
            (None, Some(P::Developer), true),
            (None, Some(P::Admin), true),
            (None, Some(P::Owner), true),
            (Some(O::Member), None, false),
            (Some(O::Member), Some(P::Viewer), false),
            (Some(O::Member), Some(P::Developer), true),
            (Some(O::Admin), None, true),
            (Some(O::Owner), Some(P::Viewer), true),
        ];
        for (number, (in_organization, in_project, allowed)) in cases.into_iter().enumerate() {
            let user = world.user(&format!("who{number}")).await;
            if let Some(role) = in_organization {
                world.join_organization(&place, &user, role).await;
            }
            if let Some(role) = in_project {
                world.join_project(&place, &user, role).await;
            }
            let body = json!({"credential": user.access_token, "operation": "chat", "reserve": false, "model": "svc-1", "max_tokens": 7,
                "organization_id": place.organization, "project_id": place.project});
            let decision = world.ask(AUTHORIZE, &body).bare().await;
            let due = if allowed { (200, "") } else { (403, "insufficient_role") };
            assert_eq!(code(&decision), due, "{in_organization:?} {in_project:?}");
            if allowed {
                let identity = (&decision["user_id"], &decision["api_key_id"], &decision["project_id"]);
                assert_eq!(identity, (&json!(user.id.to_string()), &Value::Null, &json!(place.project)));
                assert_eq!(
                    (&decision["max_tokens"], &decision["limits"]["api_key"]),
                    (&json!(7), &Value::Null)
                );
                assert_eq!(decision["limits"]["model"]["limit_requests"], 60);
            }
        }
    });
}

#[on_each_database]
async fn access_token_needs_a_project_and_a_role(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    let stranger = world.user("eve").await;
    let call = json!({"credential": ada.access_token, "operation": "chat", "reserve": false, "model": "svc-1",
        "organization_id": place.organization, "project_id": place.project});
    let with = |fields: &[(&str, Value)]| {
        let mut call = call.clone();
        for (name, value) in fields {
            call[name] = value.clone();
        }
        call
    };
    let null = || Value::Null;
    let unknown = json!("org_01h2xcejqtf2nbrexx3vqjhp41");
    let expired = world.token(TokenKind::Access, ada.id, ada.session_id, 0).await;
    let cases = [
        (with(&[]), (200, "")),
        (with(&[("organization_id", null()), ("project_id", null())]), (400, "project_required")),
        (with(&[("project_id", null())]), (400, "project_required")),
        (with(&[("organization_id", null())]), (400, "project_required")),
        (with(&[("organization_id", unknown)]), (404, "organization_not_found")),
        (with(&[("organization_id", json!("acme"))]), (404, "organization_not_found")),
        (with(&[("project_id", json!("bot"))]), (404, "project_not_found")),
        (with(&[("project_id", json!(other.project))]), (404, "project_not_found")),
        (with(&[("credential", json!(stranger.access_token))]), (403, "insufficient_role")),
        (with(&[("credential", json!(ada.refresh_token))]), (401, "invalid_access_token")),
        (with(&[("credential", json!(expired)), ("project_id", null())]), (401, "invalid_access_token")),
        (with(&[("credential", json!("a.b.c"))]), (401, "invalid_access_token")),
        (with(&[("credential", json!("sk-somebody-else-s"))]), (401, "invalid_api_key")),
        (with(&[("model", json!("svc-embedding-1"))]), (404, "model_not_found")),
        (with(&[("max_tokens", json!(4_097))]), (400, "max_tokens_exceeded")),
    ];
    for (body, due) in cases {
        let decision = world.ask(AUTHORIZE, &body).bare().await;
        assert_eq!(code(&decision), due, "{body}");
    }
    // The end of a session ends its tokens.
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    assert_eq!(code(&world.ask(AUTHORIZE, &call).bare().await), (401, "invalid_access_token"));
}

#[on_each_database]
async fn key_works_in_its_own_project_only(world: World) {
    let ada = world.user("ada").await;
    let (place, other) = (world.place(&ada, "Acme").await, world.place(&ada, "Other").await);
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let outside = (403, "outside_api_key_scope");
    let cases = [
        (json!(null), json!(null), (200, "")),
        (json!(place.organization), json!(place.project), (200, "")),
        (json!(null), json!(place.project), (200, "")),
        (json!(other.organization), json!(null), outside),
        (json!(place.organization), json!(other.project), outside),
        (json!("acme"), json!(null), outside),
    ];
    for (organization, project, due) in cases {
        let body = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1",
            "organization_id": organization, "project_id": project});
        let decision = world.ask(AUTHORIZE, &body).bare().await;
        assert_eq!(code(&decision), due, "{body}");
        if due.0 == 200 {
            assert_eq!(decision["api_key_id"], id);
        }
    }
}
