//! `tollkeeper backup` while a server runs, and restoring the backup: docs/operations.md, "Backup and
//! restore".

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use support::postgres::{Cluster, binaries};
use support::process::{Account, Place, Server, Start, run_to_end, skipped, until};
use support::world::{Folder, runtime};
use support::{Database, on_each_database};

/// Padding of the SQLite database, so that a copy takes longer than a write.
const PADDING_KIB: u64 = 64 * 1024;

/// The result of each reported event, and the time that its answer took.
type ReportedEvents = Mutex<Vec<(String, Duration)>>;

/// Reports events one after another until stopped. Each event must be accepted.
fn load(server: &Server, place: &Place, reported: &ReportedEvents, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (event, begun) = (format!("load-{number}"), Instant::now());
        assert_eq!(server.report(place, &event), "accepted");
        reported.lock().unwrap().push((event, begun.elapsed()));
    }
}

/// Runs the documented backup command.
fn back_up(start: &Start, on_postgres: bool, file: &Path) {
    let text = file.to_str().unwrap();
    if !on_postgres {
        let ended = start.command(&["backup", "--to", text, "--json"]);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        let output: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&output["checked"], &output["file"]), (&json!(true), &json!(text)));
        assert_eq!(output["size_bytes"], std::fs::metadata(file).unwrap().len());
        return;
    }
    let ended = start.command(&["backup", "--to", text, "--json"]);
    assert_eq!(ended.code, Some(2));
    let output: Value = serde_json::from_str(&ended.stdout).unwrap();
    let command = output["command"].as_str().unwrap();
    assert!(ended.log.contains(command), "{}", ended.log);
    shell(command);
}

/// Runs a shell command with PostgreSQL's own programs.
fn shell(line: &str) {
    let mut command = Command::new("sh");
    let path = format!("{}:{}", binaries().unwrap().display(), std::env::var("PATH").unwrap());
    command.args(["-c", line]).env("PATH", path);
    let ended = run_to_end(command);
    assert_eq!(ended.code, Some(0), "{line}\n{}", ended.log);
}

/// Replaces the database with the backup. Returns the settings for a start on it.
fn restore(start: Start, on_postgres: bool, file: &Path) -> Start {
    if on_postgres {
        let url = runtime().block_on(Cluster::shared().unwrap().empty_database());
        let options = "--exit-on-error --single-transaction --no-owner --no-privileges";
        shell(&format!("pg_restore {options} --dbname='{url}' '{}'", file.display()));
        return start.database(Some(&url));
    }
    for name in ["tollkeeper.db", "tollkeeper.db-wal", "tollkeeper.db-shm"] {
        let lost = start.data_dir().join(name);
        assert!(std::fs::remove_file(&lost).is_ok() || name != "tollkeeper.db", "{}", lost.display());
    }
    std::fs::copy(file, start.data_dir().join("tollkeeper.db")).unwrap();
    start
}

#[on_each_database]
fn restore_has_every_event_answered_before_the_backup(database: Database) {
    database.run_empty(|url, folder| {
        let on_postgres = url.is_some();
        if on_postgres && !binaries().unwrap().join("pg_dump").exists() {
            skipped("backup of PostgreSQL", "no pg_dump next to the server's programs");
            return;
        }
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let other_key = make_key(&server, &ada, &place);
        if !on_postgres {
            add_foreign_table(&start);
        }
        let file = folder.0.join("backup of today.bin");
        let (reported, stop) = (ReportedEvents::default(), AtomicBool::new(false));
        let (before, after) = std::thread::scope(|scope| {
            scope.spawn(|| load(&server, &place, &reported, &stop));
            let count = || reported.lock().unwrap().len();
            assert!(until(|| count() >= 5));
            let before = count();
            back_up(&start, on_postgres, &file);
            let after = count();
            assert!(until(|| count() >= after + 5), "the load continues");
            stop.store(true, Ordering::Relaxed);
            (before, after)
        });
        let reported = reported.into_inner().unwrap();
        // While 64 MiB are copied, read and synced, the server answers more than one event, so it isn't
        // blocked.
        assert!(after > before + 1, "the backup kept writers waiting: {before}, {after}");
        let slowest = reported.iter().map(|(_, took)| *took).max().unwrap();
        assert!(slowest < Duration::from_secs(3), "a report took {slowest:?}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        // Changes after the backup, including deletions, are lost with the database. The audit trail shows
        // them before that.
        let path = format!("{}/api-keys/{}", place.project_path, other_key.0);
        delete(&server, &path, &ada);
        let trail = start.command(&["audit-log", "--action", "api_key.deleted", "--json"]).stdout;
        assert!(trail.contains(&other_key.0), "{trail}");
        assert_eq!(server.kill().code, None);

        let server = restore(start, on_postgres, &file).run();
        // The session, the password and the keys are still valid.
        for token in [&ada.access_token, &server.log_in("ada").access_token] {
            assert_eq!(server.get("/v1/auth/me").bearer(token).data()["user"]["username"], "ada");
        }
        for key in [&place.key, &other_key.1] {
            let asked = json!({"credential": key, "operation": "chat", "model": "svc-1"});
            assert_eq!(server.ask("/service/v1/authorize", &asked).bare()["allowed"], true);
        }
        // Events from before the backup exist once. Later events exist once after they are reported again.
        let restored = server.requests(&place, &ada);
        assert!(restored >= i64::try_from(before).unwrap(), "{restored} of {before}");
        for (index, (event, _)) in reported.iter().enumerate() {
            let status = server.report(&place, event);
            assert!(status == "duplicate" || (status == "accepted" && index >= before), "{event}: {status}");
        }
        assert_eq!(server.requests(&place, &ada), i64::try_from(reported.len()).unwrap());
        delete(&server, &path, &ada);
        let asked = json!({"credential": other_key.1, "operation": "chat", "model": "svc-1"});
        assert_eq!(server.ask("/service/v1/authorize", &asked).bare()["allowed"], false);
        assert_eq!(server.stop().code, Some(0));
    });
}

fn make_key(server: &Server, owner: &Account, place: &Place) -> (String, String) {
    let path = format!("{}/api-keys", place.project_path);
    let made = server.post(&path, &json!({"name": "Other"})).bearer(&owner.access_token).data();
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

fn delete(server: &Server, path: &str, owner: &Account) {
    let call = support::process::Wire::new(server.public, "DELETE", path).bearer(&owner.access_token);
    assert_eq!(call.send().status, 200);
}

/// Creates a large table in the database that isn't ours.
fn add_foreign_table(start: &Start) {
    let driver = rusqlite::Connection::open(start.data_dir().join("tollkeeper.db")).unwrap();
    driver.busy_timeout(Duration::from_secs(30)).unwrap();
    let rows = format!(
        "CREATE TABLE filling (content BLOB) STRICT;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {PADDING_KIB})
         INSERT INTO filling SELECT randomblob(1000) FROM n;"
    );
    driver.execute_batch(&rows).unwrap();
}

#[test]
fn backup_lists_what_it_leaves_out_and_overwrites_nothing() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let file = folder.0.join("a.db");
    let to = ["backup", "--to", file.to_str().unwrap()];
    let ended = start.command(&to);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("no database found at"), "{}", ended.log);
    assert!(!start.data_dir().exists() && !file.exists(), "looking made nothing");

    let server = start.run();
    server.settle(&server.sign_up("ada"));
    // After a crash, the newest writes are in the journal next to the database. They belong in the backup.
    server.kill();
    let ended = start.command(&to);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    let key_file = start.data_dir().join("master.key");
    for word in [
        "was verified",
        "schema ",
        "master key is not in the backup",
        "in a different place than this file",
        key_file.to_str().unwrap(),
    ] {
        assert!(ended.stdout.contains(word), "no {word:?} in:\n{}", ended.stdout);
    }
    let content = std::fs::read(&file).unwrap();
    let key = std::fs::read(&key_file).unwrap();
    assert!(!content.windows(key.len()).any(|window| window == key));
    let copy = rusqlite::Connection::open(&file).unwrap();
    let users: i64 = copy.query_row("SELECT COUNT(*) FROM users", [], |row| row.get(0)).unwrap();
    assert_eq!(users, 1);
    drop(copy);

    for taken in [&file, &folder.0] {
        let ended = start.command(&["backup", "--to", taken.to_str().unwrap()]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.log.contains("not overwritten"), "{}", ended.log);
    }
    assert_eq!(std::fs::read(&file).unwrap(), content);
    let ended = start.command(&["backup", "--to", "no/such/folder/a.db"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("no backup was made"), "{}", ended.log);
    let configured = start.set("TOLLKEEPER_MASTER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
    let ended = configured.command(&["backup", "--to", "b.db"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(ended.stdout.contains("in the configuration (`master_key`)"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("MDEy"), "{}", ended.stdout);
}

#[test]
fn damaged_database_gives_no_backup() {
    let folder = Folder::new();
    let source = folder.0.join("t.db");
    let start = Start::new(&folder.0).database(Some(&format!("sqlite://{}", source.display())));
    let refused = |word: &str| {
        let ended = start.command(&["backup", "--to", "copy.db"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.log.contains("no backup was made") && ended.log.contains(word), "{}", ended.log);
        let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.iter().all(|path| !path.to_str().unwrap().contains("copy.db")), "{left:?}");
    };
    std::fs::write(&source, "This is a letter and no database, though it has the database's name.").unwrap();
    refused("not a database");
    std::fs::remove_file(&source).unwrap();
    rusqlite::Connection::open(&source).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    refused("no tollkeeper schema");
}

#[test]
fn database_password_is_not_printed() {
    let folder = Folder::new();
    let start = Start::new(&folder.0).database(Some("postgres://me:hunter2@db.example/keeper"));
    for json in [&[][..], &["--json"]] {
        let ended = start.command(&[&["backup", "--to", "it's.dump"], json].concat());
        assert_eq!(ended.code, Some(2));
        assert!(ended.log.contains("--dbname='postgres://me@db.example/keeper'"), "{}", ended.log);
        assert!(ended.log.contains(r"it'\''s.dump'"), "{}", ended.log);
        assert!(!ended.log.contains("hunter2") && !ended.stdout.contains("hunter2"), "{}", ended.log);
        assert_eq!(ended.stdout.is_empty(), json.is_empty());
    }
}

#[test]
fn health_command_reports_readiness() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let server = start.run();
    let addressed = start.clone().set("TOLLKEEPER_LISTEN", &server.public.to_string());
    let ended = addressed.command(&["health"]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
    // If the server listens on all addresses, the command checks it on the loopback address.
    let everywhere = start.clone().set("TOLLKEEPER_LISTEN", &format!("0.0.0.0:{}", server.public.port()));
    let ended = everywhere.command(&["health", "--json"]);
    let output: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &output["ready"], &output["status"]), (Some(0), &json!(true), &json!(200)));
    assert_eq!(output["address"], server.public.to_string());
    server.stop();
    let ended = addressed.command(&["health", "--json"]);
    let output: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &output["ready"]), (Some(1), &json!(false)));
    assert!(ended.log.contains("no server answers"), "{}", ended.log);

    // The server runs, but can't reach its database.
    let away = start.database(Some("postgres://nobody@127.0.0.1:1/nothing"));
    let server = away.listening();
    let ended = away.set("TOLLKEEPER_LISTEN", &server.public.to_string()).command(&["health"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("isn't ready: 503: "), "{}", ended.log);
    // Another program uses the port.
    let strange = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = strange.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || drop(strange.accept().unwrap()));
    let ended = Start::new(&folder.0).set("TOLLKEEPER_LISTEN", &address).command(&["health"]);
    thread.join().unwrap();
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
}
