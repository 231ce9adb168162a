//! Reloads of server processes: by SIGHUP, and by the command that reaches all replicas.

use std::process::Command;

use serde_json::Value;

use super::{File, catalog};
use support::process::{Server, Start, until};
use support::world::Folder;
use support::{Database, on_each_database};

pub fn send_sighup(server: &Server) {
    let order = format!("kill -HUP {}", server.pid());
    assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
}

fn list_models(server: &Server, bearer: &str) -> String {
    let list = server.get("/v1/models").bearer(bearer).bare();
    let ids: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect();
    ids.join(" ")
}

#[test]
fn sighup_reloads_the_file() {
    let (folder, file) = (Folder::new(), File::new(&["m"]));
    let server = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", file.name()).run();
    let ada = server.sign_up("ada").access_token;
    assert_eq!(list_models(&server, &ada), "m");
    send_sighup(&server);
    server.wait_for_log("the catalog was read again: nothing has changed");

    file.write(&catalog(&["m", "new\nprices = []", "old\nretired = true"]));
    send_sighup(&server);
    server.wait_for_log("the catalog was read again and is in force");
    assert_eq!(list_models(&server, &ada), "m new");
    server.wait_for_log("catalog.toml:11: model `new`: it has no price: it is listed, and can't be used now");

    for (models, mistakes) in [
        (
            &["m\nmax_token = 5", "n"][..],
            &["catalog.toml:11: model `m`: unknown key `max_token` (did you mean `max_tokens`?)"][..],
        ),
        (
            &["m\ndimension = 5", "m"],
            &[
                "catalog.toml:11: model `m`: `dimension`: only embedding models have one",
                "catalog.toml:12: model `m`: `id`: two models have this id",
            ],
        ),
    ] {
        file.write(&catalog(models));
        send_sighup(&server);
        server.wait_for_log(&format!("mistakes={}", mistakes.len()));
        let log = server.log();
        let is_error =
            |mistake: &&str| log.lines().any(|line| line.contains(*mistake) && line.contains("ERROR"));
        assert!(mistakes.iter().all(is_error), "{log}");
    }
    assert!(server.log().contains("the new catalog isn't used: the previous one stays in force"));
    assert_eq!(list_models(&server, &ada), "m new");

    file.write(&catalog(&["m"]));
    send_sighup(&server);
    server.wait_for_log("model `old` is no longer in the catalog");
    assert_eq!(list_models(&server, &ada), "m");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn sighup_without_a_file_does_nothing() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).run();
    send_sighup(&server);
    server.wait_for_log("no `catalog_file` is configured: the built-in catalog is in use");
    assert_eq!(server.get("/readyz").send().status, 200);
    assert_eq!(server.stop().code, Some(0));
    let ended = Start::new(&folder.0).command(&["catalog", "reload"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.log.contains("no `catalog_file` is configured here"), "{}", ended.log);
}

#[on_each_database]
fn reload_command_reaches_every_replica(database: Database) {
    database.run_processes(|url, folder| {
        let files = [File::new(&["m"]), File::new(&["m"])];
        let start =
            |file: &File| Start::new(&folder.0).database(url).set("TOLLKEEPER_CATALOG_FILE", file.name());
        let servers = files.each_ref().map(|file| start(file).run());
        let ada = servers[0].sign_up("ada").access_token;
        // The command finds a mistake before any server does.
        files[0].write(&catalog(&["m\nmax_tokens = 0"]));
        let ended = start(&files[0]).command(&["catalog", "reload"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        let mistake =
            "catalog.toml:10: model `m`: `max_tokens`: expected a whole number from 1 to 1000000000, found 0";
        assert!(ended.log.contains(mistake), "{}", ended.log);

        for file in &files {
            file.write(&catalog(&["m", "n"]));
        }
        let ended = start(&files[0]).command(&["catalog", "reload", "--json"]);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&report["valid"], report["models"].as_array().unwrap().len()), (&true.into(), 2));
        for server in &servers {
            assert!(until(|| list_models(server, &ada) == "m n"), "{}", server.log());
            assert!(!server.log().contains("refused"), "{}", server.log());
        }

        // Each server reads its own file: an invalid file on one machine is refused only there.
        files[0].write(&catalog(&["m", "n", "o"]));
        files[1].write("models = 1");
        let ended = start(&files[0]).command(&["catalog", "reload"]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(
            ended.stdout.contains("3 models") && ended.stdout.contains("within a second"),
            "{}",
            ended.stdout
        );
        assert!(until(|| list_models(&servers[0], &ada) == "m n o"), "{}", servers[0].log());
        servers[1].wait_for_log("catalog.toml:1: `models`: expected a list, found 1");
        assert_eq!(list_models(&servers[1], &ada), "m n");
        let trail = start(&files[0]).command(&["audit-log", "--action", "catalog.reload_ordered"]).stdout;
        assert_eq!(trail.lines().filter(|line| line.contains("  operator  ")).count(), 2, "{trail}");
        for server in servers {
            assert_eq!(server.stop().code, Some(0));
        }
    });
}
