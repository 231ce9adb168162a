//! The end of a rotation before its grace period has passed.

use http::Method;
use serde_json::json;
use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::DAY_MS;
use tollkeeper::trail;

use support::http::Answer;
use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{Place, World};

async fn post(world: &World, token: &str, place: &Place, key: &str, verb: &str) -> Answer {
    let path = format!("{}/api-keys/{key}/{verb}", place.project_path());
    world.call(Method::POST, &path).bearer(token).send().await
}

#[on_each_database]
async fn previous_secret_ends_at_once_here_and_elsewhere_after_the_feed_is_read(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let rotated = post(&world, &ada.access_token, &place, &id, "rotate").await.json();
    let second = rotated["data"]["key"].as_str().unwrap().to_owned();
    settle(&replica).await;
    let statuses = async |secret: &str| {
        let here = world.get("/v1/models").bearer(secret).send().await.status;
        (here, replica.get("/v1/models").bearer(secret).send().await.status)
    };
    assert_eq!((statuses(&first).await, statuses(&second).await), ((200, 200), (200, 200)));
    let path = format!("{}/api-keys/{id}", place.project_path());
    let before = world.get(&path).bearer(&ada.access_token).data().await;

    let ended = post(&world, &ada.access_token, &place, &id, "end-rotation").await;
    let message = "The previous secret is revoked and no longer works.";
    assert_eq!(ended.json()["data"], json!({"id": id, "message": message}));
    assert_eq!((statuses(&first).await, statuses(&second).await), ((401, 200), (200, 200)));
    settle(&replica).await;
    assert_eq!((statuses(&first).await, statuses(&second).await), ((401, 401), (200, 200)));
    assert_eq!(world.get(&path).bearer(&ada.access_token).data().await, before);

    let filter = trail::Filter { action: "api_key.rotation_ended".into(), limit: 9, ..Default::default() };
    let entries = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let found: Vec<_> = entries.iter().map(|entry| (&entry.actor, &entry.target)).collect();
    assert_eq!(found, [(&ada.id.to_string(), &id)]);
}

#[on_each_database]
async fn only_a_pending_rotation_can_be_ended(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let end = async |token: &str| {
        let answer = post(&world, token, &place, &id, "end-rotation").await;
        (answer.status, answer.code(), answer.header("x-should-retry").to_owned())
    };
    let refused = (409, "no_rotation_pending".to_owned(), "false".to_owned());
    assert_eq!(end(&ada.access_token).await, refused, "never rotated");
    post(&world, &ada.access_token, &place, &id, "rotate").await;
    assert_eq!(end(&ada.access_token).await.0, 200);
    assert_eq!(end(&ada.access_token).await, refused, "ended before");
    post(&world, &ada.access_token, &place, &id, "rotate").await;
    world.clock.advance_ms(DAY_MS);
    let token = world.token(TokenKind::Access, ada.id, ada.session_id, 60).await;
    assert_eq!(end(&token).await, refused, "after its grace period");
}

#[on_each_database]
async fn concurrent_ends_have_one_winner(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    post(&world, &ada.access_token, &place, &id, "rotate").await;
    let calls = (0..16).map(|_| post(&world, &ada.access_token, &place, &id, "end-rotation"));
    let answers = futures_util::future::join_all(calls).await;
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(409)), (1, 15));
}
