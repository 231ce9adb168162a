//! Reports, which are read from a standby while its lag is small, and otherwise from the primary.

use super::database_of;
use support::postgres::Cluster;
use support::process::{Account, Place, Server, Start, until};
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// A server with a primary and a standby, and a user with a project.
struct Scene {
    _primary: Cluster,
    standby: Cluster,
    server: Server,
    ada: Account,
    place: Place,
    reports: u32,
    _folder: Folder,
}

/// The log messages when reports switch to the standby and to the primary.
const SWITCHED_TO_STANDBY: &str = "reports are read from the standby";
const SWITCHED_TO_PRIMARY: &str = "reports are read from the primary until the standby can be used";

impl Scene {
    /// Starts a server that reads reports from the standby.
    fn new(most_lag_seconds: &str) -> Option<Self> {
        Self::with(most_lag_seconds, |cluster, url| {
            Some(format!("postgres://postgres@127.0.0.1:{}/{}", cluster.port(), database_of(url)))
        })
    }

    /// Starts a server with poolers in front of the primary and the standby.
    fn behind_poolers() -> Option<Self> {
        Self::with("3600", |cluster, url| Some(cluster.pooler("transaction", 4)?.url(url)))
    }

    fn with(most_lag_seconds: &str, url_of: impl Fn(&Cluster, &str) -> Option<String>) -> Option<Self> {
        let primary = Cluster::primary()?;
        let url = runtime().block_on(primary.empty_database());
        let standby = primary.standby();
        let folder = Folder::new();
        let server = Start::new(&folder.0)
            .database(Some(&url_of(&primary, &url)?))
            .set("TOLLKEEPER_DATABASE_REPLICA_URL", &url_of(&standby, &url)?)
            .set("TOLLKEEPER_DATABASE_REPLICA_MAX_LAG_SECONDS", most_lag_seconds)
            .run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        server.wait_for_log(SWITCHED_TO_STANDBY);
        Some(Self { _primary: primary, standby, server, ada, place, reports: 0, _folder: folder })
    }

    /// Reports another event, which the primary counts.
    fn report(&mut self) {
        self.reports += 1;
        let id = format!("e{}", self.reports);
        assert_eq!(self.server.report(&self.place, &id), "accepted");
    }

    /// Returns the number of requests in the report of the organization.
    fn report_requests(&self) -> i64 {
        let organization = self.place.project_path.split("/projects").next().unwrap();
        let path = format!("{organization}/billing/usage");
        let data = self.server.get(&path).bearer(&self.ada.access_token).data();
        data["total"]["chat"]["requests"].as_i64().unwrap()
    }

    /// Returns the number of rows in the project's report as CSV.
    fn csv_report_rows(&self) -> usize {
        let path = format!("{}/usage?format=csv", self.place.project_path);
        let answer = self.server.get(&path).bearer(&self.ada.access_token).send();
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text.lines().count() - 1
    }

    fn invoices(&self) -> i64 {
        let organization = self.place.project_path.split("/projects").next().unwrap();
        let path = format!("{organization}/billing/invoices");
        self.server.get(&path).bearer(&self.ada.access_token).data()["total"].as_i64().unwrap()
    }

    fn movements(&self) -> i64 {
        let organization = self.place.project_path.split("/projects").next().unwrap();
        let path = format!("{organization}/billing/movements");
        self.server.get(&path).bearer(&self.ada.access_token).data()["total"].as_i64().unwrap()
    }

    fn log_count(&self, what: &str) -> usize {
        self.server.log().matches(what).count()
    }

    fn pause(&self, paused: bool) {
        let order = if paused { "SELECT pg_wal_replay_pause()" } else { "SELECT pg_wal_replay_resume()" };
        runtime().block_on(self.standby.admin(order));
        if paused {
            let state = "SELECT CASE pg_get_wal_replay_pause_state() WHEN 'paused' THEN 1::bigint ELSE 0 END";
            assert!(until(|| runtime().block_on(self.standby.ask(state)) == 1));
        }
    }
}

#[test]
fn only_reports_are_read_from_the_standby() {
    let Some(mut scene) = Scene::new("3600") else { return };
    scene.report();
    assert!(until(|| scene.report_requests() == 1), "the standby follows");
    assert_eq!(scene.csv_report_rows(), 1);
    scene.pause(true);
    scene.report();
    assert_eq!((scene.report_requests(), scene.movements()), (1, 1), "this is from the standby");
    assert_eq!(scene.server.requests(&scene.place, &scene.ada), 2, "this is from the primary");
    assert_eq!(scene.invoices(), 0);
    scene.pause(false);
    assert!(until(|| scene.report_requests() == 2), "it goes on");

    // When the standby dies, only the log shows it.
    scene.standby.kill();
    scene.report();
    assert_eq!(scene.report_requests(), 3);
    assert_eq!(scene.csv_report_rows(), 1);
    scene.server.wait_for_log(SWITCHED_TO_PRIMARY);
    assert_eq!(scene.log_count(SWITCHED_TO_PRIMARY), 1);
    let before = scene.log_count(SWITCHED_TO_STANDBY);
    scene.standby.start();
    assert!(until(|| scene.log_count(SWITCHED_TO_STANDBY) > before), "{}", scene.server.log());
    // After a crash, a standby accepts connections before it has replayed everything that it had.
    assert!(until(|| scene.report_requests() == 3), "the standby catches up");
    scene.pause(true);
    scene.report();
    assert_eq!(scene.report_requests(), 3, "from the standby again");
    scene.pause(false);

    // A standby that is promoted has a different history from then on.
    let before = scene.log_count(SWITCHED_TO_PRIMARY);
    runtime().block_on(scene.standby.admin("SELECT pg_promote()"));
    assert!(until(|| scene.log_count(SWITCHED_TO_PRIMARY) > before), "{}", scene.server.log());
    assert_eq!(scene.report_requests(), 4);
    assert_eq!(scene.server.stop().code, Some(0));
}

#[test]
fn reports_are_read_from_a_standby_behind_a_pooler() {
    let Some(mut scene) = Scene::behind_poolers() else { return };
    scene.report();
    assert!(until(|| scene.report_requests() == 1), "the standby follows");
    scene.pause(true);
    scene.report();
    assert_eq!(scene.report_requests(), 1, "this is from the standby");
    assert_eq!(scene.server.requests(&scene.place, &scene.ada), 2, "this is from the primary");
    scene.pause(false);
    assert!(until(|| scene.report_requests() == 2), "it goes on");
    assert_eq!(scene.server.stop().code, Some(0));
}

#[test]
fn standby_with_too_much_lag_is_not_read() {
    let Some(mut scene) = Scene::new("3") else { return };
    scene.report();
    assert!(until(|| scene.report_requests() == 1));
    scene.pause(true);
    let before = scene.log_count(SWITCHED_TO_PRIMARY);
    scene.report();
    assert!(until(|| scene.log_count(SWITCHED_TO_PRIMARY) > before), "{}", scene.server.log());
    assert!(scene.server.log().contains("the standby is more than 3 s behind"), "{}", scene.server.log());
    assert_eq!(scene.report_requests(), 2, "from the primary");
    let before = scene.log_count(SWITCHED_TO_STANDBY);
    scene.pause(false);
    assert!(until(|| scene.log_count(SWITCHED_TO_STANDBY) > before), "{}", scene.server.log());
    assert_eq!(scene.server.stop().code, Some(0));
}

#[on_postgres]
fn missing_standby_stops_nothing(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let (folder, url) = (Folder::new(), runtime().block_on(cluster.empty_database()));
    let start = Start::new(&folder.0).database(Some(&url));
    let server =
        start.clone().set("TOLLKEEPER_DATABASE_REPLICA_URL", "postgres://me:hunter2@127.0.0.1:1/none").run();
    server.wait_for_log(SWITCHED_TO_PRIMARY);
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    server.report(&place, "e1");
    let organization = place.project_path.split("/projects").next().unwrap();
    let data = server.get(&format!("{organization}/billing/usage")).bearer(&ada.access_token).data();
    assert_eq!(data["total"]["chat"]["requests"], 1);
    let ended = server.stop();
    assert_eq!((ended.code, ended.log.contains("hunter2")), (Some(0), false), "{}", ended.log);

    // The primary isn't a standby, so it isn't used as one.
    let server = start.clone().set("TOLLKEEPER_DATABASE_REPLICA_URL", &url).run();
    server.wait_for_log("database is not read only");
    assert_eq!(server.stop().code, Some(0));

    let refused =
        start.set("TOLLKEEPER_DATABASE_REPLICA_URL", "postgres://h/db?sslmode=verify-full").refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("`database_replica_url`"), "{}", refused.log);
    let on_sqlite = Folder::new();
    let refused =
        Start::new(&on_sqlite.0).set("TOLLKEEPER_DATABASE_REPLICA_URL", "postgres://h/db").refused();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("an SQLite file has no replica"), "{}", refused.log);
}
