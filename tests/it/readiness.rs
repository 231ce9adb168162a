//! GET /readyz: whether requests can be sent here, and why not. GET /healthz: whether anybody is there.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::cluster::feed::TRUST_MS;
use tollkeeper::db::{newest_schema, sql};

use crate::support::http::{Answer, Call};
use crate::support::world::{World, on_each_database, on_each_database_with};

async fn ask(world: &World, path: &str) -> Answer {
    assert_eq!(Call::new(&world.service, Method::GET, "/healthz").send().await.status, 200);
    world.get(path).send().await
}

async fn ready(world: &World) -> Value {
    let answer = ask(world, "/readyz").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// The only check that fails, by its words in both places.
async fn refused(world: &World, name: &str, code: &str, message: &str) {
    let answer = ask(world, "/readyz").await;
    assert_eq!((answer.status, answer.code().as_str()), (503, code), "{}", answer.text);
    let error = &answer.json()["error"];
    assert_eq!(error["message"], format!("{name}: {message}"));
    assert_eq!(error["details"], json!([{"param": name, "code": code, "message": message}]));
    assert_eq!(answer.header("retry-after"), "1");
}

#[test]
fn readiness_names_every_check() {
    on_each_database(async |world| {
        let body = ready(&world).await;
        assert_eq!((&body["status"], &body["version"]), (&json!("ready"), &json!(env!("CARGO_PKG_VERSION"))));
        let checks = body["checks"].as_array().unwrap();
        let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
        let due = ["database", "schema", "feed", "clock", "catalog", "currency", "signing_key", "running"];
        assert_eq!(names, due);
        assert!(checks.iter().all(|check| check["ok"] == true && check["message"].is_string()), "{body}");
    });
}

#[test]
fn a_feed_that_is_not_read_is_told() {
    on_each_database(async |world| {
        world.clock.advance_ms(TRUST_MS);
        refused(&world, "feed", "not_ready", "What replicas change was not read for a while.").await;
        world.catch_up().await;
        ready(&world).await;
    });
}

#[test]
fn a_schema_that_is_too_old_is_told_and_a_newer_one_will_do() {
    on_each_database(async |world| {
        let change = async |text: String| {
            let mut tx = world.app.db.write().await.unwrap();
            sql(text).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        };
        let newest = newest_schema();
        let history = "refinery_schema_history";
        change(format!(
            "INSERT INTO {history} (version, name, applied_on, checksum) VALUES ({}, 'more', '', '')",
            newest + 1
        ))
        .await;
        ready(&world).await;
        change(format!("DELETE FROM {history} WHERE version >= {newest}")).await;
        let older = world.app.db.schema().await.unwrap();
        assert!(older < newest, "{older}");
        let message = format!(
            "The database has schema {older}, this version needs {newest}: run `tollkeeper migrate`."
        );
        refused(&world, "schema", "not_ready", &message).await;
        // Another database than the one that the start met.
        change(format!("DROP TABLE {history}")).await;
        let message = "The database has no schema of this program: run `tollkeeper migrate`.";
        refused(&world, "schema", "not_ready", message).await;
    });
}

#[test]
fn a_server_that_stops_sends_requests_elsewhere() {
    on_each_database(async |world| {
        world.app.stop();
        refused(&world, "running", "not_ready", "The server is stopping: send requests elsewhere.").await;
        // Who comes all the same is served.
        world.somebody("ada").await;
    });
}

#[test]
fn a_refused_catalog_is_told_and_no_reason_to_go_elsewhere() {
    let folder = crate::support::world::Folder::new();
    let file = folder.0.join("catalog.toml");
    std::fs::copy("catalog/default.toml", &file).unwrap();
    on_each_database_with(&[("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())], async |world| {
        let catalog = |body: &Value| {
            let checks = body["checks"].as_array().unwrap();
            checks.iter().find(|check| check["name"] == "catalog").unwrap()["message"].clone()
        };
        assert_eq!(catalog(&ready(&world).await), "The catalog is in force.");
        std::fs::write(&file, "nonsense").unwrap();
        tollkeeper::catalog::activation::reload(&world.app.catalogs).await.unwrap();
        let message = "The catalog file is refused, and the catalog before goes on: the log says why.";
        assert_eq!(catalog(&ready(&world).await), message);
        std::fs::copy("catalog/default.toml", &file).unwrap();
    });
}
