//! `tollkeeper providers check` and `reload`, and the reaction of a running server.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::cluster::changes::{self, Change};

use super::{START, with_provider};
use support::identity_provider::{CLIENT_SECRET, IdentityProvider, Jar};
use support::process::run_to_end;
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

fn command(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    command.current_dir(&folder.0).env_clear().arg("providers").args(words);
    command
}

fn file(folder: &Folder, text: &str) {
    std::fs::write(folder.0.join("secret"), CLIENT_SECRET).unwrap();
    std::fs::write(folder.0.join("providers.toml"), text).unwrap();
}

#[test]
fn check_asks_each_issuer() {
    let folder = Folder::new();
    runtime().block_on(async {
        let provider = IdentityProvider::start().await;
        let entry = |id: &str, issuer: &str| {
            format!(
                "[[providers]]\nid = \"{id}\"\nname = \"{id}\"\nissuer = \"{issuer}\"\nclient_id = \"c\"\nclient_secret_file = \"secret\"\n"
            )
        };
        file(&folder, &entry("acme", &provider.issuer));
        let check = command(&folder, &["check", "providers.toml", "--json"]);
        let ended = tokio::task::spawn_blocking(|| run_to_end(check)).await.unwrap();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&report["valid"], &report["providers"][0]["answers"]), (&json!(true), &json!(true)));
        // The issuer differs from the one in its metadata: only a request to the provider finds this mistake.
        let slashed = format!("{}/", provider.issuer);
        file(&folder, &entry("acme", &slashed));
        let check = command(&folder, &["check", "providers.toml"]);
        let ended = tokio::task::spawn_blocking(|| run_to_end(check)).await.unwrap();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stdout.contains("another issuer"), "{ended:?}");
    });
}

#[test]
fn every_mistake_is_told_at_once_and_stops_the_start() {
    let folder = Folder::new();
    file(&folder, "[[providers]]\nid = \"acme\"\nissuer = \"http://id.example.com\"\nscope = 1\n");
    let ended = run_to_end(command(&folder, &["check", "providers.toml"]));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in
        ["providers.toml:1: provider `acme`: the key `name`", "`client_secret_file`", "`issuer`", "`scopes`"]
    {
        assert!(ended.log.contains(part), "{part}: {}", ended.log);
    }
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    serve.current_dir(&folder.0).env_clear().env("TOLLKEEPER_SIGN_IN__PROVIDERS_FILE", "providers.toml");
    let ended = run_to_end(serve);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.log.contains("the key `name` is missing"), "{}", ended.log);
}

#[on_each_database]
fn a_reload_is_ordered_through_the_database(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let providers = &world.app.accounts.providers;
        let wait = || tokio::time::timeout(Duration::from_secs(5), providers.reload_requested());
        // Takes the reload that the start requested.
        drop(wait().await);
        let mut tx = world.app.db.write().await.unwrap();
        changes::record(&mut tx, Change::Catalog, world.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        world.catch_up().await;
        assert!(wait().await.is_ok());
        // A file with a mistake changes nothing.
        std::fs::write(file.path(), "[[providers]]\n").unwrap();
        assert!(providers.reload().is_err());
        assert_eq!(Jar::default().click(&world, START).await.status, 303);
        file.write(&world, &[("other", &provider.issuer, "")]);
        assert_eq!(Jar::default().click(&world, START).await.status, 404);
    });
}
