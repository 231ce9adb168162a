//! The time and address of a key's last use: kept in memory and written later.

use serde_json::{Value, json};
use tollkeeper::db::sql;

use support::postgres::Cluster;
use support::twin::Twin;
use support::world::{Place, START, TestUser, World, runtime};
use support::{Database, on_each_database, on_postgres};

/// Returns `last_used_at` of the list, and both fields of the detail.
async fn shown(world: &World, user: &TestUser, place: &Place, key: &str) -> (Value, Value, Value) {
    let path = format!("{}/api-keys", place.project_path());
    let listed = world.get(&path).bearer(&user.access_token).data().await;
    let item = listed["api_keys"].as_array().unwrap().iter().find(|item| item["id"] == key).unwrap().clone();
    let detail = world.get(&format!("{path}/{key}")).bearer(&user.access_token).data().await;
    let usage = &detail["usage"];
    (item["last_used_at"].clone(), usage["last_used_at"].clone(), usage["last_used_ip"].clone())
}

#[on_each_database]
async fn last_use_is_written_by_the_job(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let null = json!(null);
    for address in ["192.0.2.1", "192.0.2.2"] {
        world.get("/v1/models").bearer(&key).from(address).bare().await;
    }
    assert_eq!(shown(&world, &ada, &place, &id).await, (null.clone(), null.clone(), null.clone()));
    let before = world.app.db.statement_count();
    assert_eq!(world.app.keys.last_uses.flush(usize::MAX).await.unwrap(), 1);
    assert_eq!(
        world.app.db.statement_count() - before,
        1,
        "one statement per key, regardless of how often it was used"
    );
    let start = json!(START);
    assert_eq!(shown(&world, &ada, &place, &id).await, (start.clone(), start, json!("192.0.2.2")));
    // No new use, so nothing is written.
    assert_eq!(
        (world.app.keys.last_uses.flush(usize::MAX).await.unwrap(), world.app.keys.last_uses.len()),
        (0, 0)
    );

    world.clock.advance_ms(1_500);
    let ask = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1", "client_address": "2001:db8::7"});
    assert_eq!(world.ask("/service/v1/authorize", &ask).bare().await["allowed"], true);
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    let later = json!(world.clock.now().to_string());
    assert_eq!(shown(&world, &ada, &place, &id).await, (later.clone(), later.clone(), json!("2001:db8::7")));

    // The address may be unknown.
    world.clock.advance_ms(1);
    let ask = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1"});
    world.ask("/service/v1/authorize", &ask).bare().await;
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    assert_eq!(shown(&world, &ada, &place, &id).await.2, null);
}

#[on_each_database]
async fn refused_call_does_not_count_as_use(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let body = json!({"name": "k", "restrictions": {"allowed_ips": ["192.0.2.1"], "rate_limit": 1, "models": ["svc-1"]}});
    let (_, key) = world.key(&ada, &place, &body).await;
    assert_eq!(world.get("/v1/models").bearer(&key).send().await.status, 403);
    let ask = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1-pro", "client_address": "192.0.2.1"});
    assert_eq!(world.ask("/service/v1/authorize", &ask).bare().await["allowed"], false);
    assert!(world.app.keys.last_uses.is_empty());
    let ask = json!({"credential": key, "operation": "chat", "reserve": false, "model": "svc-1", "client_address": "192.0.2.1"});
    assert_eq!(world.ask("/service/v1/authorize", &ask).bare().await["allowed"], true);
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    assert_eq!(world.ask("/service/v1/authorize", &ask).bare().await["code"], "rate_limited");
    assert!(world.app.keys.last_uses.is_empty());
    // Lists of models don't count against that rate, but they count as uses.
    world.get("/v1/models").bearer(&key).from("192.0.2.1").bare().await;
    assert!(!world.app.keys.last_uses.is_empty());
}

#[on_each_database]
async fn replicas_never_overwrite_a_later_use(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let [_, replica] = Twin::both(&world).await;
    replica.get("/v1/models").bearer(&key).from("192.0.2.1").bare().await;
    world.clock.advance_ms(1_000);
    world.get("/v1/models").bearer(&key).from("192.0.2.2").bare().await;
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    replica.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    let later = json!(world.clock.now().to_string());
    assert_eq!(shown(&world, &ada, &place, &id).await, (later.clone(), later, json!("192.0.2.2")));
}

#[on_each_database]
async fn unwritten_uses_are_kept_for_the_next_turn(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    world.get("/v1/models").bearer(&key).bare().await;
    let rename = async |from: &str, to: &str| {
        let mut tx = world.app.db.write().await.unwrap();
        let text = format!("ALTER TABLE api_key_last_uses RENAME COLUMN {from} TO {to}");
        sql(text).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    rename("last_used_ip", "hidden").await;
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap_err();
    assert_eq!(world.app.keys.last_uses.len(), 1);
    rename("hidden", "last_used_ip").await;
    assert_eq!(world.app.keys.last_uses.flush(usize::MAX).await.unwrap(), 1);
    assert_eq!(shown(&world, &ada, &place, &id).await.0, json!(START));
}

#[on_each_database]
async fn many_keys_are_written_while_they_are_deleted(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let mut keys = Vec::new();
    for number in 0..40 {
        keys.push(world.key(&ada, &place, &json!({"name": format!("k{number}")})).await);
    }
    for (_, key) in &keys {
        world.get("/v1/models").bearer(key).bare().await;
    }
    let (gone, left) = keys.split_at(20);
    let deletes = gone.iter().map(|(id, _)| {
        let path = format!("{}/api-keys/{id}", place.project_path());
        world.call(http::Method::DELETE, &path).bearer(&ada.access_token).data()
    });
    let (written, _) =
        tokio::join!(world.app.keys.last_uses.flush(usize::MAX), futures_util::future::join_all(deletes));
    assert_eq!(written.unwrap(), 40);
    for (id, _) in left {
        assert_eq!(shown(&world, &ada, &place, id).await.1, json!(START));
    }
}

#[on_postgres]
fn locked_row_does_not_delay_other_keys(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    runtime().block_on(async {
        let world = World::new("postgres", Some(cluster.new_database().await), &[]).await;
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
        world.get("/v1/models").bearer(&key).bare().await;
        let mut tx = world.app.db.write().await.unwrap();
        sql("UPDATE api_keys SET name = name WHERE id = $1").bind(&id).execute(&mut tx).await.unwrap();
        assert_eq!(
            world.app.keys.last_uses.flush(usize::MAX).await.unwrap(),
            1,
            "a locked key row delays no other key"
        );
        world.clock.advance_ms(1_000);
        world.get("/v1/models").bearer(&key).bare().await;
        let hold = "UPDATE api_key_last_uses SET last_used_at = last_used_at WHERE api_key_id = $1";
        sql(hold).bind(&id).execute(&mut tx).await.unwrap();
        // The flush gives up long before other transactions would, which wait for ten seconds.
        let error = world.app.keys.last_uses.flush(usize::MAX).await.unwrap_err();
        assert!(error.to_string().contains("lock timeout"), "{error}");
        drop(tx);
        assert_eq!(world.app.keys.last_uses.len(), 1);
        while world.app.keys.last_uses.flush(usize::MAX).await.is_err() {
            tokio::task::yield_now().await;
        }
        let later = json!(world.clock.now().to_string());
        assert_eq!(shown(&world, &ada, &place, &id).await.0, later);
    });
}

#[on_each_database]
async fn later_use_is_shown_when_an_earlier_version_recorded_it(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (id, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
    world.get("/v1/models").bearer(&key).bare().await;
    world.app.keys.last_uses.flush(usize::MAX).await.unwrap();
    for (ms, expected) in
        [(-1_000, json!(START)), (1_000, json!(world.clock.now().plus_ms(1_000).to_string()))]
    {
        // Writes the columns that servers used before the table `api_key_last_uses` existed.
        let mut tx = world.app.db.write().await.unwrap();
        let earlier = "UPDATE api_keys SET last_used_at = $2, last_used_ip = '192.0.2.9' WHERE id = $1";
        let at = world.clock.now().plus_ms(ms);
        sql(earlier).bind(&id).bind(at).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(shown(&world, &ada, &place, &id).await.0, expected);
    }
}
