//! Operators' commands while a server runs: rotating the signing key, reading the audit trail.

mod commands;
mod disabled;
mod first_account;
mod registration;
mod requirement;
mod walk;
mod webhooks;

use serde_json::json;
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::accounts::memory::signing_keys::SigningKeys;
use tollkeeper::clock::{DAY_MS, HOUR_MS};
use tollkeeper::db::sql;
use tollkeeper::trail::{self, Filter};

use support::on_each_database;
use support::world::{PASSWORD, World};

async fn rotate(world: &World) -> String {
    let mut tx = world.app.db.write().await.unwrap();
    let kid = SigningKeys::rotate(&world.app.accounts, &mut tx).await.unwrap();
    tx.commit().await.unwrap();
    kid
}

#[on_each_database]
async fn rotated_signing_key_keeps_sessions(world: World) {
    let ada = world.user("ada").await;
    let kids = async || {
        let jwks = world.get("/.well-known/jwks.json").bare().await;
        let keys = jwks["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = kids().await;
    assert_eq!(before.len(), 1);
    world.clock.advance_ms(1);
    let new = rotate(&world).await;
    // A running server signs with the new key within five seconds.
    world.clock.advance_ms(5_000);
    assert_eq!(kids().await, [new.clone(), before[0].clone()]);
    let signed = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
    assert_ne!(signed.split('.').next(), ada.access_token.split('.').next(), "another kid");
    for token in [&ada.access_token, &signed] {
        world.get("/v1/auth/me").bearer(token).data().await;
    }
    let answer = world.get("/.well-known/jwks.json").send().await;
    assert_eq!(answer.header("cache-control"), "public, max-age=300");
    // The old key is removed when the last token that it signed has expired.
    world.clock.advance_ms(30 * DAY_MS);
    assert_eq!(kids().await.len(), 2);
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(kids().await, [new]);
}

#[on_each_database]
async fn token_signed_by_another_replicas_new_key_is_accepted_at_once(world: World) {
    let ada = world.user("ada").await;
    let before = world.app.accounts.keyset().await.unwrap();
    rotate(&world).await;
    // This replica still caches the old keyset; for a token with an unknown key it reads the keyset again.
    let fresh = SigningKeys::new();
    let keyset = fresh.keyset(&world.app.accounts).await.unwrap();
    assert_ne!(keyset.active_kid(), before.active_kid());
    let url = world.app.api.public_url.clone();
    let now = world.clock.now();
    let claims = before.verify(&ada.access_token, TokenKind::Access, &url, &url, now).unwrap();
    let token = keyset.sign(TokenKind::Access, &claims);
    world.get("/v1/auth/me").bearer(&token).data().await;
}

#[on_each_database]
async fn cached_token_check_still_expires(world: World) {
    let ada = world.user("ada").await;
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    // A check cached for one use doesn't count for another.
    let refused = world.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.access_token).refused().await;
    assert_eq!(refused.0, 401);
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).refused().await.0, 401);
    world.clock.advance_ms(-1_000);
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    assert_eq!(world.get("/v1/auth/me").bearer(&ada.access_token).refused().await.0, 401);
}

#[on_each_database]
async fn tokens_work_while_the_keys_cannot_be_read(world: World) {
    let ada = world.user("ada").await;
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    let rename = async |text: &str| {
        let mut tx = world.app.db.write().await.unwrap();
        sql(text.to_owned()).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    rename("ALTER TABLE signing_keys RENAME TO mislaid").await;
    world.clock.advance_ms(60_000);
    // Another token, because the check of the first one is cached.
    let token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
    world.get("/v1/auth/me").bearer(&token).data().await;
    rename("ALTER TABLE mislaid RENAME TO signing_keys").await;
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
}

#[on_each_database]
async fn every_change_is_audited(world: World) {
    let register = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
    let user =
        world.post("/v1/auth/register", &register).from("192.0.2.7").data().await["user"]["id"].clone();
    let verify = json!({"token": world.mailed_token("eve@example.com").await});
    world.post("/v1/auth/verify-email", &verify).data().await;
    let login = json!({"email": "eve@example.com", "password": PASSWORD});
    let token =
        world.post("/v1/auth/login", &login).data().await["access_token"].as_str().unwrap().to_owned();
    let made = world.post("/v1/organizations", &json!({"name": "Acme"})).bearer(&token).data().await;
    let organization = made["id"].as_str().unwrap();
    let path = format!("/v1/organizations/{organization}/projects");
    let project = world.post(&path, &json!({"name": "Shop"})).bearer(&token).data().await["id"].clone();
    let path = format!("{path}/{}/api-keys", project.as_str().unwrap());
    let key = world.post(&path, &json!({"name": "k"})).bearer(&token).data().await;
    let change = json!({"current_password": PASSWORD, "new_password": "Violet-Kettle-Orbit-9",
        "new_password_confirmation": "Violet-Kettle-Orbit-9"});
    world.post("/v1/auth/change-password", &change).bearer(&token).data().await;
    world.post("/v1/auth/logout", &json!({})).bearer(&token).data().await;
    // Refused calls leave no entry.
    world.post("/v1/organizations", &json!({})).bearer(&token).send().await;

    let all = Filter { limit: 100, ..Filter::default() };
    let mut tx = world.app.db.read().await.unwrap();
    let entries = trail::list(&mut tx, &all).await.unwrap();
    let mut actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    actions.sort_unstable();
    let expected = [
        "api_key.created",
        "organization.created",
        "project.created",
        "session.ended",
        "session.started",
        "signing_key.created",
        "user.email_verified",
        "user.password_changed",
        "user.registered",
    ];
    assert_eq!(actions, expected);
    let entry = |action: &str| entries.iter().find(|entry| entry.action == action).unwrap();
    let registered = entry("user.registered");
    assert_eq!((registered.actor.as_str(), registered.address.as_deref()), ("anonymous", Some("192.0.2.7")));
    assert_eq!(registered.target, user.as_str().unwrap());
    assert!(registered.request_id.as_ref().unwrap().starts_with("req_"));
    // The server created its first key at its start, before the first request.
    let first_key = entry("signing_key.created");
    let kid = world.app.accounts.keyset().await.unwrap().active_kid().to_owned();
    assert_eq!((first_key.actor.as_str(), &first_key.target), ("system", &kid));
    assert_eq!((&first_key.address, &first_key.request_id), (&None, &None));
    let created = entry("api_key.created");
    assert_eq!(json!([created.actor, created.target]), json!([user, key["id"]]));
    assert_eq!(created.organization_id.unwrap().to_string(), organization);
    let text = serde_json::to_string(&entries).unwrap();
    for secret in [PASSWORD, "Violet-Kettle-Orbit-9", &token, key["key"].as_str().unwrap()] {
        assert!(!text.contains(secret));
    }

    let count = async |filter: Filter| {
        let mut tx = world.app.db.read().await.unwrap();
        trail::list(&mut tx, &filter).await.unwrap().len()
    };
    assert_eq!(count(Filter { limit: 3, ..Filter::default() }).await, 3);
    assert_eq!(count(Filter { organization_id: organization.into(), ..all.clone() }).await, 3);
    assert_eq!(count(Filter { actor: user.as_str().unwrap().into(), ..all.clone() }).await, 7);
    assert_eq!(count(Filter { action: "session.started".into(), ..all.clone() }).await, 1);
    assert_eq!(count(Filter { until: Some(world.clock.now()), ..all.clone() }).await, 0);
    assert_eq!(count(Filter { since: Some(world.clock.now()), ..all.clone() }).await, 9);
    // A second start finds the key, and records nothing.
    world.app.accounts.signing_keys.load_or_create(&world.app.accounts).await.unwrap();
    assert_eq!(count(Filter { action: "signing_key.created".into(), ..all.clone() }).await, 1);
}
