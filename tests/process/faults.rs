//! Faults around a running server. It reports them, keeps its data, and recovers.

mod clock_guard;
mod clocks;
mod disk;
mod mail;
mod stop;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::json;
use tollkeeper::api::routes;
use tollkeeper::web::route::ErrorShape;
use tollkeeper::web::route::Listener;

use support::http::Answer;
use support::postgres::Cluster;
use support::process::{ProcessResult, Server, Start, Wire, skipped, usage_event};
use support::world::{Folder, PASSWORD, runtime};
use support::{Database, on_each_database, on_postgres};

// ---- PostgreSQL ----

#[on_postgres]
fn server_waits_for_postgres_and_survives_its_restart(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let url = runtime().block_on(cluster.empty_database());
    let url = url.replace("postgres@", "postgres:hunter2-of-the-database@");
    let folder = Folder::new();
    cluster.stop();
    let server = Start::new(&folder.0).database(Some(&url)).listening();
    assert_unavailable(&server, "");
    server.wait_for_log("waiting for the database");

    cluster.start();
    server.wait_until_ready();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    assert_eq!(server.report(&place, "e1"), "accepted");
    assert_eq!(server.get("/v1/models").bearer(&place.key).send().status, 200);

    cluster.stop();
    // Until the feed fails, cached sessions and keys work without the database.
    server.wait_for_log("the feed of changes can't be read");
    assert_unavailable(&server, &ada.access_token);
    let unanswered = server.ask("/service/v1/usage", &usage_event(&place, "e2"));
    assert_failure(&unanswered.send(), 503, "database_unavailable", ErrorShape::Bare);

    cluster.start();
    server.wait_until_ready();
    assert_eq!(server.get("/v1/auth/me").bearer(&ada.access_token).send().status, 200);
    assert_eq!(server.report(&place, "e1"), "duplicate");
    assert_eq!(server.report(&place, "e2"), "accepted");
    assert_eq!(server.requests(&place, &ada), 2);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.log.contains("hunter2"), "{}", ended.log);
}

#[test]
fn server_waiting_for_postgres_can_be_stopped() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).database(Some("postgres://nobody@127.0.0.1:1/none")).listening();
    assert_unavailable(&server, "");
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

/// Asserts that every endpoint that needs the database answers 503 with its own error shape.
fn assert_unavailable(server: &Server, bearer: &str) {
    assert_eq!(server.get("/healthz").send().status, 200);
    assert_eq!(Wire::new(server.service, "GET", "/healthz").send().status, 200);
    assert_eq!(server.get("/openapi.json").send().status, 200);
    let readiness = server.get("/readyz").send();
    assert_eq!((readiness.status, readiness.code().as_str()), (503, "database_unavailable"));
    assert_eq!(readiness.details()[0], "database database_unavailable", "{}", readiness.text);
    let open = ["/healthz", "/readyz", "/openapi.json", "/metrics", "/api/hello"];
    let is_page = |route: &routes::Route| route.content_type == "text/html";
    for route in routes::table().into_iter().filter(|route| !open.contains(&route.path) && !is_page(route)) {
        // With a bearer token the gate reads the database. Without one it may refuse the request first.
        let is_session = route.listener == Listener::Public && route.access.scheme.is_some();
        if !bearer.is_empty() && (!is_session || route.handler.contains("refresh_token")) {
            continue;
        }
        let (address, token) = match route.listener {
            Listener::Service => (server.service, server.service_token()),
            _ => (server.public, bearer.to_owned()),
        };
        let path = route.path.replace("{*model_id}", "svc-1").replace(['{', '}'], "");
        let mut call = Wire::new(address, route.method.as_str(), &path).bearer(&token);
        if route.method == Method::POST {
            call = call.json(&json!({}));
        }
        let answer = call.send();
        assert_failure(&answer, 503, "database_unavailable", route.error_shape());
    }
}

/// Checks the shape of an error, and the header that makes clients retry.
fn assert_failure(answer: &Answer, status: u16, code: &str, shape: ErrorShape) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text);
    let mut body = answer.json();
    let error = body["error"].take();
    let message = error["message"].as_str().unwrap();
    let kind = if shape == ErrorShape::Anthropic { "overloaded_error" } else { "api_error" };
    let expected = json!({"message": message, "type": kind, "param": null, "code": code, "details": []});
    assert_eq!(error, expected);
    let expected = match shape {
        ErrorShape::Enveloped => {
            json!({"status_code": status, "status_message": code.to_uppercase(), "data": {}, "error": null})
        }
        ErrorShape::Anthropic => json!({"type": "error", "error": null}),
        ErrorShape::Bare | ErrorShape::Page => json!({ "error": null }),
    };
    assert_eq!(body, expected);
    assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert!(answer.header("x-request-id").starts_with("req_"));
}

// ---- Storage ----

#[test]
fn full_disk_loses_nothing_and_recovers() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let data = start.data_dir();
    std::fs::create_dir(&data).unwrap();
    let Some(wrapper) = private_mounts(&data, "mount -t tmpfs -o size=6m,mode=0700 none \"$0\"") else {
        return;
    };
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    let mut server = start.through(&wrapper).run();
    // The mount is private to the server. It is visible through the server's process, and ends with it.
    server.data_dir = path_in_mounts(&server, &data);
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let ballast = server.data_dir.join("ballast");

    for round in 0..2 {
        fill_up(&ballast);
        let before = server.requests(&place, &ada);
        let mut counted = before;
        let failed = (0..500).map(|n| format!("{round}-{n}")).find_map(|event| {
            let answer = server.ask("/service/v1/usage", &usage_event(&place, &event)).send();
            if answer.status == 200 {
                counted += 1;
                return None;
            }
            assert_failure(&answer, 503, "storage_full", ErrorShape::Bare);
            Some(event)
        });
        let failed = failed.expect("the disk never became full");
        let organization = json!({"name": format!("Full {round}")});
        let create = || server.post("/v1/organizations", &organization).bearer(&ada.access_token);
        let name = format!("bob{round}");
        let register = || {
            let body =
                json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
            server.post("/v1/auth/register", &body)
        };
        let organizations =
            || server.get("/v1/organizations").bearer(&ada.access_token).data()["total"].as_i64().unwrap();
        let had = organizations();
        let mails = || std::fs::read_dir(server.data_dir.join("mail")).unwrap().count();
        let had_mails = mails();
        assert_failure(&create().send(), 503, "storage_full", ErrorShape::Enveloped);
        assert_failure(&register().send(), 503, "storage_full", ErrorShape::Enveloped);
        // Reads still work, and the failed writes left nothing behind.
        assert_eq!((server.requests(&place, &ada), organizations(), mails()), (counted, had, had_mails));
        assert_eq!(server.get("/readyz").send().status, 200);
        assert_eq!(server.get("/v1/models").bearer(&place.key).send().status, 200);

        std::fs::remove_file(&ballast).unwrap();
        assert_eq!(server.report(&place, &failed), "accepted");
        create().data();
        assert_eq!(register().data()["verification_email_sent"], true);
        assert_eq!((server.requests(&place, &ada), organizations()), (counted + 1, had + 1));
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn read_only_data_folder_stops_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let data = start.data_dir();
    assert_eq!(start.run().stop().code, Some(0));
    let ended = if writes_everywhere(&folder.0) {
        let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"";
        let Some(wrapper) = private_mounts(&data, mount) else { return };
        let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
        start.clone().through(&wrapper).refused()
    } else {
        let allow = |mode| std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o500);
        std::fs::remove_file(data.join("tollkeeper.db.migrate-lock")).unwrap_or_default();
        let ended = start.refused();
        allow(0o700);
        ended
    };
    assert_refused(&ended, &["database is read-only", data.to_str().unwrap()]);
    start.run();
}

/// Root ignores file permissions, so the test makes SQLite refuse writes with the file's format version.
#[test]
fn read_only_database_can_still_be_read() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    let server = start.run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    assert_eq!(server.report(&place, "e1"), "accepted");
    assert_eq!(server.stop().code, Some(0));
    let file = start.data_dir().join("tollkeeper.db");
    let read_only = folder.0.join("read-only.db");
    std::fs::copy(&file, &read_only).unwrap();
    set_write_version(&read_only, 3);

    let server = start.run();
    assert_eq!(server.report(&place, "e1"), "duplicate");
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(start.data_dir().join(format!("tollkeeper.db{suffix}"))).unwrap();
    }
    std::fs::rename(&read_only, &file).unwrap();
    for _ in 0..2 {
        let written = server.ask("/service/v1/usage", &usage_event(&place, "e2")).send();
        assert_failure(&written, 503, "storage_read_only", ErrorShape::Bare);
        let create = server.post("/v1/organizations", &json!({"name": "No"})).bearer(&ada.access_token);
        assert_failure(&create.send(), 503, "storage_read_only", ErrorShape::Enveloped);
        assert_eq!(server.requests(&place, &ada), 1);
        assert_eq!(server.get("/readyz").send().status, 200);
    }
    set_write_version(&file, 2);
    assert_eq!(server.report(&place, "e2"), "accepted");
    assert_eq!(server.requests(&place, &ada), 2);
}

#[on_each_database]
fn wrong_master_key_stops_the_start(database: Database) {
    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        assert_eq!(start.run().stop().code, Some(0));
        let other = start.clone().set("TOLLKEEPER_MASTER_KEY", KEY);
        assert_refused(&other.refused(), &["the master key does not open"]);
        assert_eq!(start.run().stop().code, Some(0), "nothing was changed");
    });
}

#[test]
fn unusable_data_folder_stops_the_start() {
    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let folder = Folder::new();
    std::fs::write(folder.0.join("file"), "").unwrap();
    let place = folder.0.join("file/data");
    let place = place.to_str().unwrap();
    let start = Start::new(&folder.0).set("TOLLKEEPER_DATA_DIR", place);
    let with_secrets = start.clone().set("TOLLKEEPER_MASTER_KEY", KEY).set("TOLLKEEPER_SERVICE_TOKEN", KEY);
    for start in [start, with_secrets] {
        assert_refused(&start.refused(), &[place, "Not a directory", "TOLLKEEPER_DATA_DIR"]);
        let migrated = start.command(&["migrate"]);
        assert_refused(&migrated, &[place, "Not a directory", "TOLLKEEPER_DATA_DIR"]);
    }
}

fn assert_refused(ended: &ProcessResult, words: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}", ended.log);
    let complaint = ended.log.lines().find(|line| line.starts_with("tollkeeper: "));
    let complaint = complaint.unwrap_or_else(|| panic!("no complaint in:\n{}", ended.log));
    for word in words {
        assert!(complaint.contains(word), "no {word:?} in {complaint}");
    }
}

/// Returns a command that starts a program with private mounts, which no other process sees and which end
/// with the program. In the script, `$0` is `place`. Returns `None` and prints the reason if the system
/// doesn't allow it.
pub fn private_mounts(place: &Path, script: &str) -> Option<Vec<String>> {
    let script = format!("{script} && exec \"$@\"");
    for unshare in ["-m", "-Urm"] {
        let words = ["unshare", unshare, "sh", "-c", &script, place.to_str().unwrap()];
        let mut probe = Command::new(words[0]);
        probe.args(&words[1..]).arg("true").stderr(std::process::Stdio::null());
        if probe.status().is_ok_and(|status| status.success()) {
            return Some(words.map(str::to_owned).to_vec());
        }
    }
    skipped("a full and a read-only disk", "this user may not mount (unshare, mount -t tmpfs)");
    None
}

/// Returns the path of a folder through the server's mounts.
fn path_in_mounts(server: &Server, place: &Path) -> PathBuf {
    Path::new("/proc").join(server.pid().to_string()).join("root").join(place.strip_prefix("/").unwrap())
}

/// Fills the rest of the disk.
pub fn fill_up(ballast: &Path) {
    let mut file = std::fs::File::create(ballast).unwrap();
    let block = [1; 4096];
    for _ in 0..100_000 {
        if let Err(error) = file.write_all(&block) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
            return;
        }
    }
    panic!("more than 400 MB on a small disk");
}

/// Returns `true` if this user ignores file permissions, as root does.
fn writes_everywhere(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let closed = folder.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    let written = std::fs::write(closed.join("probe"), "").is_ok();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    written
}

/// Sets the write version in the header of an SQLite file. A version above 2 makes it read-only: see
/// SQLite's file format, section 1.3.3.
fn set_write_version(file: &Path, version: u8) {
    use std::io::{Seek, SeekFrom};
    let mut file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.seek(SeekFrom::Start(18)).unwrap();
    file.write_all(&[version]).unwrap();
}
