//! Reloads within one process: callers see either the previous or the new catalog, never a mixture.

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};
use tollkeeper::catalog::activation::reload;
use tollkeeper::clock::{DAY_MS, Time};
use tollkeeper::cluster::changes;
use tollkeeper::db::Change;

use super::{File, catalog};
use support::http::Call;
use support::twin::{Twin, settle};
use support::world::World;
use support::{Database, on_each_database};

/// Runs a test on a database, with a catalog file of these models.
fn run_with_file(database: Database, models: &[&str], test: impl AsyncFn(World, &File)) {
    let file = File::new(models);
    database.run(&[("TOLLKEEPER_CATALOG_FILE", file.name())], async |world| {
        file.write(&catalog(models));
        reload(&world.app.catalogs).await.unwrap();
        test(world, &file).await;
    });
}

async fn list_models(world: &World, bearer: &str) -> Vec<String> {
    let list = world.get("/v1/models").bearer(bearer).bare().await;
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the result of one event of 10 and 5 tokens.
async fn report(world: &World, key_id: &str, event: &str, model: &str) -> Value {
    let event = json!({"id": event, "source": "s", "time": "2026-03-09T10:00:00Z", "api_key_id": key_id, "model": model,
                       "kind": "chat", "prompt_tokens": 10, "completion_tokens": 5});
    world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await["results"][0].take()
}

#[on_each_database]
fn models_are_added_and_retired_without_a_restart(database: Database) {
    run_with_file(database, &["stays", "goes"], async |world, file| {
        let ada = world.user("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (key_id, key) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
        let only = json!({"name": "only", "restrictions": {"models": ["goes", "stays"]}});
        let (_, only) = world.old_key(&ada, &place, &only).await;
        let settings = json!({"name": "P", "settings": {"model": "goes"}});
        let projects = format!("{}/projects", place.organization_path());
        world.post(&projects, &settings).bearer(&ada.access_token).data().await;
        for bearer in [&ada.access_token, &key, &only] {
            assert_eq!(list_models(&world, bearer).await, ["stays", "goes"]);
        }
        assert_eq!(report(&world, &key_id, "e1", "goes").await["status"], "accepted");
        let usage = format!("{}/usage", place.project_path());
        let amount = async || {
            let data = world.get(&usage).bearer(&ada.access_token).data().await;
            data["total"]["chat"]["amount"].to_string()
        };
        assert_eq!(amount().await, "0.02");

        // A retired model can't be called, but late usage is still counted at its price.
        let limits = "stays\nmax_tokens = 50\nmax_requests_per_min = 7\nmax_concurrent_requests = 2";
        file.write(&catalog(&[limits, "goes\nretired = true", "acme/new:v2\nparent = \"goes\""]));
        assert_eq!(list_models(&world, &key).await, ["stays", "goes"], "nothing happens without a reload");
        reload(&world.app.catalogs).await.unwrap();
        for bearer in [&ada.access_token, &key] {
            assert_eq!(list_models(&world, bearer).await, ["stays", "acme/new:v2"]);
        }
        assert_eq!(list_models(&world, &only).await, ["stays"]);
        let detail = world.get("/v1/models/stays").bearer(&key).bare().await;
        let limits = json!({"max_tokens": 50, "max_requests_per_min": 7, "max_concurrent_requests": 2});
        assert_eq!(detail["limits"], limits);
        assert_eq!(world.get("/v1/models/acme/new:v2").bearer(&key).bare().await["parent"], "goes");
        for bearer in [&key, &only] {
            let gone = world.get("/v1/models/goes").bearer(bearer).refused().await;
            assert_eq!(gone, (404, "model_not_found".to_owned()));
        }
        let ask = async |model: &str| {
            let call = json!({"credential": key, "operation": "chat", "reserve": false, "model": model});
            world.ask("/service/v1/authorize", &call).bare().await
        };
        assert_eq!(ask("stays").await["max_tokens"], 50);
        assert_eq!(ask("acme/new:v2").await["allowed"], true);
        assert_eq!(
            json!([ask("goes").await["status"], ask("goes").await["code"]]),
            json!([404, "model_not_found"])
        );
        let pricing = world.get("/v1/billing/pricing").bearer(&key).data().await;
        let priced: Vec<_> = pricing["models"].as_object().unwrap().keys().collect();
        assert_eq!(priced, ["acme/new:v2", "stays"]);
        let keys = format!("{}/api-keys", place.project_path());
        for (path, body, param) in [
            (&keys, json!({"name": "x", "restrictions": {"models": ["goes"]}}), "restrictions.models[0]"),
            (&projects, json!({"name": "x", "settings": {"model": "goes"}}), "settings.model"),
        ] {
            let refused = world.post(path, &body).bearer(&ada.access_token).send().await;
            assert_eq!(refused.details(), [format!("{param} unknown_model")]);
        }
        assert_eq!(report(&world, &key_id, "e2", "goes").await["status"], "accepted");
        assert_eq!(amount().await, "0.04");

        // After the model is removed from the file, counted events are still duplicates, and new events have
        // no price.
        file.write(&catalog(&["stays"]));
        reload(&world.app.catalogs).await.unwrap();
        assert_eq!(list_models(&world, &key).await, ["stays"]);
        assert_eq!(report(&world, &key_id, "e2", "goes").await["status"], "duplicate");
        assert_eq!(report(&world, &key_id, "e3", "goes").await["code"], "unknown_model");
        assert_eq!(amount().await, "0.04");
    });
}

#[on_each_database]
fn new_price_applies_from_its_instant(database: Database) {
    run_with_file(database, &["m"], async |world, file| {
        let ada = world.user("ada").await;
        let price = async || {
            let model = world.get("/v1/models/m").bearer(&ada.access_token).bare().await;
            let pricing = world.get("/v1/billing/pricing").bearer(&ada.access_token).data().await;
            let list_models = pricing["models"]["m"]["chat"]["prompt_tokens"].to_string();
            assert_eq!(model["pricing"]["prompt_tokens"].to_string(), list_models);
            list_models
        };
        let place = world.place(&ada, "Acme").await;
        let (key_id, _) = world.old_key(&ada, &place, &json!({"name": "k"})).await;
        assert_eq!(report(&world, &key_id, "e", "m").await["status"], "accepted");
        let with = async |prices: &str| {
            let first = "{ effective_at = 2024-01-01T00:00:00Z, prompt_tokens = \"0.001\", completion_tokens = \"0.002\" }";
            file.write(&catalog(&[&format!("m\nprices = [{first}, {prices}]")]));
            reload(&world.app.catalogs).await.unwrap();
        };
        let second = |prompt: i64| {
            format!(
                "{{ effective_at = 2026-03-10T12:02:00.001Z, prompt_tokens = {prompt}, completion_tokens = 4 }}"
            )
        };
        with(&second(3)).await;
        assert_eq!(price().await, "0.001");
        // A future price may still be changed or removed while all replicas can load the change in time.
        with("").await;
        with(&second(5)).await;
        assert!(!world.app.catalog.is_refused());
        world.clock.advance_ms(61_000);
        with(&second(6)).await;
        assert!(world.app.catalog.is_refused());
        assert_eq!(price().await, "0.001");
        world.clock.advance_ms(59_001);
        world.catch_up().await;
        assert_eq!(price().await, "5");
        with(&second(6)).await;
        assert!(world.app.catalog.is_refused());
        with(&second(5)).await;
        assert!(!world.app.catalog.is_refused());
        assert_eq!(price().await, "5");
    });
}

#[on_each_database]
fn invalid_file_is_refused_as_a_whole(database: Database) {
    run_with_file(database, &["m"], async |world, file| {
        let ada = world.user("ada").await;
        let reloads = world.app.catalog.reloads();
        let good = catalog(&["m", "n"]);
        let broken = [
            "not TOML".to_owned(),
            catalog(&["m", "n\nmax_tokens = 0"]),
            format!("{good}[[volume_discounts]]\nthreshold = 1\n"),
            String::new(),
            catalog(&["m", "m"]),
        ];
        for text in broken {
            file.write(&text);
            reload(&world.app.catalogs).await.unwrap();
            assert_eq!(list_models(&world, &ada.access_token).await, ["m"], "{text}");
            assert!(world.app.catalog.is_refused());
        }
        std::fs::remove_file(&file.path).unwrap();
        reload(&world.app.catalogs).await.unwrap();
        assert_eq!(list_models(&world, &ada.access_token).await, ["m"]);
        let metrics = async |line: &str| {
            let metrics = Call::new(&world.service, Method::GET, "/metrics")
                .bearer(world.app.api.service_token.expose());
            let metrics = metrics.send().await.text;
            assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
        };
        metrics("tollkeeper_catalog_refused 1").await;
        metrics(&format!("tollkeeper_catalog_reloads_total {reloads}")).await;
        file.write(&good);
        reload(&world.app.catalogs).await.unwrap();
        assert_eq!(list_models(&world, &ada.access_token).await, ["m", "n"]);
        metrics("tollkeeper_catalog_refused 0").await;
        metrics(&format!("tollkeeper_catalog_reloads_total {}", reloads + 1)).await;
    });
}

#[on_each_database]
fn reload_request_and_feed_gap_both_reload_the_catalog(database: Database) {
    run_with_file(database, &["m"], async |world, _| {
        let [_, replica] = Twin::both(&world).await;
        let asked = || replica.app.catalog.reload_requested().now_or_never().is_some();
        assert!(asked(), "the file may have changed between the read and the entry in the feed");
        settle(&replica).await;
        assert!(!asked());
        let order = async |at: Time| {
            let mut tx = world.app.db.write().await.unwrap();
            changes::record(&mut tx, Change::Catalog, at).await.unwrap();
            tx.commit().await.unwrap();
        };
        order(world.clock.now()).await;
        assert!(!asked());
        settle(&replica).await;
        assert!(asked() && !asked(), "once");
        assert_eq!(replica.app.feed.restarts(), 0, "keys and sessions stay cached");

        order(world.clock.now()).await;
        let mut tx = world.app.db.write().await.unwrap();
        changes::remove_older_than(&mut tx, world.clock.now().plus_ms(DAY_MS)).await.unwrap();
        tx.commit().await.unwrap();
        settle(&replica).await;
        assert_eq!(replica.app.feed.restarts(), 1);
        assert!(asked(), "the reload was in the gap");
    });
}

#[on_each_database]
fn every_answer_uses_one_catalog(database: Database) {
    let (one, other) = (["a", "b", "c"], ["c\nmax_tokens = 7", "d"]);
    run_with_file(database, &one, async |world, file| {
        let ada = world.user("ada").await;
        let app = world.app.clone();
        let path = file.path.clone();
        let writer = tokio::spawn(async move {
            for turn in 0..60 {
                super::write(&path, &catalog(if turn % 2 == 0 { &other } else { &one }));
                reload(&app.catalogs).await.unwrap();
            }
            app.catalog.reloads()
        });
        let mut seen = [0, 0];
        while !writer.is_finished() || seen == [0, 0] {
            // Keeps ada below her read limit, regardless of the number of answers.
            world.clock.advance_ms(100);
            let pricing = world.get("/v1/billing/pricing").bearer(&ada.access_token).data().await;
            let priced: Vec<_> = pricing["models"].as_object().unwrap().keys().cloned().collect();
            for ids in [priced, list_models(&world, &ada.access_token).await] {
                match ids.join(" ").as_str() {
                    "a b c" => seen[0] += 1,
                    "c d" => seen[1] += 1,
                    mixed => panic!("a mixture: {mixed}"),
                }
            }
        }
        assert_eq!(writer.await.unwrap(), 60);
        assert_eq!(list_models(&world, &ada.access_token).await, one, "the last one is in force");
    });
}
