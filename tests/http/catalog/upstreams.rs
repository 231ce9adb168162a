//! Upstreams and routes: checks, reloads, and credentials that are never shown.

use serde_json::{Value, json};
use tollkeeper::catalog::activation::reload;
use tollkeeper::db::Change;

use super::processes::send_sighup;
use super::{File, catalog};
use support::process::Start;
use support::twin::{Twin, settle};
use support::world::{Folder, World};
use support::{Database, on_each_database};

/// Returns the text of an upstream with its id, its kind and further keys.
fn upstream(id: &str, kind: &str, keys: &str) -> String {
    format!(
        "[[upstreams]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"http://192.0.2.5:8000/path-word/v1\"\n{keys}\n"
    )
}

/// Writes the file of a credential next to a catalog; only the owner can read it.
fn write_credential(file: &File, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = file.path.with_file_name("a.key");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

const BY_FILE: &str = "credential_file = \"a.key\"";

#[test]
fn check_shows_routes_and_no_credential() {
    let (folder, file) = (Folder::new(), File::new(&[]));
    let name = file.name();
    let routes =
        "m\nroutes = [{ upstream = \"a\", model = \"llama\", weight = 2 }, { upstream = \"b\", tier = 1 }]";
    let text = upstream("a", "vllm", BY_FILE)
        + &upstream("b", "openai", "credential_env = \"B_KEY\"")
        + "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\n"
        + &catalog(&[routes, "n"]);
    file.write(&text);
    write_credential(&file, "file-word\n");
    let start = Start::new(&folder.0).set("B_KEY", "variable-word");
    let ended = start.command(&["catalog", "check", name]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    let limits = "(chat): at most 100 tokens per request, 60 requests per minute, 5 concurrent requests";
    let price = "  from 2024-01-01T00:00:00.000Z: prompt 0.001, completion 0.002 per token (in force)";
    let clear = "`url`: the credential is sent in the clear over a public network: use https";
    let expected = format!(
        "{name} is a valid catalog: 2 models, 0 retired, 0 volume discounts, 3 upstreams.
m {limits}
{price}
  routes: llama at a (weight 2), m at b (tier 1)
n {limits}
{price}
warning: {name}:1: upstream `a`: {clear}
warning: {name}:6: upstream `b`: {clear}
warning: {name}:11: upstream `demo`: no model has a route to it
"
    );
    assert_eq!(ended.stdout, expected);

    let ended = start.command(&["catalog", "check", "--json", name]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let routes = json!([{"upstream": "a", "model": "llama", "weight": 2, "tier": 0, "cost": null},
                        {"upstream": "b", "model": "m", "weight": 1, "tier": 1, "cost": null}]);
    let url = "http://192.0.2.5:8000";
    let upstreams = json!([{"id": "a", "kind": "vllm", "url": url, "has_credential": true},
                           {"id": "b", "kind": "openai", "url": url, "has_credential": true},
                           {"id": "demo", "kind": "demo", "url": null, "has_credential": false}]);
    assert_eq!((&report["models"][0]["routes"], &report["models"][1]["routes"]), (&routes, &json!([])));
    assert_eq!(report["upstreams"], upstreams);
    assert!(!ended.stdout.contains("word"), "{}", ended.stdout);

    write_credential(&file, "file-word\nfile-word");
    for start in [&start, &start.clone().set("B_KEY", "variable word"), &start.clone().unset("B_KEY")] {
        for arguments in [&["catalog", "check", name][..], &["catalog", "check", name, "--json"]] {
            let ended = start.command(arguments);
            assert_eq!(ended.code, Some(1));
            let place = format!("{name}:5: upstream `a`: `credential_file`: the file ");
            assert!(ended.log.contains(&place), "{}", ended.log);
            assert!(!format!("{}{}", ended.log, ended.stdout).contains("word"), "{}", ended.log);
        }
    }
    let ended = start.clone().unset("B_KEY").command(&["catalog", "check", name]);
    let mistake =
        format!("{name}:10: upstream `b`: `credential_env`: the environment variable B_KEY isn't set");
    assert!(ended.log.contains(&mistake), "{}", ended.log);
}

#[on_each_database]
fn routes_are_each_replicas_own(database: Database) {
    let file = File::new(&["m"]);
    database.run(&[("TOLLKEEPER_CATALOG_FILE", file.name())], async |world| {
        file.write(&catalog(&["m"]));
        reload(&world.app.catalogs).await.unwrap();
        let [own, other] = Twin::both(&world).await;
        let routes = |twin: &Twin| {
            let now = twin.app.catalog.now();
            now.get("m").unwrap().routes.iter().map(|route| route.upstream.id.clone()).collect::<Vec<_>>()
        };
        let before = own.app.catalog.status();
        assert!(routes(&own).is_empty() && own.app.catalog.now().upstreams().is_empty());
        file.write(&(upstream("a", "vllm", "") + &catalog(&["m\nroutes = [{ upstream = \"a\" }]"])));
        reload(&own.app.catalogs).await.unwrap();
        assert_eq!((routes(&own), routes(&other)), (vec!["a".to_owned()], vec![]));
        // The same prices and limits are in force, so neither file is outdated.
        assert_eq!(own.app.catalog.status(), before);
        settle(&other).await;
        reload(&own.app.catalogs).await.unwrap();
        assert!(!own.app.catalog.is_outdated() && !other.app.catalog.is_outdated());

        let mut tx = world.app.db.write().await.unwrap();
        let now = world.clock.now();
        tollkeeper::cluster::changes::record(&mut tx, Change::Catalog, now).await.unwrap();
        tx.commit().await.unwrap();
        settle(&other).await;
        other.app.catalog.reload_requested().await;
        reload(&other.app.catalogs).await.unwrap();
        assert_eq!(routes(&other), ["a"]);
    });
}

#[on_each_database(&[])]
async fn built_in_catalog_is_served_by_the_demo(world: World) {
    let catalog = world.app.catalog.now();
    assert!(catalog.uses_demo());
    assert!(catalog.models().all(|model| model.routes[0].upstream.id == "demo"));
}

#[on_each_database]
fn servers_follow_upstreams_and_log_no_credential(database: Database) {
    database.run_processes(|url, folder| {
        let file = File::new(&[]);
        let routed =
            |keys: &str| upstream("a", "vllm", keys) + &catalog(&["m\nroutes = [{ upstream = \"a\" }]"]);
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_CATALOG_FILE", file.name());
        file.write(&routed(BY_FILE));
        let server = start.launch();
        let ended = server.wait();
        let mistake = "catalog.toml:5: upstream `a`: `credential_file`: the file ";
        assert!(ended.code == Some(1) && ended.log.contains(mistake), "{}", ended.log);

        write_credential(&file, "first-word\n");
        let server = start.run();
        server.wait_for_log("catalog.toml:1: upstream `a`: `url`: the credential is sent in the clear");
        // Only the file of the credential changes.
        write_credential(&file, "second-word\n");
        send_sighup(&server);
        server.wait_for_log("changed=\"m\" upstreams=\"a\"");
        write_credential(&file, "third word\n");
        send_sighup(&server);
        server.wait_for_log("the new catalog isn't used: the previous one stays in force");
        file.write(&(routed("") + "[[upstreams]]\nid = \"new\"\nkind = \"demo\"\n"));
        let ended = start.command(&["catalog", "reload"]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(ended.stdout.contains("upstream `new`: no model has a route to it"), "{}", ended.stdout);
        server.wait_for_log("changed=\"m\" upstreams=\"a, new\"");
        assert_eq!(server.get("/readyz").send().status, 200);
        let log = server.log();
        assert!(!log.contains("-word") && !log.contains("third word"), "{log}");
        assert_eq!(server.stop().code, Some(0));
    });
}
