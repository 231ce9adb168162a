//! Background jobs run once on any of three replicas, even if a replica dies in the middle.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollkeeper::clock::{Clock, DAY_MS, HOUR_MS, SECOND_MS};
use tollkeeper::db::{Db, FromRow, sql};

use super::{REPLICAS, run_on, trials};
use support::faketime::FakeClock;
use support::postgres::Cluster;
use support::process::{Account, Place, ProcessResult, Server, Start, until, usage_event};
use support::replicas::{Fleet, Replicas, text};
use support::world::{Folder, PASSWORD, runtime};
use support::{Database, on_each_database};

/// Runs a test with three replicas and their database on one fake clock.
fn with_one_clock(test: impl Fn(&str, Replicas, &FakeClock)) {
    let run = |backend: &str, url: Option<&str>, clock: &FakeClock, folder: &Folder| {
        let replicas = Replicas::new(REPLICAS, url, folder).generous(folder);
        let starts = replicas.starts.into_iter().map(|start| clock.rule(start)).collect();
        test(backend, Replicas { starts }, clock);
    };
    let folders = [Folder::new(), Folder::new()];
    let [Some(here), Some(there)] =
        folders.each_ref().map(|it| FakeClock::new(&it.0, "three replicas' jobs"))
    else {
        return;
    };
    run("sqlite", None, &here, &folders[0]);
    let Some(cluster) = Cluster::by_clock(&there) else { return };
    let url = runtime().block_on(cluster.empty_database());
    run("postgres", Some(&url), &there, &folders[1]);
}

/// Runs a statement that moves times in the database to the past.
fn age(start: &Start, text: &str) {
    let db = Db::open(&start.database_settings()).unwrap();
    runtime().block_on(async {
        let mut tx = db.write().await.unwrap();
        sql(text.to_owned()).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    });
}

/// Returns rows of the servers' database.
fn rows<T: FromRow>(start: &Start, text: &'static str) -> Vec<T> {
    let db = Db::open(&start.database_settings()).unwrap();
    runtime().block_on(async { sql(text).all(&mut db.read().await.unwrap()).await.unwrap() })
}

fn count(start: &Start, text: &'static str) -> i64 {
    rows::<(i64,)>(start, text)[0].0
}

fn assert_audit(start: &Start) {
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
}

/// Creates organizations with usage in this month.
fn customers(fleet: &Fleet, count: usize) {
    let ada = fleet.sign_up("ada");
    for number in 0..count {
        let place = fleet.settle(&ada, &format!("Customer {number}"));
        assert_eq!(fleet.next().report(&place, &format!("{number}")), "accepted");
    }
}

/// Moves the clock to an hour after the day on which this month is closed.
fn advance_to_the_next_close(clock: &FakeClock) {
    let closes = clock.now().day().month().end().plus_ms(DAY_MS + HOUR_MS);
    clock.advance_s((closes.unix_ms() - clock.now().unix_ms()) / 1_000);
}

#[test]
fn months_close_once_with_three_schedulers_and_a_crash() {
    with_one_clock(|backend, replicas, clock| {
        let customers_count = usize::try_from(20 * trials()).unwrap();
        let fleet = replicas.run();
        customers(&fleet, customers_count);
        fleet.stop();
        let all = i64::try_from(customers_count).unwrap();
        let invoices = || count(&replicas.starts[0], "SELECT COUNT(*) FROM invoices");

        advance_to_the_next_close(clock);
        let back_at = clock.now();
        let waits = replicas.starts[0].run();
        waits.wait_until_job("billing");
        replicas.starts[0].wait_until_seen(back_at);
        assert_eq!(invoices(), 0, "the month stays open for usage that was stored elsewhere");
        assert_eq!(waits.stop().code, Some(0));
        age(&replicas.starts[0], "UPDATE service_clock SET up_since_at = up_since_at - 7200000");

        // A replica starts the close and dies in the middle. Another one continues when its lease has
        // expired.
        let first = replicas.starts[0].run();
        assert!(until(|| invoices() > 0), "{}", first.log());
        let ended = first.kill();
        assert_eq!(ended.code, None);
        let closed = invoices();
        // The others start at the same time, and each looks for due work when it starts.
        let others = start_all(&replicas.starts[1..]);
        assert!(until(|| invoices() >= all), "{} of {all}", invoices());
        println!("{backend}: killed after {closed} of {all} invoices; the others made the rest");
        // The dead replica is restarted, as a supervisor would do.
        let back = replicas.starts[0].run();
        assert_closed_once(&replicas, all);
        for server in others.into_iter().chain([back]) {
            assert_eq!(server.stop().code, Some(0));
        }
        assert_closed_once(&replicas, all);
        assert_audit(&replicas.starts[0]);
    });
}

fn start_all(starts: &[Start]) -> Vec<Server> {
    std::thread::scope(|scope| {
        let servers: Vec<_> = starts.iter().map(|start| scope.spawn(|| start.run())).collect();
        servers.into_iter().map(|server| server.join().unwrap()).collect()
    })
}

fn assert_closed_once(replicas: &Replicas, all: i64) {
    let invoices: Vec<(i64, String)> =
        rows(&replicas.starts[0], "SELECT number, organization_id FROM invoices ORDER BY number");
    let numbers: Vec<_> = invoices.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=all).collect::<Vec<_>>(), "numbers without gaps");
    let organizations: std::collections::BTreeSet<_> =
        invoices.iter().map(|(_, organization)| organization).collect();
    assert_eq!(organizations.len(), invoices.len(), "each organization once");
}

/// Returns the number of e-mails to each address. An e-mail that a killed replica was sending may arrive
/// twice.
fn mails(replicas: &Replicas) -> BTreeMap<String, usize> {
    let mut mails = BTreeMap::new();
    let folders: std::collections::BTreeSet<_> =
        replicas.starts.iter().map(|start| start.data_dir().join("mail")).collect();
    for file in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "eml") {
            continue;
        }
        let mail = std::fs::read_to_string(path).unwrap();
        let to = mail.lines().find_map(|line| line.strip_prefix("To: ")).unwrap();
        *mails.entry(to.to_owned()).or_insert(0) += 1;
    }
    mails
}

fn register(fleet: &Fleet, name: &str) {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    assert_eq!(fleet.post("/v1/auth/register", &body).data()["verification_email_sent"], true);
}

#[on_each_database]
fn mails_are_sent_once_and_survive_a_crash(database: Database) {
    run_on(database, |backend, replicas, _| {
        let mut fleet = replicas.run();
        let each = 6 * trials();
        let everybody = |names: u64| (0..names).map(|n| (format!("user{n}@example.com"), 1)).collect();
        let waiting = || count(&replicas.starts[0], "SELECT COUNT(*) FROM outbox");
        let register_all = |fleet: &Fleet, names: std::ops::Range<u64>| {
            std::thread::scope(|scope| {
                for n in names {
                    scope.spawn(move || register(fleet, &format!("user{n}")));
                }
            });
        };
        register_all(&fleet, 0..each);
        assert!(until(|| waiting() == 0));
        let sent: BTreeMap<String, usize> = mails(&replicas);
        assert_eq!(sent, everybody(each), "each once");

        // A replica dies while it sends e-mails. Another one sends them when its lease has expired.
        let mut total = each;
        for trial in 0..trials() {
            let victim = usize::try_from(trial).unwrap() % REPLICAS;
            register_all(&fleet, total..total + each);
            total += each;
            let server = fleet.servers.remove(victim);
            assert_eq!(server.kill().code, None);
            age(&replicas.starts[0], "UPDATE outbox SET next_attempt_at = next_attempt_at - 125000");
            assert!(until(|| waiting() == 0), "{} wait", waiting());
            fleet.servers.insert(victim, replicas.starts[victim].run());
        }
        let sent = mails(&replicas);
        assert_eq!(
            sent.keys().collect::<Vec<_>>(),
            everybody(total).keys().collect::<Vec<_>>(),
            "none is lost"
        );
        let twice = sent.values().filter(|count| **count > 1).count();
        println!("{backend}: {total} mails, {} kills, {twice} came twice", trials());
        // A replica sends at most eight e-mails at a time.
        assert!(sent.values().all(|count| *count <= 2) && twice <= 8 * usize::try_from(trials()).unwrap());
        fleet.stop();
    });
}

#[on_each_database]
fn reservations_of_a_dead_replica_expire_once(database: Database) {
    run_on(database, |backend, replicas, _| {
        let mut fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        for trial in 0..usize::try_from(trials()).unwrap() {
            let kept: Vec<String> =
                (0..30).map(|_| reserve(&fleet.servers[trial % REPLICAS], &place)).collect();
            let server = fleet.servers.remove(trial % REPLICAS);
            assert_eq!(server.kill().code, None);
            assert!(reserved(&fleet, &ada, &place) > 0.0);
            // Reservations that are extended or captured at another replica don't expire.
            let (captured, extended) = (&kept[0], &kept[1]);
            let mut batch = usage_event(&place, &format!("captured {trial}"));
            batch["events"][0]["reservation_id"] = json!(captured);
            assert_eq!(fleet.ask("/service/v1/usage", &batch).bare()["results"][0]["status"], "accepted");
            let pass = |ms: &str| format!("UPDATE reservations SET expires_at = expires_at - {ms}");
            age(&replicas.starts[0], &pass("360000"));
            extend(&fleet, extended);
            age(&replicas.starts[0], &pass("300000"));
            let left = || count(&replicas.starts[0], "SELECT COUNT(*) FROM reservations");
            assert!(until(|| left() == 1), "{} are left", left());
            extend(&fleet, extended);
            let ended = fleet.call_service("DELETE", &format!("/service/v1/reservations/{extended}"));
            assert_eq!(ended.send().status, 200);
            assert!(reserved(&fleet, &ada, &place).abs() < f64::EPSILON);
            println!("{backend}: 28 of 30 reservations of a killed replica ended by time, each once");
            fleet.servers.insert(trial % REPLICAS, replicas.starts[trial % REPLICAS].run());
        }
        assert_audit(&replicas.starts[0]);
        fleet.stop();
    });
}

fn reserve(server: &Server, place: &Place) -> String {
    let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 500,
                          "estimated_prompt_tokens": 1_000});
    let decision = server.ask("/service/v1/authorize", &question).bare();
    assert_eq!(decision["allowed"], true, "{decision}");
    text(&decision["reservation"], "id")
}

fn extend(fleet: &Fleet, reservation: &str) {
    let path = format!("/service/v1/reservations/{reservation}/extend");
    fleet.call_service("POST", &path).bare();
}

fn reserved(fleet: &Fleet, ada: &Account, place: &Place) -> f64 {
    let path = format!("/v1/organizations/{}/billing/summary", place.organization());
    let summary: Value = fleet.get(&path).bearer(&ada.access_token).data();
    summary["balance"]["reserved"].as_f64().unwrap()
}

/// Expired credit is also removed once, by the replica that looks first.
#[on_each_database]
fn credit_expires_once(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        let ends_at = Clock::System.now().plus_ms(20 * SECOND_MS);
        let until_then = ends_at.to_string();
        let credit = |amount: &str, reference: &str, more: &[&str]| -> ProcessResult {
            let organization = place.organization();
            let add = [
                "credit",
                "add",
                "--organization",
                organization,
                "--amount",
                amount,
                "--reference",
                reference,
            ];
            replicas.starts[0].command(&[&add, more].concat())
        };
        assert_eq!(credit("5", "stays", &[]).code, Some(0));
        let ends = credit("7", "ends", &["--grant", "--expires-at", &until_then]);
        assert_eq!(ends.code, Some(0), "{}", ends.log);
        fleet.stop();
        assert!(until(|| Clock::System.now() > ends_at));
        let ended =
            || count(&replicas.starts[0], "SELECT COUNT(*) FROM audit_log WHERE action = 'credit.expired'");
        // Each replica looks when it starts. All of them start at the same time, twice.
        for _ in 0..2 {
            let servers = start_all(&replicas.starts);
            assert!(until(|| ended() > 0));
            for server in servers {
                assert_eq!(server.stop().code, Some(0));
            }
        }
        assert_eq!(ended(), 1);
        let posted = "SELECT posted_nano FROM wallets";
        assert_eq!(rows::<(i64,)>(&replicas.starts[0], posted), [(5_000_000_000,)]);
        assert_audit(&replicas.starts[0]);
    });
}
