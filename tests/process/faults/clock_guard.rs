//! A wrong machine clock. The server does nothing irreversible, reports the problem, and continues
//! automatically when the clock is right again.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};
use tollkeeper::clock::{Clock, MINUTE_MS, Time};
use tollkeeper::db::{Db, sql};

use support::faketime::FakeClock;
use support::http::Answer;
use support::postgres::Cluster;
use support::process::{Account, Place, Server, Start, until, usage_event};
use support::replicas::{Replicas, text};
use support::world::{Folder, runtime};
use support::{Database, on_each_database, on_postgres};

const DAY_S: i64 = 86_400;

/// Returns a number from the servers' database.
fn count(start: &Start, text: &'static str) -> i64 {
    let db = Db::open(&start.database_settings()).unwrap();
    runtime().block_on(async {
        let (count,): (i64,) = sql(text).one(&mut db.read().await.unwrap()).await.unwrap();
        count
    })
}

fn execute(start: &Start, text: impl Into<Cow<'static, str>>) {
    let db = Db::open(&start.database_settings()).unwrap();
    runtime().block_on(async {
        let mut tx = db.write().await.unwrap();
        sql(text).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    });
}

/// Returns the irreversible state: usage events, invoices, open months, remaining credit and reservations.
fn state(start: &Start) -> [i64; 5] {
    [
        "SELECT COUNT(*) FROM usage_events",
        "SELECT COUNT(*) FROM invoices",
        "SELECT CAST(MAX(open_month) AS BIGINT) FROM wallets",
        "SELECT CAST(COALESCE(SUM(remaining_nano), 0) AS BIGINT) FROM credits",
        "SELECT COUNT(*) FROM reservations",
    ]
    .map(|text| count(start, text))
}

/// Returns the message of the failed clock check.
fn failed_clock_check(server: &Server) -> Option<String> {
    let answer = server.get("/readyz").send();
    let body: Value = answer.json();
    let details = body["error"]["details"].as_array()?;
    let clock = details.iter().find(|detail| detail["param"] == "clock")?;
    assert_eq!((answer.status, &clock["code"]), (503, &json!("clock_not_trusted")));
    Some(clock["message"].as_str().unwrap().to_owned())
}

fn is_ready(server: &Server) -> bool {
    server.get("/readyz").send().status == 200
}

fn reserve(server: &Server, place: &Place) -> Answer {
    reserve_as(server, place, None)
}

fn reserve_as(server: &Server, place: &Place, request_id: Option<&str>) -> Answer {
    let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 500,
                          "estimated_prompt_tokens": 1_000, "request_id": request_id});
    server.ask("/service/v1/authorize", &question).send()
}

/// Creates usage of today, a reservation, and a credit that expires in two days.
fn settle(start: &Start, server: &Server) -> (Account, Place) {
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    grant_credit(start, &place, "r", Clock::System.now().day().plus(2).start());
    assert_eq!(server.report(&place, "e1"), "accepted");
    let reserved = reserve(server, &place).json();
    assert_eq!(reserved["allowed"], true, "{reserved}");
    (ada, place)
}

/// Grants a credit of 5 that expires at this time.
fn grant_credit(start: &Start, place: &Place, reference: &str, until: Time) {
    let credit =
        ["credit", "add", "--organization", place.organization(), "--amount", "5", "--reference", reference];
    let credit = start.command(&[&credit[..], &["--grant", "--expires-at", &until.to_string()]].concat());
    assert_eq!(credit.code, Some(0), "{}", credit.log);
}

/// Returns the time from now until the reservation in this answer expires, in milliseconds.
fn lifetime_ms(answer: &Answer) -> i64 {
    let ends_at = text(&answer.json()["reservation"], "expires_at");
    Time::parse(&ends_at).unwrap().unix_ms() - Clock::System.now().unix_ms()
}

/// Asserts that the server does nothing irreversible while its clock is wrong.
fn assert_waits(server: &Server, place: &Place) {
    for answer in [server.ask("/service/v1/usage", &usage_event(place, "e2")).send(), reserve(server, place)]
    {
        assert_eq!((answer.status, answer.code().as_str()), (503, "clock_not_trusted"), "{}", answer.text);
    }
    assert_eq!(server.metric("tollkeeper_clock_trusted"), Some(0.0));
}

/// Asserts that the log has one line each time that the clock became wrong and right again.
fn assert_logged(server: &Server, times: usize) {
    let log = server.log();
    // The age of the feed depends on the clock too, and a slow start isn't ready at first.
    let expected = ["not_ready: feed: ", "The server is starting"];
    let errors = log.lines().filter(|line| line.contains(" ERROR "));
    let errors = errors.filter(|line| !expected.iter().any(|text| line.contains(text)));
    assert_eq!(errors.count(), times, "{log}");
    assert_eq!(log.matches("the clock isn't trusted").count(), times, "{log}");
    assert!(until(|| server.log().matches("the clock is trusted again").count() == times), "{log}");
}

/// The errors of the clock, in months. They are tried one after another.
const WRONG_BY_MONTHS: [i64; 4] = [-2, 2, -15, 15];

#[on_each_database]
fn wrong_clock_causes_nothing_irreversible(database: Database) {
    // The tests run concurrently, because each takes more than a minute.
    std::thread::scope(|scope| {
        for long in WRONG_BY_MONTHS {
            scope.spawn(move || database.run_empty(|url, folder| test_wrong_clock(url, folder, long)));
        }
    });
}

/// Moves the clock of a server far ahead and far back. On PostgreSQL, another replica has a correct clock.
/// The error `long` lasts as long as each job needs for a run, and the others only a moment.
fn test_wrong_clock(url: Option<&str>, folder: &Folder, long: i64) {
    let Some(clock) = FakeClock::new(&folder.0, "a wrong clock") else { return };
    // On PostgreSQL one of two replicas has a wrong clock. An SQLite file has only one server.
    let count = if url.is_some() { 2 } else { 1 };
    let Replicas { starts } = Replicas::new(count, url, folder).generous(folder);
    let wrong = clock.rule(starts[0].clone());
    let server = wrong.run();
    let (_, place) = settle(&starts[0], &server);
    let other = starts.get(1).map(Start::run);
    // The rule about the first two hours of uptime must not block the jobs.
    execute(&wrong, "UPDATE service_clock SET up_since_at = up_since_at - 7200000");
    for (number, months) in WRONG_BY_MONTHS.into_iter().enumerate() {
        let before = state(&wrong);
        clock.set_s(months * 31 * DAY_S);
        assert!(until(|| server.log().matches("the clock isn't trusted").count() == number + 1));
        let why = failed_clock_check(&server).unwrap();
        let expected = match (url, months > 0) {
            (Some(_), _) => "the database's",
            (None, true) => "according to the elapsed time",
            (None, false) => "the service was already running at",
        };
        assert!(why.contains(expected) && why.contains("NTP"), "{why}");
        assert_waits(&server, &place);
        std::thread::sleep(Duration::from_secs(if months == long { 65 } else { 1 }));
        assert_eq!(state(&wrong), before, "{months} months, {}", server.log());
        if let Some(other) = &other {
            assert!(is_ready(other), "{}", other.log());
            assert_eq!(other.report(&place, "e1"), "duplicate");
        }
        clock.set_s(0);
        assert!(until(|| is_ready(&server)), "{}", server.log());
        assert_logged(&server, number + 1);
        assert_eq!(server.report(&place, "e1"), "duplicate");
        assert_eq!(server.report(&place, &format!("after {number}")), "accepted");
    }
    assert_eq!(server.stop().code, Some(0));
}

#[on_each_database]
fn start_waits_until_the_clock_is_set(database: Database) {
    database.run_processes(|url, folder| {
        let Some(clock) = FakeClock::new(&folder.0, "a clock that isn't set") else { return };
        let start = clock.rule(Start::new(&folder.0).database(url));
        let server = start.run();
        let (_, place) = settle(&start, &server);
        assert_eq!(server.stop().code, Some(0));
        let mut before = state(&start);
        for since_1970 in [true, false] {
            let back_s = if since_1970 { Clock::System.now().unix_seconds() - 60 } else { 3 * 365 * DAY_S };
            clock.set_s(-back_s);
            let server = start.listening();
            let why = failed_clock_check(&server).unwrap();
            let expected =
                if url.is_some() { "the database's" } else { "the service was already running at" };
            assert!(why.contains(expected), "{why}");
            assert_waits(&server, &place);
            let show = start.command(&["clock", "show"]);
            assert_eq!(show.code, Some(1));
            assert!(show.log.contains("the clock isn't trusted") && show.stdout.contains("Trusted       no"));
            let close = start.command(&["billing", "close", "--skip-wait"]);
            assert_eq!(close.code, Some(1));
            assert!(close.log.contains("nothing is closed: this machine's clock shows"), "{}", close.log);
            // ntpd sets the clock a moment later.
            clock.set_s(0);
            assert!(until(|| is_ready(&server)), "{}", server.log());
            assert_eq!(state(&start), before);
            assert_eq!(server.report(&place, "e1"), "duplicate");
            assert_eq!(server.report(&place, &format!("after {since_1970}")), "accepted");
            execute(&start, "UPDATE service_clock SET up_since_at = up_since_at - 7200000");
            assert_eq!(server.stop().code, Some(0));
            before = state(&start);
        }
    });
}

/// The service has recorded a time that was wrong.
#[on_each_database]
fn operator_confirms_the_clock(database: Database) {
    database.run_processes(|url, folder| {
        let Some(clock) = FakeClock::new(&folder.0, "a clock that was wrong") else { return };
        let start = clock.rule(Start::new(&folder.0).database(url));
        let server = start.run();
        let place = server.settle(&server.sign_up("ada"));
        execute(&start, "UPDATE service_clock SET last_seen_at = last_seen_at + 86400000");
        assert!(until(|| failed_clock_check(&server).is_some()));
        let why = failed_clock_check(&server).unwrap();
        assert!(why.contains("was already running at") && why.contains("tollkeeper clock accept"), "{why}");
        let show = start.command(&["clock", "show", "--json"]);
        let shown: Value = serde_json::from_str(&show.stdout).unwrap();
        assert_eq!((show.code, &shown["trusted"]), (Some(1), &json!(false)), "{shown}");
        let accepted = start.command(&["clock", "accept", "--json"]);
        assert_eq!(accepted.code, Some(0), "{}", accepted.log);
        let accepted: Value = serde_json::from_str(&accepted.stdout).unwrap();
        assert_eq!(accepted["last_seen_before"], shown["last_seen_at"]);
        assert!(until(|| is_ready(&server)), "{}", server.log());
        assert_eq!(server.report(&place, "e1"), "accepted");
        let trail = start.command(&["audit-log", "--action", "clock.accepted", "--json"]).stdout;
        assert!(trail.contains("operator") && trail.contains(&text(&shown, "last_seen_at")), "{trail}");
        let show = start.command(&["clock", "show"]);
        assert_eq!(show.code, Some(0), "{}", show.log);
        assert!(show.stdout.contains("Trusted       yes") && show.stdout.contains("that will be at"));

        // An operator moves the clock by an hour.
        clock.set_s(3_600);
        assert!(until(|| failed_clock_check(&server).is_some()));
        let accepted = start.command(&["clock", "accept"]);
        if url.is_some() {
            // Two machines have different clocks, so one of them must be wrong.
            assert_eq!(accepted.code, Some(1));
            assert!(
                accepted.log.contains("nothing was changed: this machine's clock shows"),
                "{}",
                accepted.log
            );
            clock.set_s(0);
        } else {
            assert_eq!(accepted.code, Some(0), "{}", accepted.log);
        }
        assert!(until(|| is_ready(&server)), "{}", server.log());
        assert_eq!(server.report(&place, "e2"), "accepted");
        assert_eq!(server.stop().code, Some(0));
    });
}

#[on_postgres]
fn reservations_use_the_databases_clock(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let folder = Folder::new();
    let Some(clock) = FakeClock::new(&folder.0, "two replicas with two clocks") else { return };
    let url = runtime().block_on(cluster.empty_database());
    let replicas = Replicas::new(2, Some(&url), &folder).generous(&folder);
    let Replicas { starts } = replicas.set("TOLLKEEPER_BILLING__RESERVATION_MINUTES", "5");
    let right = starts[0].run();
    let leads = |server: &Server| server.metric("tollkeeper_job_leader{job=\"billing\"}") == Some(1.0);
    assert!(until(|| leads(&right)));
    let (ada, place) = settle(&starts[0], &right);
    grant_credit(&starts[0], &place, "ends in 5 minutes", Clock::System.now().plus_ms(5 * MINUTE_MS));
    let credits = || count(&starts[0], "SELECT CAST(SUM(remaining_nano) AS BIGINT) FROM credits");
    let granted = credits();
    clock.set_s(9 * 60);
    let ahead = clock.rule(starts[1].clone()).run();
    ahead.wait_until_job("reservations");
    ahead.wait_until_job("sweep");
    let reserved = || count(&starts[0], "SELECT COUNT(*) FROM reservations");
    assert_eq!(reserved(), 1, "{}", ahead.log());
    // The repeated request finds its reservation, which has expired only according to the wrong clock.
    let id = |server: &Server| reserve_as(server, &place, Some("call-1")).json()["reservation"]["id"].clone();
    let first = id(&right);
    assert!(first.is_string(), "{first}");
    assert_eq!((id(&ahead), id(&right), reserved()), (first.clone(), first, 2));
    let lives_ms = lifetime_ms(&reserve(&ahead, &place));
    assert!((4 * MINUTE_MS..=5 * MINUTE_MS + 1_000).contains(&lives_ms), "{lives_ms}");
    assert_eq!(credits(), granted, "{}", ahead.log());
    assert!(leads(&right) && !leads(&ahead), "{}", ahead.log());
    let off_s = ahead.metric("tollkeeper_clock_offset_seconds{against=\"database\"}").unwrap();
    assert!((535.0..545.0).contains(&off_s), "{off_s}");

    clock.set_s(15 * 60);
    ahead.wait_for_log("the clock isn't trusted");
    let why = failed_clock_check(&ahead).unwrap();
    assert!(why.contains("the database's") && why.contains("correct the wrong one"), "{why}");
    assert_waits(&ahead, &place);
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(reserved(), 3);
    assert!(is_ready(&right));
    let summary = format!("/v1/organizations/{}/billing/summary", place.organization());
    let summary = right.get(&summary).bearer(&ada.access_token).data();
    assert!(summary["balance"]["reserved"].as_f64().unwrap() > 0.0, "{summary}");
    assert_eq!(ahead.log().matches(" ERROR ").count(), 1, "{}", ahead.log());
    assert_eq!((ahead.stop().code, right.stop().code), (Some(0), Some(0)));
}

/// Moves the clock of the database ahead. The first call affects only sessions that begin after it, and later
/// calls affect all of them.
fn set_database_clock(start: &Start, ahead_s: i64) {
    execute(
        start,
        format!(
            "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT pg_catalog.clock_timestamp() + interval ''{ahead_s} seconds'''"
        ),
    );
    execute(
        start,
        "DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET search_path = public, pg_catalog'', current_database()); END'",
    );
}

/// Each transaction reads the database's clock, but the check every five seconds decides whether it is
/// trusted.
#[on_postgres]
fn each_transaction_reads_the_databases_clock(_: Database) {
    let Some(cluster) = Cluster::shared() else { return };
    let folder = Folder::new();
    let url = runtime().block_on(cluster.empty_database());
    let start =
        Start::new(&folder.0).database(Some(&url)).set("TOLLKEEPER_BILLING__RESERVATION_MINUTES", "5");
    let server = start.run();
    let (_, place) = settle(&start, &server);
    assert_eq!(server.stop().code, Some(0));
    set_database_clock(&start, 0);
    let server = start.run();
    let lives_ms = lifetime_ms(&reserve(&server, &place));
    assert!((4 * MINUTE_MS..=5 * MINUTE_MS + 1_000).contains(&lives_ms), "{lives_ms}");

    // A new primary has a clock that is 9 minutes ahead.
    set_database_clock(&start, 9 * 60);
    let lives_ms = lifetime_ms(&reserve(&server, &place));
    assert!((13 * MINUTE_MS..=14 * MINUTE_MS + 1_000).contains(&lives_ms), "{lives_ms}");
    server.wait_until_job("reservations");

    // A clock that is too far ahead has no effect, neither before a check detects it nor afterward.
    let [events, invoices, months, credits, _] = state(&start);
    set_database_clock(&start, 60 * DAY_S);
    let answer = reserve(&server, &place);
    if answer.status == 200 {
        assert!(lifetime_ms(&answer) < 15 * MINUTE_MS, "{}", answer.text);
    }
    server.wait_for_log("the clock isn't trusted");
    assert_waits(&server, &place);
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(state(&start)[..4], [events, invoices, months, credits], "{}", server.log());
    set_database_clock(&start, 0);
    assert!(until(|| is_ready(&server)), "{}", server.log());
    assert_eq!(server.report(&place, "e2"), "accepted");
    assert_eq!(server.stop().code, Some(0));
}

#[on_each_database]
fn month_close_waits_for_two_hours_of_uptime(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        server.settle(&server.sign_up("ada"));
        // The close is months late.
        execute(&start, "UPDATE wallets SET open_month = open_month - 3");
        let open = || count(&start, "SELECT CAST(MIN(open_month) AS BIGINT) FROM wallets");
        let late = open();
        let waits = |why: &str| {
            let close = start.command(&["billing", "close"]);
            assert_eq!(close.code, Some(1));
            assert!(close.log.contains("nothing is closed") && close.log.contains(why), "{}", close.log);
        };
        waits("that will be at");
        assert_eq!(server.stop().code, Some(0));
        let server = start.run();
        server.wait_until_job("billing");
        server.wait_until_job("retention");
        assert_eq!(open(), late, "{}", server.log());
        assert_eq!(server.stop().code, Some(0));
        execute(&start, "UPDATE service_clock SET up_since_at = up_since_at - 7190000");
        waits("that will be at");
        execute(&start, "UPDATE service_clock SET up_since_at = up_since_at - 10000");
        // A restart doesn't count as an outage unless it takes long.
        let server = start.run();
        assert!(until(|| open() > late), "{}", server.log());
        assert_eq!(server.stop().code, Some(0));
        execute(
            &start,
            "UPDATE service_clock SET last_seen_at = last_seen_at - 301000, up_since_at = up_since_at - 301000",
        );
        waits("no server has run");
        let server = start.run();
        assert!(until(|| start.command(&["billing", "close"]).log.contains("that will be at")));
        assert_eq!(server.stop().code, Some(0));
    });
}

#[on_each_database]
fn job_of_a_dead_replica_is_taken_over_soon(database: Database) {
    database.run_processes(|url, folder| {
        let Replicas { starts } = Replicas::new(2, url, folder).generous(folder);
        let first = starts[0].run();
        let leads = |server: &Server| server.metric("tollkeeper_job_leader{job=\"billing\"}") == Some(1.0);
        assert!(until(|| leads(&first)));
        let second = starts[1].run();
        second.wait_until_job("billing");
        // The lease is renewed for longer than it lasts.
        let begun = Clock::System.now();
        while Clock::System.now() < begun.plus_ms(17_000) {
            assert!(leads(&first) && !leads(&second));
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(first.kill().code, None);
        let killed = Clock::System.now();
        assert!(until(|| leads(&second)), "{}", second.log());
        let after_ms = Clock::System.now().unix_ms() - killed.unix_ms();
        assert!(after_ms < 25_000, "{after_ms}");
        assert_eq!(second.stop().code, Some(0));
    });
}
