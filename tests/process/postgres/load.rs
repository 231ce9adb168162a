//! Load for database faults: clients that report, reserve, capture, release and pay, while the server keeps
//! running.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::crashes::{ClientRecord, Target, assert_recorded_once, run_clients};
use support::http::Answer;
use support::process::{Server, Start};
use support::world::Folder;

/// Returns the settings of a server without rate limits.
pub fn start(folder: &Folder, url: &str) -> Start {
    let catalog = include_str!("../../../catalog/default.toml")
        .replace("max_requests_per_min = 60\n", "max_requests_per_min = 1000000\n")
        .replace("max_concurrent_requests = 5\n", "max_concurrent_requests = 1000000\n");
    let file = folder.0.join("catalog.toml");
    std::fs::write(&file, catalog).unwrap();
    Start::new(&folder.0)
        .database(Some(url))
        .set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())
        .set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "1000000")
        .set("TOLLKEEPER_LOG__ACCESS", "false")
}

/// The running load, for the code that causes faults.
pub struct Load<'a> {
    target: &'a Target<'a>,
}

impl Load<'_> {
    /// Reports a new event until it is answered. Returns the time that took.
    pub fn wait_for_answer(&self, id: &str) -> Duration {
        let asked = Instant::now();
        self.target.report(&[self.target.event(&format!("disturber-{id}"))]);
        asked.elapsed()
    }
}

impl Load<'_> {
    /// Reports events without retries until one is refused. Returns the ids of the answered ones, and the
    /// refusal.
    pub fn report_until_refused(&self, id: &str) -> (Vec<String>, Answer) {
        let mut answered = Vec::new();
        for round in 0..100_000 {
            let name = format!("{id}-{round}");
            let answer = self.target.try_to_report(&self.target.event(&format!("disturber-{name}")));
            if answer.status != 200 {
                return (answered, answer);
            }
            answered.push(name);
        }
        panic!("no request is ever refused");
    }
}

/// Runs clients against one server while `disturb` causes faults, and then compares all answered requests
/// with the books. `disturb` returns the ids of its own answered events.
pub fn under_load(what: &str, start: &Start, disturb: impl FnOnce(&Load<'_>) -> Vec<String>) {
    let server = start.run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let target = Target {
        organization: place.project_path.split('/').nth(3).unwrap().to_owned(),
        services: RwLock::new(vec![server.service]),
        turn: AtomicUsize::new(0),
        token: server.service_token(),
        over: AtomicBool::new(false),
        start,
        place,
    };
    let answered: Vec<ClientRecord> = std::thread::scope(|scope| {
        let target = &target;
        let clients = run_clients(scope, target);
        // If `disturb` panics, this stops the clients, which would otherwise run forever.
        let over = StopOnDrop(&target.over);
        let ids = disturb(&Load { target });
        drop(over);
        let mut answered: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        answered.push(ClientRecord {
            events: ids.iter().map(|id| format!("disturber-{id}")).collect(),
            ..ClientRecord::default()
        });
        answered
    });
    server.wait_until_ready();
    assert!(server.get("/v1/auth/me").bearer(&ada.access_token).send().status == 200, "it lives on");
    let figures = assert_recorded_once(&target, &answered);
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    println!("{what}: {figures}\n{}", audit.stdout.trim());
    assert_no_mistakes(&server);
    assert_eq!(server.stop().code, Some(0));
}

/// Asserts that no database fault is logged as an internal error.
fn assert_no_mistakes(server: &Server) {
    let log = server.log();
    let mistake = log.lines().find(|line| line.contains("internal_error") || line.contains("panicked"));
    assert_eq!(mistake, None);
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
