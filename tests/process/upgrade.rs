//! Rolling upgrades: a running server still works while a newer binary migrates the schema.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tollkeeper::db::{Db, Settings, sql};

use support::process::{Account, Place, Server, Start, Wire, until, usage_event};
use support::python::skip_without;
use support::world::{ALLOW_FSYNC_OFF, PASSWORD, runtime};
use support::{Database, on_each_database};

/// Returns calls with all kinds of statements: reads, writes, and reads within transactions, on every table
/// that requests use.
fn calls(server: &Server, ada: &Account, place: &Place, number: usize) -> Vec<Wire> {
    let organization = place.project_path.split("/projects").next().unwrap();
    let project = &place.project_path;
    let key = format!("{project}/api-keys/{}", place.key_id);
    let login = json!({"email": "ada@example.com", "password": PASSWORD});
    let forgotten = json!({"email": format!("nobody{number}@example.com")});
    let asked = json!({"credential": place.key, "operation": "chat", "model": "svc-1"});
    let invited = json!({"email": format!("guest{number}@example.com"), "role": "member"});
    let get = |path: &str| server.get(path).bearer(&ada.access_token);
    let post = |path: &str, body| server.post(path, &body).bearer(&ada.access_token);
    let put = |path: &str, body| Wire::new(server.public, "PUT", path).bearer(&ada.access_token).json(&body);
    vec![
        server.post("/v1/auth/login", &login),
        server.post("/v1/auth/forgot-password", &forgotten),
        server.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token),
        get("/v1/auth/me"),
        put("/v1/auth/me", json!({"full_name": format!("Ada the {number}.")})),
        get("/v1/auth/sessions"),
        get("/v1/organizations"),
        get("/v1/organizations?search=a"),
        get(organization),
        put(organization, json!({"settings": {"allow_public_projects": number.is_multiple_of(2)}})),
        get(&format!("{organization}/members")),
        post(&format!("{organization}/invitations"), invited),
        get(&format!("{organization}/invitations?status=pending")),
        get(&format!("{organization}/audit-log")),
        get(&format!("{organization}/billing/usage")),
        get(&format!("{organization}/billing/summary")),
        get(&format!("{organization}/billing/invoices")),
        get(&format!("{organization}/projects")),
        get(&format!("{organization}/projects?search=b")),
        post(&format!("{organization}/projects"), json!({"name": format!("P{number}")})),
        get(project),
        put(project, json!({"description": format!("the {number}.")})),
        get(&format!("{project}/members")),
        get(&format!("{project}/usage")),
        get(&format!("{project}/api-keys")),
        get(&key),
        put(&key, json!({"name": "Prod"})),
        post(&format!("{project}/api-keys"), json!({"name": format!("K{number}")})),
        post(&format!("{key}/rotate"), json!({})),
        server.ask("/service/v1/authorize", &asked),
        server.ask("/service/v1/usage", &usage_event(place, &format!("e{number}"))),
    ]
}

/// Migrates the schema as a newer binary could: adds a table, columns in every other table, and a schema
/// version that this binary doesn't support.
async fn migrate_further(db: &Db) {
    let tables = if db.is_postgres() {
        "SELECT CAST(table_name AS TEXT) AS name FROM information_schema.tables WHERE table_schema = 'public'"
    } else {
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    };
    let mut tx = db.write().await.unwrap();
    let tables: Vec<(String,)> = sql(tables).all(&mut tx).await.unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    tx.commit().await.unwrap();
    for (table,) in tables.iter().filter(|(table,)| table != "refinery_schema_history") {
        // Each table is locked in its own transaction. A transaction that locks many tables could wait for
        // requests that wait for it.
        let mut tx = db.write().await.unwrap();
        sql(format!("ALTER TABLE {table} ADD COLUMN of_a_later_version TEXT"))
            .execute(&mut tx)
            .await
            .unwrap();
        let column = format!("ALTER TABLE {table} ADD COLUMN counted_later BIGINT NOT NULL DEFAULT 7");
        let column = if db.is_postgres() { column } else { column.replace("BIGINT", "INTEGER") };
        sql(column).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = db.write().await.unwrap();
    sql("CREATE TABLE of_a_later_version (id TEXT PRIMARY KEY)").execute(&mut tx).await.unwrap();
    sql("INSERT INTO refinery_schema_history (version, name, applied_on, checksum)
         VALUES (999, 'later', '2030-01-01T00:00:00Z', '1')")
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

fn settings(start: &Start, url: Option<&str>) -> Settings {
    match url {
        Some(url) => Settings::Postgres { url: url.to_owned() },
        None => Settings::Sqlite { path: start.data_dir().join("tollkeeper.db") },
    }
}

/// Returns which of the calls this server supports, because an earlier version may lack some. Only calls that
/// succeed before the upgrade are made during it.
fn supported_calls(server: &Server, ada: &Account, place: &Place) -> Vec<bool> {
    let calls = calls(server, ada, place, 999_999);
    let statuses: Vec<_> = calls.iter().map(|call| call.send().status).collect();
    assert!(statuses.iter().all(|status| [200, 400, 404, 405].contains(status)), "{statuses:?}");
    let supported_calls: Vec<_> = statuses.iter().map(|status| *status == 200).collect();
    assert!(supported_calls.iter().filter(|supported_calls| **supported_calls).count() >= 10, "{statuses:?}");
    supported_calls
}

/// Makes concurrent calls while `work` runs, and for some time before and after. Each call must succeed,
/// immediately or after one retry. Returns the number of retries.
fn under_load(
    server: &Server,
    ada: &Account,
    place: &Place,
    supported_calls: &[bool],
    work: impl FnOnce(),
) -> usize {
    let (number, again, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _one_for_all = StopOnDrop(&stop);
                while !stop.load(Ordering::Relaxed) {
                    let calls = calls(server, ada, place, number.fetch_add(1, Ordering::Relaxed));
                    for (call, _) in calls
                        .into_iter()
                        .zip(supported_calls)
                        .filter(|(_, supported_calls)| **supported_calls)
                    {
                        let mut answer = call.send();
                        if answer.code() == "database_unavailable" {
                            again.fetch_add(1, Ordering::Relaxed);
                            answer = call.send();
                        }
                        assert!(answer.status == 200, "{call:?}\n{}\n{}", answer.text, errors(server));
                    }
                }
            });
        }
        // A client that fails prints the reason. Then the others and this function end too.
        let stopped = StopOnDrop(&stop);
        let rounds = |more: usize| {
            let start = number.load(Ordering::Relaxed);
            until(|| number.load(Ordering::Relaxed) >= start + more || stop.load(Ordering::Relaxed));
            assert!(!stop.load(Ordering::Relaxed), "a call has failed");
        };
        rounds(8);
        work();
        rounds(8);
        drop(stopped);
    });
    again.into_inner()
}

/// Returns the lines of the server's log above level `INFO`.
fn errors(server: &Server) -> String {
    server.log().lines().filter(|line| !line.contains(" INFO ")).collect::<Vec<_>>().join("\n")
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[on_each_database]
fn running_server_survives_a_migration(database: Database) {
    database.run_empty(|url, folder| {
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_LIMITS__ENABLED", "false");
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let supported_calls = supported_calls(&server, &ada, &place);
        assert!(supported_calls.iter().all(|supported_calls| *supported_calls), "{supported_calls:?}");
        let again = under_load(&server, &ada, &place, &supported_calls, || {
            runtime().block_on(async {
                let db = Db::open(&settings(&start, url)).unwrap();
                migrate_further(&db).await;
            });
        });
        // PostgreSQL would refuse a prepared statement that selects all columns, and fail its transaction.
        assert_eq!(again, 0, "calls had to be repeated: {}", errors(&server));
        assert_eq!(server.get("/readyz").send().status, 200);
        let bob = server.sign_up("bob");
        server.settle(&bob);
        assert_eq!(server.log().matches(" ERROR ").count(), again, "{}", errors(&server));
        // After a restart, the binary is older than the schema.
        let ended = start.refused();
        assert_eq!(ended.code, Some(1));
        assert!(ended.log.contains("the database has schema 999"), "{}", ended.log);
        assert_eq!(server.stop().code, Some(0));
    });
}

/// Returns the binary of an earlier version, built by `.ci/upgrade`.
fn earlier_binary() -> Option<PathBuf> {
    let path = std::env::var_os("TOLLKEEPER_TEST_EARLIER").map(PathBuf::from);
    if path.is_none() {
        let why = "TOLLKEEPER_TEST_EARLIER names no binary: `.ci/upgrade REVISION` builds one and runs this";
        skip_without("earlier", "an upgrade from an earlier version", why);
    }
    path
}

#[on_each_database]
fn earlier_version_runs_next_to_this_one(database: Database) {
    let Some(earlier_binary) = earlier_binary() else { return };
    database.run_empty(|url, folder| {
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_LIMITS__ENABLED", "false");
        let mut old_start = start.clone().binary(Path::new(&earlier_binary));
        if old_start.command(&["config"]).code != Some(0) {
            // The earlier version doesn't have this key yet.
            old_start = old_start.unset(ALLOW_FSYNC_OFF);
        }
        let old = old_start.run();
        let ada = old.sign_up("ada");
        let place = old.settle(&ada);
        let mut migrated = None;
        under_load(&old, &ada, &place, &supported_calls(&old, &ada, &place), || {
            let ended = start.command(&["migrate", "--json"]);
            assert_eq!(ended.code, Some(0), "{}", ended.log);
            migrated = Some(serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap());
        });
        let migrated = migrated.unwrap();
        // Both versions run at the same time, and each sees the other's changes.
        let new = start.run();
        for (one, other, name) in [(&old, &new, "bob"), (&new, &old, "eve")] {
            let user = one.sign_up(name);
            let place = one.settle(&user);
            assert_eq!(other.get("/v1/auth/me").bearer(&user.access_token).send().status, 200);
            assert_eq!(other.report(&place, name), "accepted");
            assert_eq!(one.report(&place, name), "duplicate");
            // Both servers show the event, regardless of which one it was reported to.
            assert_eq!([one, other].map(|server| server.requests(&place, &user)), [1, 1]);
        }
        for call in calls(&new, &ada, &place, 1_000_000) {
            let answer = call.send();
            assert_eq!(answer.status, 200, "{call:?}\n{}\n{}", answer.text, errors(&new));
        }
        assert_eq!(old.stop().code, Some(0));
        assert!(new.requests(&place, &ada) > 0);
        // Entries that the earlier server wrote during the migration must add up too.
        let audit = start.command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
        if migrated["applied"].as_array().unwrap().is_empty() {
            // The schema is the same, so a downgrade works.
            assert_eq!(old_start.run().stop().code, Some(0));
        } else {
            let ended = old_start.refused();
            assert_eq!(ended.code, Some(1));
            assert!(ended.log.contains("the database has schema"), "{}", ended.log);
        }
        assert_eq!(new.stop().code, Some(0));
    });
}
