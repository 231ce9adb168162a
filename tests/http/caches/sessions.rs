//! The session cache: neither a repeated token nor an ended session causes a query.

use serde_json::json;
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::accounts::store::{sessions, users};
use tollkeeper::clock::{DAY_MS, SECOND_MS};
use tollkeeper::cluster::changes;
use tollkeeper::db::{Tx, sql};
use tollkeeper::kernel::networks::Network;

use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{PASSWORD, TestUser, World};

const NEW_PASSWORD: &str = "Violet-Kettle-9-Harbour";

async fn status_here(world: &World, token: &str) -> u16 {
    world.get("/v1/auth/me").bearer(token).send().await.status
}

async fn status_there(replica: &Twin, token: &str) -> u16 {
    replica.get("/v1/auth/me").bearer(token).send().await.status
}

/// Starts another session of the same user.
async fn second_session(world: &World, user: &TestUser) -> String {
    let body = json!({"email": "ada@example.com", "password": PASSWORD});
    let data = world.post("/v1/auth/login", &body).data().await;
    assert_eq!(data["user"]["id"], user.id.to_string());
    data["access_token"].as_str().unwrap().to_owned()
}

#[on_each_database]
async fn repeated_token_costs_no_query(world: World) {
    let ada = world.user("ada").await;
    world.get("/v1/models").bearer(&ada.access_token).bare().await;
    let before = world.app.db.statement_count();
    for _ in 0..10 {
        world.get("/v1/models").bearer(&ada.access_token).bare().await;
    }
    assert_eq!(world.app.db.statement_count(), before);
    // A burst with an uncached session costs one query.
    let bob = world.user("bob").await;
    let before = world.app.db.statement_count();
    let calls = (0..16).map(|_| world.get("/v1/models").bearer(&bob.access_token).bare());
    futures_util::future::join_all(calls).await;
    assert_eq!(world.app.db.statement_count(), before + 1);
}

#[on_each_database]
async fn logout_applies_at_once_locally_and_elsewhere_after_the_feed_is_read(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let token = &ada.access_token;
    assert_eq!((status_here(&world, token).await, status_there(&replica, token).await), (200, 200));
    world.post("/v1/auth/logout", &json!({})).bearer(token).data().await;
    assert_eq!(status_here(&world, token).await, 401);
    // The replica caches the session until its job reads the feed, within a fifth of a second.
    assert_eq!(status_there(&replica, token).await, 200);
    settle(&replica).await;
    assert_eq!(status_there(&replica, token).await, 401);
    let path = "/v1/auth/refresh-token";
    assert_eq!(world.post(path, &json!({})).bearer(&ada.refresh_token).send().await.status, 401);
    assert_eq!(replica.post(path, &json!({})).bearer(&ada.refresh_token).send().await.status, 401);
}

#[on_each_database]
async fn refresh_token_is_never_cached(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let refresh =
        async || replica.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token).send().await;
    assert_eq!(refresh().await.status, 200);
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    assert_eq!(refresh().await.status, 401, "without waiting for the feed");
}

#[on_each_database]
async fn password_change_ends_the_other_sessions_everywhere(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let other = second_session(&world, &ada).await;
    for token in [&ada.access_token, &other] {
        assert_eq!((status_here(&world, token).await, status_there(&replica, token).await), (200, 200));
    }
    let body = json!({"current_password": PASSWORD, "new_password": NEW_PASSWORD,
                      "new_password_confirmation": NEW_PASSWORD});
    world.post("/v1/auth/change-password", &body).bearer(&ada.access_token).data().await;
    assert_eq!((status_here(&world, &ada.access_token).await, status_here(&world, &other).await), (200, 401));
    settle(&replica).await;
    assert_eq!(
        (status_there(&replica, &ada.access_token).await, status_there(&replica, &other).await),
        (200, 401)
    );
}

#[on_each_database]
async fn password_reset_ends_every_session_everywhere(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let other = second_session(&world, &ada).await;
    let bob = world.user("bob").await;
    for token in [&ada.access_token, &other, &bob.access_token] {
        assert_eq!((status_here(&world, token).await, status_there(&replica, token).await), (200, 200));
    }
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    let token = world.mailed_token("ada@example.com").await;
    let body = json!({"token": token, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
    world.post("/v1/auth/reset-password", &body).data().await;
    for token in [&ada.access_token, &other] {
        assert_eq!(status_here(&world, token).await, 401);
    }
    settle(&replica).await;
    for token in [&ada.access_token, &other] {
        assert_eq!(status_there(&replica, token).await, 401);
    }
    assert_eq!(
        (status_here(&world, &bob.access_token).await, status_there(&replica, &bob.access_token).await),
        (200, 200)
    );
}

/// Runs `write` in a transaction; returns the number of its changes in the feed.
async fn changes_of(world: &World, write: impl AsyncFnOnce(&mut Tx)) -> i64 {
    let newest = async || changes::newest(&mut world.app.db.read().await.unwrap()).await.unwrap();
    let before = newest().await;
    let mut tx = world.app.db.write().await.unwrap();
    write(&mut tx).await;
    tx.commit().await.unwrap();
    newest().await - before
}

#[on_each_database]
async fn every_function_that_ends_sessions_announces_it(world: World) {
    let ada = world.user("ada").await;
    let now = world.clock.now();
    let mut others = Vec::new();
    for _ in 0..6 {
        others.push(world.session(ada.id).await);
    }
    for session in &others {
        assert_eq!(status_here(&world, &session.access_token).await, 200, "cached from here on");
    }
    let mut tx = world.app.db.read().await.unwrap();
    let found = users::credentials_by_id(&mut tx, ada.id, Network::Unknown).await.unwrap();
    let hash = found.unwrap().password_hash.unwrap();

    let first = others[0].session_id;
    let count = changes_of(&world, async |tx| sessions::end(tx, first, now).await.unwrap()).await;
    assert_eq!((count, status_here(&world, &others[0].access_token).await), (1, 401));

    // Four of the six remaining sessions are kept, including Ada's first.
    let end_oldest = async |tx: &mut Tx| {
        let ended = sessions::end_oldest(tx, ada.id, ada.session_id, 4, now).await.unwrap();
        assert_eq!(ended.len(), 2);
    };
    assert_eq!(changes_of(&world, end_oldest).await, 2, "one row per session");
    let mut live = 0;
    for session in &others {
        live += i32::from(status_here(&world, &session.access_token).await == 200);
    }
    assert_eq!(live, 3);

    // A new password that ends all sessions is one change, regardless of how many functions announce it.
    let replace = async |tx: &mut Tx| {
        assert!(users::replace_password(tx, ada.id, &hash, "another", now).await.unwrap());
        sessions::end_all(tx, ada.id, Some(ada.session_id), now).await.unwrap();
    };
    assert_eq!(changes_of(&world, replace).await, 1);
    for session in &others {
        assert_eq!(status_here(&world, &session.access_token).await, 401);
    }
    assert_eq!(status_here(&world, &ada.access_token).await, 200);

    let lost = async |tx: &mut Tx| {
        assert!(!users::replace_password(tx, ada.id, &hash, "third", now).await.unwrap());
    };
    assert_eq!(changes_of(&world, lost).await, 0, "nothing was written");
    let set = async |tx: &mut Tx| users::set_password(tx, ada.id, "third", now).await.unwrap();
    assert_eq!(changes_of(&world, set).await, 1);

    for user_id in [Some(ada.id), None] {
        let session = world.session(ada.id).await;
        assert_eq!(status_here(&world, &session.access_token).await, 200);
        let end_live = async |tx: &mut Tx| {
            sessions::end_live(tx, user_id, now).await.unwrap();
        };
        assert_eq!(changes_of(&world, end_live).await, 1);
        assert_eq!(status_here(&world, &session.access_token).await, 401);
    }
    // A write that bypasses these functions isn't announced.
    let session = world.session(ada.id).await;
    assert_eq!(status_here(&world, &session.access_token).await, 200);
    let beside = async |tx: &mut Tx| {
        let end = sql("UPDATE sessions SET ended_at = $2 WHERE id = $1").bind(session.session_id);
        end.bind(now).execute(tx).await.unwrap();
    };
    assert_eq!(changes_of(&world, beside).await, 0);
    assert_eq!(status_here(&world, &session.access_token).await, 200);
}

#[on_each_database]
async fn cached_session_expires(world: World) {
    let ada = world.user("ada").await;
    assert_eq!(status_here(&world, &ada.access_token).await, 200);
    world.clock.advance_ms(30 * DAY_MS - SECOND_MS);
    world.catch_up().await;
    let late = world.token(TokenKind::Access, ada.id, ada.session_id, 3600).await;
    assert_eq!(status_here(&world, &late).await, 200);
    world.clock.advance_ms(SECOND_MS);
    assert_eq!(status_here(&world, &late).await, 401);
}
