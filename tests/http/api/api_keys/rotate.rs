//! Rotation of API keys: the new secret, the previous secret and its grace period.

use std::collections::{HashMap, HashSet};

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, MINUTE_MS};

use support::http::Answer;
use support::twin::{Twin, settle};
use support::world::{Place, START, TestUser, World};
use support::{Database, on_each_database};

const HALF_AN_HOUR_MS: i64 = 30 * MINUTE_MS;

async fn rotate(world: &World, user: &TestUser, place: &Place, key: &str) -> Answer {
    let path = format!("{}/api-keys/{key}/rotate", place.project_path());
    world.call(Method::POST, &path).bearer(&user.access_token).send().await
}

async fn rotate_with(world: &World, user: &TestUser, place: &Place, key: &str, body: &Value) -> Answer {
    let path = format!("{}/api-keys/{key}/rotate", place.project_path());
    world.post(&path, body).bearer(&user.access_token).send().await
}

fn text(data: &Value, field: &str) -> String {
    data[field].as_str().unwrap().to_owned()
}

/// Returns the status of a request for the list of models with this secret.
async fn status(world: &World, secret: &str) -> u16 {
    world.get("/v1/models").bearer(secret).send().await.status
}

#[on_each_database]
async fn rotated_key_keeps_everything_but_its_secret(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"name": "Prod", "permissions": ["models"], "restrictions": {"rate_limit": 600}});
    let (id, first) = world.key(&ada, &place, &body).await;
    let path = format!("{}/api-keys/{id}", place.project_path());
    let before = world.get(&path).bearer(&ada.access_token).data().await;
    let answer = rotate(&world, &ada, &place, &id).await;
    assert_eq!(answer.header("cache-control"), "private, no-store");
    let data = answer.json()["data"].clone();
    let second = text(&data, "key");
    assert_ne!(first, second);
    assert_eq!(
        data,
        json!({"id": id, "key": second, "previous_key": first, "rotation_date": START,
        "grace_period_ends": "2026-03-11T12:00:00.000Z"})
    );
    assert_eq!((status(&world, &first).await, status(&world, &second).await), (200, 200));
    assert_eq!(world.get(&path).bearer(&ada.access_token).data().await, before);
}

#[on_each_database]
async fn previous_secret_expires_on_every_replica(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    // The key is cached on both servers before the rotation.
    assert_eq!(
        (status(&world, &first).await, replica.get("/v1/models").bearer(&first).send().await.status),
        (200, 200)
    );
    let second = text(&rotate(&world, &ada, &place, &id).await.json()["data"], "key");
    settle(&replica).await;
    for (moved_ms, expected) in [(DAY_MS - 1, 200), (1, 401), (DAY_MS, 401)] {
        world.clock.advance_ms(moved_ms);
        world.catch_up().await;
        settle(&replica).await;
        assert_eq!((status(&world, &first).await, status(&world, &second).await), (expected, 200));
        assert_eq!(replica.get("/v1/models").bearer(&first).send().await.status, expected);
        assert_eq!(replica.get("/v1/models").bearer(&second).send().await.status, 200);
    }
}

#[on_each_database]
async fn second_rotation_ends_the_oldest_secret_at_once(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let second = text(&rotate(&world, &ada, &place, &id).await.json()["data"], "key");
    for secret in [&first, &second] {
        assert_eq!(
            (status(&world, secret).await, replica.get("/v1/models").bearer(secret).send().await.status),
            (200, 200)
        );
    }
    world.clock.advance_ms(HALF_AN_HOUR_MS);
    world.catch_up().await;
    let data = rotate(&world, &ada, &place, &id).await.json()["data"].clone();
    let third = text(&data, "key");
    assert_eq!(
        (text(&data, "previous_key"), text(&data, "grace_period_ends")),
        (second.clone(), "2026-03-11T12:30:00.000Z".into())
    );
    settle(&replica).await;
    for (secret, expected) in [(&first, 401), (&second, 200), (&third, 200)] {
        assert_eq!(status(&world, secret).await, expected);
        assert_eq!(replica.get("/v1/models").bearer(secret).send().await.status, expected);
    }
}

#[on_each_database]
async fn grace_ends_with_the_key_and_expired_key_cannot_rotate(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) =
        world.key(&ada, &place, &json!({"name": "k", "expires_at": "2026-03-10T12:30:00Z"})).await;
    let data = rotate(&world, &ada, &place, &id).await.json()["data"].clone();
    assert_eq!(data["grace_period_ends"], "2026-03-10T12:30:00.000Z");
    world.clock.advance_ms(HALF_AN_HOUR_MS);
    let refused = rotate(&world, &ada, &place, &id).await;
    assert_eq!(
        (refused.status, refused.code().as_str(), refused.header("x-should-retry")),
        (409, "key_expired", "false")
    );
    for secret in [&first, &text(&data, "key")] {
        assert_eq!(status(&world, secret).await, 401);
    }
}

#[on_each_database]
fn grace_period_is_configurable(database: Database) {
    for (hours, ends, first_is) in [("0", START, 401), ("720", "2026-04-09T12:00:00.000Z", 200)] {
        database.run(&[("TOLLKEEPER_API_KEYS__ROTATION_GRACE_HOURS", hours)], async |world| {
            let ada = world.user("ada").await;
            let place = world.place(&ada, "Acme").await;
            let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
            assert_eq!(status(&world, &first).await, 200);
            let data = rotate(&world, &ada, &place, &id).await.json()["data"].clone();
            assert_eq!(data["grace_period_ends"], ends);
            assert_eq!(
                (status(&world, &first).await, status(&world, &text(&data, "key")).await),
                (first_is, 200)
            );
        });
    }
}

#[on_each_database(&[("TOLLKEEPER_API_KEYS__ROTATION_GRACE_HOURS", "2")])]
async fn rotation_chooses_a_grace_period_up_to_the_configured_one(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, mut current) = world.key(&ada, &place, &json!({"name": "k"})).await;
    for (body, ends) in [
        (json!({"grace_seconds": 7200}), "2026-03-10T14:00:00.000Z"),
        (json!({"grace_seconds": 90.0}), "2026-03-10T12:01:30.000Z"),
        (json!({"grace_seconds": null}), "2026-03-10T14:00:00.000Z"),
        (json!({}), "2026-03-10T14:00:00.000Z"),
        (json!({"grace_seconds": 1}), "2026-03-10T12:00:01.000Z"),
    ] {
        let data = rotate_with(&world, &ada, &place, &id, &body).await.json()["data"].clone();
        assert_eq!(data["grace_period_ends"], ends, "{body}");
        assert_eq!((status(&world, &current).await, data["previous_key"].as_str()), (200, Some(&*current)));
        current = text(&data, "key");
    }
    for (body, detail) in [
        (json!({"grace_seconds": 7201}), "grace_seconds out_of_range"),
        (json!({"grace_seconds": 2_592_001}), "grace_seconds out_of_range"),
        (json!({"grace_seconds": -1}), "grace_seconds out_of_range"),
        (json!({"grace_seconds": 0.5}), "grace_seconds out_of_range"),
        (json!({"grace_seconds": "60"}), "grace_seconds wrong_type"),
        (json!({"grace_second": 60}), "grace_second unknown_field"),
    ] {
        let answer = rotate_with(&world, &ada, &place, &id, &body).await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    let answer = rotate_with(&world, &ada, &place, &id, &json!({"grace_seconds": 86_400})).await;
    assert!(answer.text.contains("`grace_seconds` must be between 0 and 7200, "), "{}", answer.text);
    assert_eq!(status(&world, &current).await, 200, "a refused rotation changes nothing");
}

#[on_each_database]
async fn rotation_without_grace_ends_the_previous_secret_at_once(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let second = text(&rotate(&world, &ada, &place, &id).await.json()["data"], "key");
    settle(&replica).await;
    let statuses = async |secret: &str| {
        let here = status(&world, secret).await;
        (here, replica.get("/v1/models").bearer(secret).send().await.status)
    };
    assert_eq!((statuses(&first).await, statuses(&second).await), ((200, 200), (200, 200)));
    let data =
        rotate_with(&world, &ada, &place, &id, &json!({"grace_seconds": 0})).await.json()["data"].clone();
    assert_eq!(
        (text(&data, "previous_key"), text(&data, "grace_period_ends")),
        (second.clone(), START.into())
    );
    settle(&replica).await;
    let third = text(&data, "key");
    for (secret, expected) in [(&first, 401), (&second, 401), (&third, 200)] {
        assert_eq!(statuses(secret).await, (expected, expected));
    }
    let path = format!("{}/api-keys/{id}/end-rotation", place.project_path());
    let refused = world.call(Method::POST, &path).bearer(&ada.access_token).refused().await;
    assert_eq!(refused, (409, "no_rotation_pending".into()));
    // The previous secrets are deleted, so another replica's clock doesn't matter.
    let count = "SELECT COUNT(*) AS n FROM api_key_secrets";
    let mut tx = world.app.db.read().await.unwrap();
    let (left,): (i64,) = tollkeeper::db::sql(count).one(&mut tx).await.unwrap();
    assert_eq!(left, 1);
}

#[on_each_database(&[("TOLLKEEPER_API_KEYS__KEEP_SEALED", "false")])]
async fn previous_secret_is_masked_without_sealed_copies(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let data = rotate(&world, &ada, &place, &id).await.json()["data"].clone();
    assert_eq!(data["previous_key"], "tk_…");
    assert_eq!((status(&world, &first).await, status(&world, &text(&data, "key")).await), (200, 200));
}

#[on_each_database]
async fn concurrent_rotations_form_one_chain(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, first) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let calls = (0..64).map(|_| rotate(&world, &ada, &place, &id));
    let answers = futures_util::future::join_all(calls).await;
    let mut after: HashMap<String, String> = HashMap::new();
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let data = answer.json()["data"].clone();
        assert_eq!(after.insert(text(&data, "previous_key"), text(&data, "key")), None);
    }
    // The secrets form a single chain from the first to the last.
    let mut chain = vec![first];
    while let Some(next) = after.get(chain.last().unwrap()) {
        chain.push(next.clone());
    }
    assert_eq!((chain.len(), chain.iter().collect::<HashSet<_>>().len()), (65, 65));
    let (ended, good) = chain.split_at(63);
    for secret in good {
        assert_eq!(status(&world, secret).await, 200);
    }
    for secret in ended {
        assert_eq!(status(&world, secret).await, 401);
    }
}

#[on_each_database]
async fn concurrent_rotation_and_delete_leave_no_key(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    for round in 0..8 {
        let (id, first) = world.key(&ada, &place, &json!({"name": format!("k{round}")})).await;
        let path = format!("{}/api-keys/{id}", place.project_path());
        let delete = world.call(Method::DELETE, &path).bearer(&ada.access_token).send();
        let (rotated, deleted) = tokio::join!(rotate(&world, &ada, &place, &id), delete);
        assert_eq!(deleted.status, 200);
        assert!(matches!(rotated.status, 200 | 404), "{}", rotated.text);
        let mut secrets = vec![first];
        secrets.extend(rotated.json()["data"]["key"].as_str().map(str::to_owned));
        for secret in secrets {
            assert_eq!(status(&world, &secret).await, 401);
        }
    }
}
