//! Versions of prices and discounts with server processes and commands: the catalog in force and the recorded
//! versions.

use serde_json::{Value, json};
use tollkeeper::db::{Db, sql};

use super::{File, catalog};
use support::process::{Server, Start, until};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

fn not_ready(server: &Server) -> Option<String> {
    let answer = server.get("/readyz").send();
    (answer.status == 503).then(|| answer.json()["error"]["message"].as_str().unwrap().to_owned())
}

fn count_rows(start: &Start, text: &'static str) -> i64 {
    let db = Db::open(&start.database_settings()).unwrap();
    let (count,) = runtime().block_on(async { sql(text).one(&mut db.read().await.unwrap()).await.unwrap() });
    count
}

#[on_each_database]
fn rolling_file_changes_end_in_one_catalog(database: Database) {
    database.run_processes(|url, folder| {
        let files = [File::new(&["m"]), File::new(&["m"])];
        let start =
            |file: &File| Start::new(&folder.0).database(url).set("TOLLKEEPER_CATALOG_FILE", file.name());
        let servers = files.each_ref().map(|file| start(file).run());
        files[0].write(&catalog(&["m", "n"]));
        let ended = start(&files[0]).command(&["catalog", "reload"]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(until(|| not_ready(&servers[1]).is_some()), "{}", servers[1].log());
        assert_eq!(not_ready(&servers[0]), None);
        assert!(
            not_ready(&servers[1])
                .unwrap()
                .starts_with("catalog: This server's catalog isn't the one in force")
        );
        // A restart changes nothing.
        let again = start(&files[1]).listening();
        assert!(until(|| again.log().contains("another catalog is in force")), "{}", again.log());
        assert!(until(|| not_ready(&again).is_some_and(|why| why.starts_with("catalog: "))));
        assert_eq!(again.stop().code, Some(0));
        // The new file needs no explicit reload.
        files[1].write(&catalog(&["m", "n"]));
        assert!(until(|| not_ready(&servers[1]).is_none()), "{}", servers[1].log());
        assert_eq!(count_rows(&start(&files[0]), "SELECT COUNT(*) FROM catalogs"), 2);

        // The old file comes into force only with an explicit reload.
        files[1].write(&catalog(&["m"]));
        let ended = start(&files[1]).command(&["catalog", "reload", "--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(until(|| not_ready(&servers[0]).is_some()), "{}", servers[0].log());
        assert!(until(|| not_ready(&servers[1]).is_none()), "{}", servers[1].log());
        for server in servers {
            assert_eq!(server.stop().code, Some(0));
        }
    });
}

#[on_each_database]
fn concurrent_starts_record_each_version_once(database: Database) {
    database.run_processes(|url, folder| {
        let file = File::new(&["m", "n"]);
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_CATALOG_FILE", file.name());
        let servers: Vec<_> = (0..4).map(|_| start.launch()).collect();
        assert!(until(|| servers.iter().all(|server| server.log().contains("listening"))));
        let started = |server: &Server| server.get("/readyz").send().status == 200;
        assert!(until(|| servers.iter().all(started)), "{}", servers[0].log());
        for (text, count) in [
            ("SELECT COUNT(*) FROM catalogs", 1),
            ("SELECT COUNT(*) FROM price_versions", 2),
            ("SELECT COUNT(*) FROM discount_versions", 1),
        ] {
            assert_eq!(count_rows(&start, text), count, "{text}");
        }
        for server in servers {
            assert_eq!(server.stop().code, Some(0));
        }
    });
}

#[on_each_database]
fn versions_command_shows_the_recorded_versions(database: Database) {
    database.run_processes(|url, folder| {
        let price = |at: &str, prompt: &str| {
            format!("{{ effective_at = {at}, prompt_tokens = \"{prompt}\", completion_tokens = \"0.5\" }}")
        };
        let prices = [
            price("2024-01-01T00:00:00Z", "0.000000000001"),
            price("2025-01-01T00:00:00Z", "0.25"),
            price("2999-01-01T00:00:00Z", "2\", cached_prompt_tokens = \"0.000000000001"),
        ];
        let tiers = "[[volume_discounts]]\nthreshold = 5\ndiscount = \"0.05\"\n[[volume_discounts]]\nthreshold = 9\ndiscount = \"0.1\"\n\
                     [[volume_discounts]]\neffective_at = 2025-06-01T00:00:00Z\nthreshold = 0\ndiscount = 0\n";
        let file = File::new(&[]);
        file.write(&(catalog(&[&format!("m\nprices = [{}]", prices.join(", "))]) + tiers));
        let start = Start::new(&folder.0).database(url);
        let server = start.clone().set("TOLLKEEPER_CATALOG_FILE", file.name()).run();
        let shown = start.command(&["catalog", "show"]);
        let expected = "m
  from 2024-01-01T00:00:00.000Z: prompt 0.000000000001, completion 0.5 per token (past)
  from 2025-01-01T00:00:00.000Z: prompt 0.25, completion 0.5 per token (in force)
  from 2999-01-01T00:00:00.000Z: prompt 2, cached prompt 0.000000000001, completion 0.5 per token (to come)
volume discounts
  since ever: 0.05 above 5, 0.1 above 9 (past)
  from 2025-06-01T00:00:00.000Z: none (in force)
";
        assert_eq!((shown.code, shown.stdout.as_str(), shown.log.as_str()), (Some(0), expected, ""));
        let shown = start.command(&["catalog", "show", "--json"]);
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        let price = &shown["models"][0]["prices"][1];
        let expected = json!({"effective_at": "2025-01-01T00:00:00.000Z", "prompt_tokens": "0.25",
                              "cached_prompt_tokens": null, "completion_tokens": "0.5", "components": {},
                              "conditions": {"service_tier": null, "above_prompt_tokens": null, "hours": null},
                              "state": "in force"});
        assert_eq!(shown["models"][0]["prices"][2]["cached_prompt_tokens"], "0.000000000001");
        assert_eq!((price, &shown["models"][0]["id"]), (&expected, &json!("m")));
        let discounts = json!([
            {"effective_at": "1970-01-01T00:00:00.000Z", "state": "past",
             "tiers": [{"threshold": 5, "discount": "0.05"}, {"threshold": 9, "discount": "0.1"}]},
            {"effective_at": "2025-06-01T00:00:00.000Z", "state": "in force", "tiers": []}]);
        assert_eq!(shown["volume_discounts"], discounts);
        assert_eq!(server.stop().code, Some(0));
        // Recorded versions are immutable: no statement changes or removes them.
        let db = Db::open(&start.database_settings()).unwrap();
        for text in [
            "UPDATE price_versions SET prompt_pico = 1",
            "DELETE FROM price_versions",
            "UPDATE discount_versions SET tiers = ''",
            "DELETE FROM discount_versions",
            "UPDATE catalogs SET number = 7",
            "DELETE FROM catalogs",
        ] {
            let changed =
                runtime().block_on(async { sql(text).execute(&mut db.write().await.unwrap()).await });
            assert!(changed.is_err(), "{text}");
        }
    });
}

#[test]
fn file_is_checked_for_its_currency() {
    let folder = Folder::new();
    let (file, start) = (File::new(&["m"]), Start::new(&folder.0));
    let check = |currency: &str| start.command(&["catalog", "check", file.name(), "--currency", currency]);
    let name = file.name().to_owned();
    let said = check("USD");
    let missing =
        format!("tollkeeper: {name}: the key `currency` is missing: add `currency = \"USD\"` at the top\n");
    assert_eq!((said.code, said.log), (Some(1), missing));
    file.write(&format!("currency = \"JPY\"\n{}", catalog(&["m"])));
    let said = check("USD");
    let other = format!("tollkeeper: {name}: `currency`: the prices are in JPY, not in USD\n");
    assert_eq!((said.code, said.log), (Some(1), other));
    assert_eq!(check("JPY").code, Some(0));
    // A server with another currency doesn't start with this catalog.
    let refused = start.set("TOLLKEEPER_CATALOG_FILE", file.name()).refused();
    assert_eq!(refused.code, Some(1));
    let line = "catalog.toml:1: `currency`: the prices are in JPY, and `billing.currency` is USD";
    assert!(refused.log.contains(line), "{}", refused.log);
}
