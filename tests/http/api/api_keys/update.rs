//! PUT and DELETE of a key: changes, refusals, and their effect on every replica.

use http::Method;
use serde_json::{Value, json};

use super::fields;
use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{Place, START, TestUser, World};

async fn put(world: &World, user: &TestUser, path: &str, body: &Value) -> Value {
    world.call(Method::PUT, path).json(body).bearer(&user.access_token).data().await
}

fn key_path(place: &Place, key: &str) -> String {
    format!("{}/api-keys/{key}", place.project_path())
}

#[on_each_database]
async fn merge_patch_changes_only_its_fields(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let all = fields::all();
    let body = fields::with(json!({"expires_at": "2027-01-01T00:00:00Z"}), &all, |field| &field.sent);
    let (key, _) = world.key(&ada, &place, &body).await;
    let path = key_path(&place, &key);
    let mut now = fields::with(json!({"id": key, "updated_at": START}), &all, |field| &field.shown);
    world.clock.advance_ms(1_000);
    // A change to the same values doesn't update `updated_at`.
    let same = all.iter().map(|field| field.body(&field.sent));
    for patch in [json!({}), json!({"restrictions": {}})].into_iter().chain(same) {
        assert_eq!(put(&world, &ada, &path, &patch).await, now, "{patch}");
    }
    let mut steps = Vec::new();
    for field in &all {
        steps.push((field.body(&field.changed), field.place, field.shown_changed.clone()));
    }
    steps.extend([
        (json!({"description": null}), "/description", json!(null)),
        (json!({"restrictions": {"allowed_ips": null}}), "/restrictions/allowed_ips", json!(null)),
        (
            json!({"restrictions": null}),
            "/restrictions",
            json!({"allowed_ips": null, "rate_limit": null, "max_tokens": null, "models": null}),
        ),
    ]);
    for (patch, pointer, value) in steps {
        world.clock.advance_ms(1);
        *now.pointer_mut(pointer).unwrap() = value;
        now["updated_at"] = json!(world.clock.now().to_string());
        assert_eq!(put(&world, &ada, &path, &patch).await, now, "{patch}");
    }
    let read = world.get(&path).bearer(&ada.access_token).data().await;
    now.as_object_mut().unwrap().remove("updated_at");
    for (name, value) in now.as_object().unwrap() {
        assert_eq!(read[name], *value);
    }
    assert_eq!(
        (&read["created_at"], &read["expires_at"]),
        (&json!(START), &json!("2027-01-01T00:00:00.000Z"))
    );
}

#[on_each_database]
async fn invalid_patches_are_refused(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.key(&ada, &place, &json!({"name": "one"})).await;
    world.key(&ada, &place, &json!({"name": "two"})).await;
    let path = key_path(&place, &key);
    let call =
        async |body: &Value| world.call(Method::PUT, &path).json(body).bearer(&ada.access_token).send().await;
    for field in fields::all() {
        let refused = field.invalid.iter().map(|(value, rest)| (value.clone(), *rest));
        let is_removable = field.default == Some(Value::Null);
        for (value, rest) in refused.chain((!is_removable).then_some((Value::Null, " required"))) {
            let (body, detail) = (field.body(&value), field.detail(rest));
            let answer = call(&body).await;
            let details = answer.details();
            assert_eq!((answer.status, details.len()), (400, 1), "{body}: {details:?}");
            assert!(details[0].starts_with(&detail), "{body}: {details:?}");
        }
    }
    for (body, detail) in [
        (json!({"expires_at": "2027-01-01T00:00:00Z"}), "expires_at unknown_field"),
        (json!({"restrictions": []}), "restrictions wrong_type"),
        (json!({"restriction": null}), "restriction unknown_field"),
    ] {
        let answer = call(&body).await;
        assert_eq!((answer.status, answer.details()), (400, vec![detail.to_owned()]), "{body}");
    }
    let taken = call(&json!({"name": "TWO"})).await;
    assert_eq!((taken.status, taken.code().as_str()), (409, "name_taken"));
    assert_eq!(call(&json!({"name": "ONE"})).await.status, 200, "its own name in different case");
}

#[on_each_database]
async fn concurrent_patches_lose_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let path = key_path(&place, &key);
    let all = fields::all();
    let patches: Vec<_> = all.iter().map(|field| field.body(&field.changed)).collect();
    futures_util::future::join_all(patches.iter().map(|patch| put(&world, &ada, &path, patch))).await;
    let key = world.get(&path).bearer(&ada.access_token).data().await;
    for field in &all {
        assert_eq!(key.pointer(field.place), Some(&field.shown_changed), "{}", field.place);
    }
}

#[on_each_database]
async fn change_applies_at_once_locally_and_elsewhere_after_the_feed_is_read(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    let statuses = async || {
        let here = world.get("/v1/models").bearer(&key).send().await.status;
        (here, replica.get("/v1/models").bearer(&key).send().await.status)
    };
    assert_eq!(statuses().await, (200, 200));
    put(&world, &ada, &key_path(&place, &id), &json!({"permissions": ["chat"]})).await;
    assert_eq!(statuses().await, (403, 200));
    settle(&replica).await;
    assert_eq!(statuses().await, (403, 403));
    put(&world, &ada, &key_path(&place, &id), &json!({"permissions": ["models"]})).await;
    settle(&replica).await;
    assert_eq!(statuses().await, (200, 200));

    let message = world.call(Method::DELETE, &key_path(&place, &id)).bearer(&ada.access_token).data().await;
    assert!(message["message"].is_string(), "{message}");
    assert_eq!(statuses().await, (401, 200));
    settle(&replica).await;
    assert_eq!(statuses().await, (401, 401));
}

#[on_each_database]
async fn deleted_key_is_gone(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let path = key_path(&place, &id);
    let status = async |method: Method, path: &str| {
        let call = world.call(method.clone(), path).bearer(&ada.access_token);
        let call = if method == Method::PUT { call.json(&json!({})) } else { call };
        call.send().await.status
    };
    assert_eq!(status(Method::DELETE, &path).await, 200);
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::PUT, path.clone()),
        (Method::DELETE, path.clone()),
        (Method::POST, format!("{path}/rotate")),
        (Method::POST, format!("{path}/end-rotation")),
    ] {
        assert_eq!(status(method.clone(), &path).await, 404, "{method} {path}");
    }
    assert_eq!(world.get("/v1/models").bearer(&key).refused().await, (401, "invalid_api_key".into()));
    // The name is available again, and the id is unknown.
    let (other, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    assert_ne!(other, id);
    let detail = world.get(&place.project_path()).bearer(&ada.access_token).data().await;
    assert_eq!(detail["api_keys_count"], 1);
}

#[on_each_database]
async fn key_deletes_another_key_and_one_of_many_deletes_wins(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let (id, _) = world.key(&ada, &place, &json!({"name": "other"})).await;
    let path = key_path(&place, &id);
    let calls = (0..16).map(|_| world.call(Method::DELETE, &path).bearer(&key).send());
    let mut statuses: Vec<_> =
        futures_util::future::join_all(calls).await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(statuses[1..].iter().all(|status| *status == 404), "{statuses:?}");
}
