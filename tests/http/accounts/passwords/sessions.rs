//! The maximum number of sessions of a user.

use serde_json::json;
use tollkeeper::db::sql;
use tollkeeper::trail::{self, Filter};

use super::{access_token, login};
use support::twin::{Twin, settle};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

async fn count_sessions(world: &World) -> i64 {
    let (count_sessions,): (i64,) = sql("SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL")
        .one(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
    count_sessions
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__SESSIONS_PER_PERSON", "3")])]
async fn login_beyond_the_maximum_ends_the_oldest_session(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let mut tokens = vec![ada.access_token.clone()];
    for _ in 0..2 {
        world.clock.advance_ms(1);
        tokens.push(access_token(&world, "ada", PASSWORD).await);
    }
    let statuses = async |tokens: &[String]| {
        let mut statuses = Vec::new();
        for token in tokens {
            let here = world.get("/v1/auth/me").bearer(token).send().await.status;
            settle(&replica).await;
            let there = replica.get("/v1/auth/me").bearer(token).send().await.status;
            assert_eq!(here, there);
            statuses.push(here);
        }
        statuses
    };
    assert_eq!(statuses(&tokens).await, [200, 200, 200]);
    // The clock is set back, so by its time the newest session is the oldest.
    world.clock.advance_ms(-1_000);
    world.catch_up().await;
    tokens.push(access_token(&world, "ada", PASSWORD).await);
    assert_eq!(statuses(&tokens).await, [401, 200, 200, 200]);
    assert_eq!(statuses(&[bob.access_token]).await, [200], "another user's session remains");
    let refresh = world.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token);
    assert_eq!(refresh.refused().await, (401, "invalid_refresh_token".into()));
    let ended = Filter { action: "session.ended".into(), limit: 9, ..Filter::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &ended).await.unwrap();
    let entries: Vec<_> = entries.iter().map(|entry| (&entry.actor, &entry.target)).collect();
    assert_eq!(entries, [(&ada.id.to_string(), &ada.session_id.to_string())]);
    // An expired session doesn't count.
    world.clock.advance_ms(31 * tollkeeper::clock::DAY_MS);
    world.catch_up().await;
    let fresh = access_token(&world, "ada", PASSWORD).await;
    assert_eq!(statuses(&[fresh]).await, [200]);
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &ended).await.unwrap();
    assert_eq!(entries.len(), 1);
}

#[on_each_database]
fn concurrent_logins_do_not_exceed_the_maximum(database: Database) {
    let settings = [("TOLLKEEPER_LIMITS__SESSIONS_PER_PERSON", "3")];
    database.run(&settings, async |world| {
        let twins = Twin::both_with_cheap_hashes(&world).await;
        world.user("ada").await;
        let body = json!({"email": "ada@example.com", "password": PASSWORD});
        let logins: Vec<_> =
            (0..10).map(|n| tokio::spawn(twins[n % 2].post("/v1/auth/login", &body).send())).collect();
        let mut good = 0;
        for login in logins {
            good += usize::from(login.await.unwrap().status == 200);
        }
        assert!(good > 3, "{good}");
        assert_eq!(count_sessions(&world).await, 3);
    });
}

#[on_each_database]
fn without_limits_sessions_are_not_counted(database: Database) {
    let settings = [("TOLLKEEPER_LIMITS__SESSIONS_PER_PERSON", "3"), ("TOLLKEEPER_LIMITS__ENABLED", "false")];
    database.run(&settings, async |world| {
        world.user("ada").await;
        for _ in 0..5 {
            login(&world, "ada", PASSWORD).data().await;
        }
        assert_eq!(count_sessions(&world).await, 6);
    });
}
