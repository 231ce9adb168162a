//! Finding the primary among servers: an old primary that still runs, silent hosts, and commits that no
//! standby has.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{database_of, load};
use support::http::Answer;
use support::postgres::Cluster;
use support::process::{Wire, until, usage_event};
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// Returns the URL of a database on servers at these ports, in this order.
fn url_of(ports: &[u16], database: &str) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres@{}/{database}", hosts.join(","))
}

/// The old primary still takes writes, because only the program that monitors it has died. A replica that
/// uses it must detect that another server was promoted: a key that was deleted there must be invalid
/// everywhere.
#[on_postgres]
fn old_primary_that_still_runs_is_not_used(_: Database) {
    let Some(old) = Cluster::primary() else { return };
    let runtime = runtime();
    let of_old = runtime.block_on(old.empty_database());
    let database = database_of(&of_old).to_owned();
    let new = old.standby();
    let folder = Folder::new();
    let server = load::start(&folder, &url_of(&[old.port(), new.port()], &database)).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let is_allowed = || {
        let question =
            json!({"credential": place.key, "operation": "chat", "model": "svc-1", "reserve": false});
        server.ask("/service/v1/authorize", &question).send().json()["allowed"] == true
    };
    assert!(is_allowed());
    runtime.block_on(old.wait_for_a_standby());
    runtime.block_on(new.admin("SELECT pg_promote()"));
    // Another replica connects only to the new primary.
    let other = load::start(&folder, &url_of(&[new.port()], &database)).run();
    let key = format!("{}/api-keys/{}", place.project_path, place.key_id);
    let deleted = Wire::new(other.public, "DELETE", &key).bearer(&ada.access_token).send();
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    assert!(until(|| !is_allowed()), "the deleted key is still valid:\n{}", server.log());
    let now = format!(
        "the primary is now 127.0.0.1:{}, timeline 2 (before: 127.0.0.1:{}, timeline 1)",
        new.port(),
        old.port()
    );
    assert!(server.log().contains(&now), "{}", server.log());
    // The log names the old primary when the replica connects to it again.
    let outdated = format!(
        "127.0.0.1:{} takes writes at timeline 1, but 127.0.0.1:{} was promoted",
        old.port(),
        new.port()
    );
    assert!(until(|| server.log().contains(&outdated)), "{}", server.log());
    assert!(until(|| server.get("/readyz").send().status == 200), "{}", server.log());
}

/// A machine without power doesn't answer at all. A listener that never accepts a connection behaves the
/// same.
#[on_postgres]
fn silent_host_is_no_obstacle(_: Database) {
    let Some(cluster) = Cluster::primary() else { return };
    let url = runtime().block_on(cluster.empty_database());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let folder = Folder::new();
    let start = load::start(&folder, &url_of(&[port, cluster.port()], database_of(&url)));
    let server = start.run();
    let ada = server.sign_up("ada");
    server.settle(&ada);
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}", audit.log);
    drop(silent);
}

/// An operator cancels the wait of a commit for its standby. PostgreSQL then reports success with a warning,
/// because a failover would lose the commit.
#[on_postgres]
fn commit_that_no_standby_has_is_not_acknowledged(_: Database) {
    let Some(cluster) = Cluster::primary() else { return };
    let runtime = runtime();
    let url = runtime.block_on(cluster.empty_database());
    let folder = Folder::new();
    let server = load::start(&folder, &url).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let key = format!("{}/api-keys/{}", place.project_path, place.key_id);
    let change_standbys = async |names: &str| {
        cluster.admin(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await;
        cluster.admin("SELECT pg_reload_conf()").await;
    };
    runtime.block_on(change_standbys("nobody"));
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let report = || server.ask("/service/v1/usage", &usage_event(&place, "freed")).send();
    let delete = || Wire::new(server.public, "DELETE", &key).bearer(&ada.access_token).send();
    // If the first attempt has deleted the key, the second one doesn't find it. That isn't acknowledged
    // either.
    for ask in [&report as &(dyn Fn() -> Answer + Sync), &delete, &delete] {
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(ask);
            assert!(until(|| runtime.block_on(cluster.ask(waiting)) > 0), "nothing waits");
            while !asked.is_finished() {
                runtime.block_on(cluster.admin(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
                ));
                std::thread::sleep(Duration::from_millis(20));
            }
            asked.join().unwrap()
        });
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{}", answer.text);
    }
    assert!(server.log().contains("canceled while it waited for its standby"), "{}", server.log());
    runtime.block_on(change_standbys(""));
    // The event is reported again, and counts once.
    assert!(until(|| report().status == 200), "{}", server.log());
    assert_eq!(server.report(&place, "freed"), "duplicate");
    assert_eq!(server.requests(&place, &ada), 1);
    assert!(until(|| delete().status == 404), "{}", server.log());
}

/// PgBouncer without a server accepts connections, and refuses their first statement.
#[on_postgres]
fn pooler_without_a_server_is_one_failure_a_request(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let Some(pooler) = cluster.pooler("transaction", 20) else { return };
    let url = runtime().block_on(cluster.empty_database());
    let folder = Folder::new();
    let server = load::start(&folder, &pooler.url(&url)).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let closed = || server.log().matches("a connection to the database was closed").count();
    cluster.kill();
    let refused = || server.ask("/service/v1/usage", &usage_event(&place, "late")).send().status == 503;
    assert!(until(refused), "{}", server.log());
    let (before, began) = (closed(), Instant::now());
    for _ in 0..30 {
        assert!(refused(), "{}", server.log());
    }
    // At most one line per second and host is logged.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!(closed() - before <= seconds, "{} lines in {seconds} s:\n{}", closed() - before, server.log());
    cluster.revive();
    assert!(
        until(|| server.ask("/service/v1/usage", &usage_event(&place, "late")).send().status == 200),
        "{}",
        server.log()
    );
}
