//! Sessions in memory: a repeated token costs nothing, an ended session nothing more either.

use serde_json::json;
use tollkeeper::clock::{DAY_MS, SECOND_MS};
use tollkeeper::secrets::jwt::TokenKind;

use crate::support::twin::{Twin, settle};
use crate::support::world::{PASSWORD, Somebody, World, on_each_database};

const NEW_PASSWORD: &str = "Violet-Kettle-9-Harbour";

async fn here(world: &World, token: &str) -> u16 {
    world.get("/v1/auth/me").bearer(token).send().await.status
}

async fn there(replica: &Twin, token: &str) -> u16 {
    replica.get("/v1/auth/me").bearer(token).send().await.status
}

/// Another session of the same person.
async fn second_session(world: &World, who: &Somebody) -> String {
    let body = json!({"email": "ada@example.com", "password": PASSWORD});
    let data = world.post("/v1/auth/login", &body).data().await;
    assert_eq!(data["user"]["id"], who.id.to_string());
    data["access_token"].as_str().unwrap().to_owned()
}

#[test]
fn a_repeated_token_costs_no_query() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        world.get("/v1/models").bearer(&ada.access_token).bare().await;
        let before = world.app.db.statement_count();
        for _ in 0..10 {
            world.get("/v1/models").bearer(&ada.access_token).bare().await;
        }
        assert_eq!(world.app.db.statement_count(), before);
        // A burst of a session that isn't held costs one.
        let bob = world.somebody("bob").await;
        let before = world.app.db.statement_count();
        let calls = (0..16).map(|_| world.get("/v1/models").bearer(&bob.access_token).bare());
        futures_util::future::join_all(calls).await;
        assert_eq!(world.app.db.statement_count(), before + 1);
    });
}

#[test]
fn a_logout_holds_here_at_once_and_elsewhere_with_the_next_reading() {
    on_each_database(async |world| {
        let [_, replica] = Twin::both(&world).await;
        let ada = world.somebody("ada").await;
        let token = &ada.access_token;
        assert_eq!((here(&world, token).await, there(&replica, token).await), (200, 200));
        world.post("/v1/auth/logout", &json!({})).bearer(token).data().await;
        assert_eq!(here(&world, token).await, 401);
        // Held there until its job looks: within a quarter of a second.
        assert_eq!(there(&replica, token).await, 200);
        settle(&replica).await;
        assert_eq!(there(&replica, token).await, 401);
        let path = "/v1/auth/refresh-token";
        assert_eq!(world.post(path, &json!({})).bearer(&ada.refresh_token).send().await.status, 401);
        assert_eq!(replica.post(path, &json!({})).bearer(&ada.refresh_token).send().await.status, 401);
    });
}

#[test]
fn a_refresh_token_is_always_looked_up() {
    on_each_database(async |world| {
        let [_, replica] = Twin::both(&world).await;
        let ada = world.somebody("ada").await;
        let refresh = async || {
            replica.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token).send().await
        };
        assert_eq!(refresh().await.status, 200);
        world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
        assert_eq!(refresh().await.status, 401, "without waiting for the feed");
    });
}

#[test]
fn a_change_of_the_password_ends_the_other_sessions_everywhere() {
    on_each_database(async |world| {
        let [_, replica] = Twin::both(&world).await;
        let ada = world.somebody("ada").await;
        let other = second_session(&world, &ada).await;
        for token in [&ada.access_token, &other] {
            assert_eq!((here(&world, token).await, there(&replica, token).await), (200, 200));
        }
        let body = json!({"current_password": PASSWORD, "new_password": NEW_PASSWORD,
                          "new_password_confirmation": NEW_PASSWORD});
        world.post("/v1/auth/change-password", &body).bearer(&ada.access_token).data().await;
        assert_eq!((here(&world, &ada.access_token).await, here(&world, &other).await), (200, 401));
        settle(&replica).await;
        assert_eq!((there(&replica, &ada.access_token).await, there(&replica, &other).await), (200, 401));
    });
}

#[test]
fn a_reset_of_the_password_ends_every_session_everywhere() {
    on_each_database(async |world| {
        let [_, replica] = Twin::both(&world).await;
        let ada = world.somebody("ada").await;
        let other = second_session(&world, &ada).await;
        let bob = world.somebody("bob").await;
        for token in [&ada.access_token, &other, &bob.access_token] {
            assert_eq!((here(&world, token).await, there(&replica, token).await), (200, 200));
        }
        world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
        let token = world.mailed_token("ada@example.com").await;
        let body = json!({"token": token, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
        world.post("/v1/auth/reset-password", &body).data().await;
        for token in [&ada.access_token, &other] {
            assert_eq!(here(&world, token).await, 401);
        }
        settle(&replica).await;
        for token in [&ada.access_token, &other] {
            assert_eq!(there(&replica, token).await, 401);
        }
        assert_eq!(
            (here(&world, &bob.access_token).await, there(&replica, &bob.access_token).await),
            (200, 200)
        );
    });
}

#[test]
fn a_session_ends_by_the_clock_also_in_memory() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        assert_eq!(here(&world, &ada.access_token).await, 200);
        world.clock.advance_ms(30 * DAY_MS - SECOND_MS);
        world.catch_up().await;
        let late = world.token(TokenKind::Access, ada.id, ada.session_id, 3600).await;
        assert_eq!(here(&world, &late).await, 200);
        world.clock.advance_ms(SECOND_MS);
        assert_eq!(here(&world, &late).await, 401);
    });
}
