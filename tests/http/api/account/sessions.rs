//! The list of a user's sessions, and ending them.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, MINUTE_MS, SECOND_MS};
use tollkeeper::db::sql;

use super::{entries, login, text};
use support::http::Call;
use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{PASSWORD, TestUser, World};

const ADA: &str = "ada@example.com";

fn list(world: &World, access_token: &str, query: &str) -> Call {
    world.get(&format!("/v1/auth/sessions{query}")).bearer(access_token)
}

fn end(world: &World, access_token: &str, path: &str) -> Call {
    world.call(Method::DELETE, &format!("/v1/auth/sessions{path}")).bearer(access_token)
}

async fn me(world: &World, access_token: &str) -> u16 {
    world.get("/v1/auth/me").bearer(access_token).send().await.status
}

fn ids(page: &Value) -> Vec<String> {
    page["sessions"].as_array().unwrap().iter().map(|session| text(session, "id")).collect()
}

fn now(world: &World) -> String {
    world.clock.now().to_string()
}

#[on_each_database]
async fn list_shows_where_and_when_each_session_was_seen(world: World) {
    let ada = world.user("ada").await;
    let start = now(&world);
    world.clock.advance_ms(SECOND_MS);
    let agent = "Mozilla/5.0 (X11; Linux x86_64)";
    let call = login(&world, ADA, PASSWORD).from("203.0.113.7").header("user-agent", agent);
    let tokens = call.data().await;
    let opened = now(&world);
    let (access, refresh) = (text(&tokens, "access_token"), text(&tokens, "refresh_token"));
    let page = list(&world, &access, "").data().await;
    let [newer, older] = ids(&page).try_into().unwrap();
    let expected = json!({
        "sessions": [
            {"id": newer, "current": true, "created_at": opened, "last_seen_at": opened, "address": "203.0.113.7",
             "user_agent": agent},
            {"id": older, "current": false, "created_at": start, "last_seen_at": start, "address": null,
             "user_agent": null},
        ],
        "total": 2, "page": 1, "page_size": 20,
    });
    assert_eq!(page, expected);
    assert_eq!(older, ada.session_id.to_string());

    // A refresh updates the address and browser of the session, at most once per minute.
    let refreshed = async |from: &str, agent: &[u8]| {
        let call = world.post("/v1/auth/refresh-token", &json!({})).bearer(&refresh).from(from);
        call.bytes("user-agent", agent).data().await;
        list(&world, &access, "").data().await["sessions"][0].take()
    };
    world.clock.advance_ms(MINUTE_MS);
    world.catch_up().await;
    let long = "x".repeat(300);
    let seen = refreshed("198.51.100.9", format!("a\tb \u{85}\u{202e}c{long}").as_bytes()).await;
    let seen_at = now(&world);
    assert_eq!((text(&seen, "last_seen_at"), text(&seen, "created_at")), (seen_at.clone(), opened));
    assert_eq!(text(&seen, "address"), "198.51.100.9");
    assert_eq!(text(&seen, "user_agent"), format!("ab c{}", &long[..196]));
    world.clock.advance_ms(MINUTE_MS - 1);
    world.catch_up().await;
    let seen = refreshed("192.0.2.1", b"curl").await;
    assert_eq!((text(&seen, "last_seen_at"), text(&seen, "address")), (seen_at, "198.51.100.9".into()));
    world.clock.advance_ms(1);
    let seen = refreshed("192.0.2.1", b"\x80\xff").await;
    assert_eq!(
        (text(&seen, "address"), text(&seen, "user_agent")),
        ("192.0.2.1".into(), "\u{fffd}\u{fffd}".into())
    );
    assert_eq!(text(&seen, "last_seen_at"), now(&world));
}

#[on_each_database]
async fn list_has_live_sessions_of_the_caller_only_by_page(world: World) {
    let bob = world.user("bob").await;
    let ada = world.user("ada").await;
    let mut opened = vec![ada.session_id.to_string()];
    for _ in 0..4 {
        world.clock.advance_ms(1);
        opened.push(world.session(ada.id).await.session_id.to_string());
    }
    opened.reverse();
    let page = async |query: &str| {
        let page = list(&world, &ada.access_token, query).data().await;
        (ids(&page), page["total"].as_i64().unwrap(), page["page"].as_i64().unwrap())
    };
    assert_eq!(page("").await, (opened.clone(), 5, 1));
    assert_eq!(page("?page_size=2").await, (opened[..2].to_vec(), 5, 1));
    assert_eq!(page("?page_size=2&page=3").await, (opened[4..].to_vec(), 5, 3));
    assert_eq!(page("?page=9").await, (vec![], 5, 9));
    for query in ["?page=0", "?page_size=101", "?page=x", "?page=1&page=2"] {
        assert_eq!(list(&world, &ada.access_token, query).send().await.status, 400, "{query}");
    }
    assert_eq!(ids(&list(&world, &bob.access_token, "").data().await), [bob.session_id.to_string()]);
    // Ended and expired sessions aren't listed.
    end(&world, &ada.access_token, &format!("/{}", opened[0])).data().await;
    assert_eq!(page("").await, (opened[1..].to_vec(), 4, 1));
    world.clock.advance_ms(30 * DAY_MS - 4);
    world.catch_up().await;
    let later = world.session(ada.id).await;
    let left = list(&world, &later.access_token, "").data().await;
    assert_eq!(ids(&left), [&[later.session_id.to_string()][..], &opened[1..4]].concat());
}

/// Asserts the status that each user's tokens get on both servers.
async fn assert_work(world: &World, replica: &Twin, expected: &[(&TestUser, u16)]) {
    settle(replica).await;
    for (number, (user, status)) in expected.iter().enumerate() {
        assert_eq!(me(world, &user.access_token).await, *status, "{number} on {}", world.backend);
        let there = replica.get("/v1/auth/me").bearer(&user.access_token).send().await.status;
        assert_eq!(there, *status, "{number} at the replica");
        let refresh = replica.post("/v1/auth/refresh-token", &json!({})).bearer(&user.refresh_token);
        assert_eq!(refresh.send().await.status, *status, "{number}: the refresh token");
    }
}

#[on_each_database]
async fn ended_sessions_tokens_stop_working_everywhere(world: World) {
    let [_, replica] = Twin::both(&world).await;
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (second, third) = (world.session(ada.id).await, world.session(ada.id).await);
    assert_work(&world, &replica, &[(&ada, 200), (&second, 200), (&third, 200), (&bob, 200)]).await;

    let path = format!("/{}", second.session_id);
    let answer = end(&world, &ada.access_token, &path).data().await;
    assert_eq!(answer, json!({"message": "The session has ended."}));
    assert_work(&world, &replica, &[(&ada, 200), (&second, 401), (&third, 200), (&bob, 200)]).await;
    let unknown = "/sess_01h2xcejqtf2nbrexx3vqjhp41".to_owned();
    let others = format!("/{}", bob.session_id);
    for path in [&path, &unknown, &others, &"/x".to_owned(), &format!("/{}", ada.id)] {
        let refused = end(&world, &ada.access_token, path).refused().await;
        assert_eq!(refused, (404, "session_not_found".into()), "{path}");
    }

    let fourth = world.session(ada.id).await;
    let answer = end(&world, &third.access_token, "").data().await;
    assert_eq!(answer, json!({"message": "Your other sessions have ended."}));
    assert_work(&world, &replica, &[(&ada, 401), (&third, 200), (&fourth, 401), (&bob, 200)]).await;
    // A session can also end itself, like a logout.
    end(&world, &third.access_token, &format!("/{}", third.session_id)).data().await;
    assert_work(&world, &replica, &[(&third, 401), (&bob, 200)]).await;
    assert_eq!(end(&world, &third.access_token, "").refused().await.0, 401);

    let id = ada.id.to_string();
    let mut ended = [second.session_id, third.session_id].map(|session| [id.clone(), session.to_string()]);
    ended.sort();
    assert_eq!(entries(&world, "session.ended").await, ended);
    assert_eq!(entries(&world, "sessions.ended").await, [[id.clone(), id]]);
}

#[on_each_database]
async fn expired_session_is_not_found(world: World) {
    let ada = world.user("ada").await;
    world.clock.advance_ms(30 * DAY_MS);
    world.catch_up().await;
    let later = world.session(ada.id).await;
    let refused = end(&world, &later.access_token, &format!("/{}", ada.session_id)).refused().await;
    assert_eq!(refused, (404, "session_not_found".into()));
}

#[on_each_database]
async fn refresh_without_writes_still_works(world: World) {
    let ada = world.user("ada").await;
    let mut tx = world.app.db.write().await.unwrap();
    // Every write to the table fails, as with a full disk.
    let trigger = if world.app.db.is_postgres() {
        "CREATE TRIGGER refused BEFORE UPDATE ON sessions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
    } else {
        "CREATE TRIGGER refused BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'refused'); END"
    };
    sql(trigger).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let refresh = world.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token);
    let access = text(&refresh.data().await, "access_token");
    let page = list(&world, &access, "").data().await;
    assert_eq!(page["sessions"][0]["last_seen_at"], page["sessions"][0]["created_at"]);
}
