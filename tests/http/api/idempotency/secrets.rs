//! Answers with secrets are sealed, and can be replayed after a restart and after a change of the master key.

use http::Method;
use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::db::sql;
use tollkeeper::keys::seals;
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use super::{assert_repeats, scene};
use support::http::Call;
use support::on_each_database;
use support::world::World;

/// Returns the bytes of the stored answers, and on SQLite also those of the database's files.
async fn stored(world: &World) -> Vec<u8> {
    let rows: Vec<(Vec<u8>, String)> = sql("SELECT answer, holder FROM idempotency_keys")
        .all(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
    let mut bytes: Vec<u8> =
        rows.into_iter().flat_map(|(answer, holder)| [answer, holder.into_bytes()].concat()).collect();
    for file in ["tollkeeper.db", "tollkeeper.db-wal"] {
        bytes.extend(std::fs::read(world.data_dir.join(file)).unwrap_or_default());
    }
    bytes
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[on_each_database(&[("TOLLKEEPER_API_KEYS__KEEP_SEALED", "false")])]
async fn no_secret_is_stored_in_the_clear(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let mut secrets = vec!["my-idempotency-key".to_owned()];
    for operation in ["create_api_key", "rotate_api_key"] {
        let first = scene.request(operation).send(&world, token, "my-idempotency-key").await;
        secrets.push(first.json()["data"]["key"].as_str().unwrap().to_owned());
        let again = scene.request(operation).send(&world, token, "my-idempotency-key").await;
        assert_repeats(&again, &first, operation);
    }
    let bytes = stored(&world).await;
    for secret in secrets {
        assert!(!contains(&bytes, &secret), "{} has {secret}", world.backend);
    }
    // For comparison, the search finds text that isn't sealed.
    assert!(contains(&bytes, "Acme a") || world.app.db.is_postgres());
}

#[on_each_database]
async fn answer_can_not_be_moved_to_another_key(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let create = scene.request("create_api_key");
    assert_eq!(create.send(&world, token, "mine").await.status, 200);
    let rotate = scene.request("rotate_api_key");
    assert_eq!(rotate.send(&world, token, "mine").await.status, 200);
    let mut tx = world.app.db.write().await.unwrap();
    let rows: Vec<(Vec<u8>, Vec<u8>)> =
        sql("SELECT id, answer FROM idempotency_keys").all(&mut tx).await.unwrap();
    let [(one, answer_one), (two, answer_two)] = rows.try_into().unwrap();
    for (id, answer) in [(one, answer_two), (two, answer_one)] {
        let text = "UPDATE idempotency_keys SET answer = $2 WHERE id = $1";
        sql(text).bind(id).bind(answer).execute(&mut tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    for request in [create, rotate] {
        assert_eq!(request.keyed(&world, token, "mine").refused().await, (500, "internal_error".into()));
    }
}

#[on_each_database]
async fn answer_outlives_the_server_and_its_master_key(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let create = scene.request("create_api_key");
    let first = create.send(&world, token, "key").await;
    assert_eq!(first.status, 200, "{}", first.text);

    let old = world.data_dir.join("master.key");
    let new = world.data_dir.join("new.key");
    std::fs::write(&new, "n".repeat(32)).unwrap();
    for step in ["restart", "both", "reseal", "new"] {
        let mut config = world.app.config.clone();
        if step != "restart" {
            config.master_key_file = Some(new.clone());
        }
        if step == "both" || step == "reseal" {
            config.master_key_previous_file = Some(old.clone());
        }
        let app = App::new(config, world.clock.clone()).unwrap();
        app.boot().await.unwrap();
        if step == "reseal" {
            let resealed = seals::reseal_all(&app.keys, &Trail::operator()).await.unwrap();
            assert_eq!(resealed.answers, 1);
            let again = seals::reseal_all(&app.keys, &Trail::operator()).await.unwrap();
            let all = resealed.signing_keys
                + resealed.api_keys
                + resealed.seeds
                + resealed.webhooks
                + resealed.answers
                + resealed.unchanged;
            assert_eq!((again.answers, again.unchanged), (0, all));
        }
        let public = tollkeeper::api::routes::dispatcher(&app.api, Listener::Public);
        let call = Call::new(&public, Method::POST, &create.path).bearer(token).json(&create.body);
        let again = call.header("idempotency-key", "key").send().await;
        assert_repeats(&again, &first, step);
    }
    let (id, secret) = (&first.json()["data"]["id"], &first.json()["data"]["key"]);
    let rotate = format!("{}/{}/rotate", create.path, id.as_str().unwrap());
    let rotated = world.post(&rotate, &json!({})).bearer(token).refused().await;
    assert_eq!(rotated.0, 500, "{secret}: this server has the older key alone");
}
