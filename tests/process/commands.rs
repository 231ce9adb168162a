//! The commands, as a user runs them in a terminal.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use support::postgres::Cluster;
use support::process::{PUBLIC_URL, ProcessResult, Start};
use support::world::{Folder, runtime};
use support::{Database, on_each_database, on_postgres};

const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

#[test]
fn every_command_has_help() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let cases: [(&[&str], &[&str]); 10] = [
        (&["--help"], &["serve", "migrate", "openapi", "config", "--config", "--version", "TOLLKEEPER_"]),
        (&["serve", "--help"], &["--config", "listeners"]),
        (&["migrate", "--help"], &["--config", "--json", "schema"]),
        (&["audit", "--help"], &["--organization <ID>", "--json", "add up"]),
        (&["openapi", "--help"], &["--config", "OpenAPI"]),
        (&["config", "--help"], &["--config", "--json", "secrets hidden"]),
        (&["catalog", "--help"], &["check", "reload", "show"]),
        (&["upstream", "check", "--help"], &["[FILE]", "--json", "models"]),
        (&["catalog", "check", "--help"], &["<FILE>", "--currency <CODE>", "--json", "errors"]),
        (&["catalog", "reload", "--help"], &["--config", "--json", "catalog_file"]),
    ];
    for (arguments, words) in cases {
        let ended = start.command(arguments);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        for word in words {
            assert!(ended.stdout.contains(word), "{arguments:?} without {word}:\n{}", ended.stdout);
        }
    }
    let version = start.command(&["--version"]);
    assert_eq!(version.stdout.trim(), format!("tollkeeper {}", env!("CARGO_PKG_VERSION")));
    for wrong in [["frobnicate"], ["--frobnicate"]] {
        let ended = start.command(&wrong);
        assert_eq!(ended.code, Some(2));
        assert!(ended.log.contains("frobnicate") && ended.stdout.is_empty(), "{}", ended.log);
    }
    assert!(!start.data_dir().exists(), "none of this made anything");
}

#[test]
fn config_shows_everything_but_secrets() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("tollkeeper.toml"), "[billing]\ncurrency = \"EUR\"\n").unwrap();
    let start = Start::new(&folder.0)
        .set("TOLLKEEPER_SERVICE_TOKEN", "hunter2-of-the-service-listener")
        .set("TOLLKEEPER_MASTER_KEY", KEY)
        .set("TOLLKEEPER_DATABASE_URL", "postgres://me:hunter2-of-the-database@db.example/keeper");
    for arguments in [&["config"][..], &["config", "--json"]] {
        let ended = start.command(arguments);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        let shown = ended.stdout;
        assert!(!shown.contains("hunter2") && !shown.contains(KEY), "{shown}");
        let database = "postgres://me:***@db.example/keeper";
        for word in ["EUR", PUBLIC_URL, database] {
            assert!(shown.contains(&format!("\"{word}\"")), "{shown}");
        }
        if arguments.len() == 2 {
            let json: Value = serde_json::from_str(&shown).unwrap();
            assert_eq!([&json["service_token"], &json["master_key"]], [&json!("***"), &json!("***")]);
        } else {
            let lines: Vec<_> = shown.lines().collect();
            assert!(lines.contains(&"service_token = \"***\"") && lines.contains(&"master_key = \"***\""));
        }
    }
    assert!(!start.data_dir().exists(), "looking made nothing");
}

#[test]
fn configuration_mistakes_are_reported_with_their_place() {
    let folder = Folder::new();
    let file = folder.0.join("keeper.toml");
    std::fs::write(&file, "# first line\n\n[limits]\nenabeld = true\n").unwrap();
    let path = file.to_str().unwrap();
    let start = Start::new(&folder.0);
    let expected =
        format!("tollkeeper: {path}:4: unknown key `limits.enabeld` (did you mean `limits.enabled`?)");
    for command in [&["serve"][..], &["migrate"], &["openapi"], &["config"], &["catalog", "reload"]] {
        let ended = start.command(&[command, &["--config", path]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert_eq!(ended.log.trim_end(), expected);
    }
    let missing = start.command(&["config", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.log.contains("nowhere.toml"), "{}", missing.log);

    let ended = start.clone().set("TOLLKEEPER_LISTN", "127.0.0.1:1").command(&["config"]);
    assert_eq!(ended.code, Some(1));
    let words = ["environment variable TOLLKEEPER_LISTN:", "`TOLLKEEPER_LISTEN`"];
    assert!(words.iter().all(|word| ended.log.contains(word)), "{}", ended.log);

    let ended = start.set("TOLLKEEPER_MASTER_KEY", "hunter2").command(&["serve"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("environment variable TOLLKEEPER_MASTER_KEY:"), "{}", ended.log);
    assert!(!ended.log.contains("hunter2"), "{}", ended.log);
}

#[test]
fn non_utf8_variables_are_reported_by_name() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    for (name, value, complaint) in [
        (&b"TOLLKEEPER_MASTER_KEY"[..], &b"hunter\xff2"[..], "TOLLKEEPER_MASTER_KEY: its value is not"),
        (b"TOLLKEEPER_LIST\xffN", b"127.0.0.1:1", "TOLLKEEPER_LIST\u{fffd}N: its name is not"),
    ] {
        let ended = start.clone().set_bytes(name, value).command(&["config"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert_eq!(ended.log.trim_end(), format!("tollkeeper: environment variable {complaint} valid UTF-8"));
    }
    // Variables of other programs are ignored, and a file name may have any bytes.
    std::fs::write(folder.0.join(OsStr::from_bytes(b"\xff.toml")), "listen = \"127.0.0.1:7\"\n").unwrap();
    let others = start.set_bytes(b"LESS\xff", b"1").set_bytes(b"LESS", b"\xff");
    let ended = others.set_bytes(b"TOLLKEEPER_CONFIG", b"\xff.toml").command(&["config"]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("listen = \"127.0.0.1:7\""), "{}", ended.stdout);
}

#[test]
fn occupied_port_is_reported_with_its_setting() {
    let folder = Folder::new();
    let (taken, other) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = taken.local_addr().unwrap().to_string();
    // The server never binds this address, because the first listener that fails stops the start.
    let free = other.local_addr().unwrap().to_string();
    for (variable, key) in [("TOLLKEEPER_LISTEN", "listen"), ("TOLLKEEPER_SERVICE_LISTEN", "service_listen")]
    {
        let start = Start::new(&folder.0)
            .set("TOLLKEEPER_LISTEN", "127.0.0.1:0")
            .set("TOLLKEEPER_SERVICE_LISTEN", &free)
            .set(variable, &address);
        let ended = start.command(&["serve"]);
        assert_eq!(ended.code, Some(1));
        let complaint = ended.log.lines().find(|line| line.starts_with("tollkeeper: ")).unwrap();
        for word in [address.as_str(), &format!("`{key}`"), variable, "in use"] {
            assert!(complaint.contains(word), "no {word} in {complaint}");
        }
    }
}

#[on_each_database]
fn migrate_reports_its_steps(database: Database) {
    database.run_empty(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let first = start.command(&["migrate", "--json"]);
        assert_eq!((first.code, first.log.as_str()), (Some(0), ""));
        let first: Value = serde_json::from_str(&first.stdout).unwrap();
        assert_eq!(first["from"], 0);
        let to = first["to"].as_i64().unwrap();
        let applied: Vec<_> = first["applied"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert!(applied[0].starts_with("\"V1__"), "{applied:?}");
        assert!(applied[applied.len() - 1].starts_with(&format!("\"V{to}__")), "{applied:?}");
        let again = start.command(&["migrate", "--json"]);
        let again: Value = serde_json::from_str(&again.stdout).unwrap();
        assert_eq!(again, json!({"from": to, "to": to, "applied": []}));
        let again = start.command(&["migrate"]);
        assert_eq!(again.code, Some(0));
        assert_eq!(again.stdout.trim_end(), format!("The database already has schema {to}."));
        // The server starts on the migrated database.
        assert!(start.run().stop().log.contains("database is ready"));
    });
    let folder = Folder::new();
    let fresh = Start::new(&folder.0).command(&["migrate"]);
    assert_eq!(fresh.code, Some(0));
    assert!(fresh.stdout.contains("applied: V1__"), "{}", fresh.stdout);
}

#[on_postgres]
fn newer_schema_is_refused(_: Database) {
    const FUTURE: &str = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
                          VALUES (9999, 'future', '2099-01-01T00:00:00Z', '0')";
    let assert_refused = |start: &Start| {
        for ended in [start.refused(), start.command(&["migrate"]), start.command(&["migrate", "--json"])] {
            let ProcessResult { code, stdout, log } = ended;
            assert_eq!((code, stdout.as_str()), (Some(1), ""));
            let complaint = log.lines().find(|line| line.starts_with("tollkeeper: ")).unwrap();
            let words = ["schema 9999", "newer version", "nothing was changed"];
            assert!(words.iter().all(|word| complaint.contains(word)), "{log}");
        }
    };
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    assert_eq!(start.command(&["migrate"]).code, Some(0));
    let file = rusqlite::Connection::open(start.data_dir().join("tollkeeper.db")).unwrap();
    file.execute(FUTURE, []).unwrap();
    drop(file);
    assert_refused(&start);

    let Some(cluster) = Cluster::shared() else { return };
    let url = runtime().block_on(async {
        let url = cluster.new_database().await;
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        client.execute(FUTURE, &[]).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
        url
    });
    assert_refused(&Start::new(&Folder::new().0).database(Some(&url)));
}

#[test]
fn openapi_command_prints_the_served_document() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let printed = start.clone().set("TOLLKEEPER_PUBLIC_URL", "https://other.example").command(&["openapi"]);
    assert_eq!((printed.code, printed.log.as_str()), (Some(0), ""));
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert!(!start.data_dir().exists(), "the command needs no data folder");
    let served = start.run().get("/openapi.json").bare();
    assert_eq!(printed["servers"][0]["url"], "https://other.example");
    assert_eq!(served["servers"][0]["url"], PUBLIC_URL);
    // The server and the command use different ports, and examples contain the URLs too.
    let [printed, served] = [printed, served].map(|document| {
        let addresses = [&document["servers"][0], &document["paths"]["/metrics"]["get"]["servers"][0]];
        let addresses = addresses.map(|server| server["url"].as_str().unwrap());
        let named = document.to_string().replace(addresses[0], "PUBLIC").replace(addresses[1], "SERVICE");
        serde_json::from_str::<Value>(&named).unwrap()
    });
    assert_eq!(printed, served);
}

#[test]
fn closed_pipe_is_not_an_error() {
    let folder = Folder::new();
    let start =
        Start::new(&folder.0).through(&["sh", "-c", "\"$0\" openapi | head -c 1; exec \"$0\" config"]);
    let ended = start.command(&[]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
}
