//! `GET /readyz`, which reports whether the server can take requests, and `GET /healthz`, which reports
//! whether it runs.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::cluster::feed::TRUST_MS;
use tollkeeper::db::{newest_schema, sql};

use support::http::{Answer, Call};
use support::world::World;
use support::{Database, on_each_database};

async fn ask(world: &World, path: &str) -> Answer {
    assert_eq!(Call::new(&world.service, Method::GET, "/healthz").send().await.status, 200);
    world.get(path).send().await
}

async fn ready(world: &World) -> Value {
    let answer = ask(world, "/readyz").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Asserts that only this check fails, with this message in the error and in its details.
async fn assert_only_failure(world: &World, name: &str, code: &str, message: &str) {
    let answer = ask(world, "/readyz").await;
    assert_eq!((answer.status, answer.code().as_str()), (503, code), "{}", answer.text);
    let error = &answer.json()["error"];
    assert_eq!(error["message"], format!("{name}: {message}"));
    assert_eq!(error["details"], json!([{"param": name, "code": code, "message": message}]));
    assert_eq!(answer.header("retry-after"), "1");
}

#[on_each_database]
async fn readiness_lists_every_check(world: World) {
    let body = ready(&world).await;
    assert_eq!((&body["status"], &body["version"]), (&json!("ready"), &json!(env!("CARGO_PKG_VERSION"))));
    let checks = body["checks"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    let due = ["database", "schema", "feed", "clock", "catalog", "currency", "signing_key", "running"];
    assert_eq!(names, due);
    assert!(checks.iter().all(|check| check["ok"] == true && check["message"].is_string()), "{body}");
}

#[on_each_database]
async fn unread_feed_is_reported(world: World) {
    world.clock.advance_ms(TRUST_MS);
    assert_only_failure(&world, "feed", "not_ready", "The feed of changes was not read for a while.").await;
    world.catch_up().await;
    ready(&world).await;
}

#[on_each_database]
async fn older_schema_is_reported_and_a_newer_one_is_ready(world: World) {
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
    let message =
        format!("The database has schema {older}, this version needs {newest}: run `tollkeeper migrate`.");
    assert_only_failure(&world, "schema", "not_ready", &message).await;
    // The database was replaced after the start.
    change(format!("DROP TABLE {history}")).await;
    let message = "The database has no schema of this program: run `tollkeeper migrate`.";
    assert_only_failure(&world, "schema", "not_ready", message).await;
}

#[on_each_database]
async fn stopping_server_is_not_ready(world: World) {
    world.app.stop();
    assert_only_failure(&world, "running", "not_ready", "The server is stopping: send requests elsewhere.")
        .await;
    // Requests that still arrive are served.
    world.user("ada").await;
}

#[on_each_database]
fn refused_catalog_is_reported_and_the_server_stays_ready(database: Database) {
    let folder = support::world::Folder::new();
    let file = folder.0.join("catalog.toml");
    std::fs::copy("catalog/default.toml", &file).unwrap();
    database.run(&[("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())], async |world| {
        let catalog = |body: &Value| {
            let checks = body["checks"].as_array().unwrap();
            checks.iter().find(|check| check["name"] == "catalog").unwrap()["message"].clone()
        };
        assert_eq!(catalog(&ready(&world).await), "The catalog is in force.");
        std::fs::write(&file, "nonsense").unwrap();
        tollkeeper::catalog::activation::reload(&world.app.catalogs).await.unwrap();
        let message = "The catalog file is refused, and the previous catalog stays in force: see the log \
                       for the reason.";
        assert_eq!(catalog(&ready(&world).await), message);
        std::fs::copy("catalog/default.toml", &file).unwrap();
    });
}
