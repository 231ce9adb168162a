//! A PostgreSQL that doesn't answer, and one with delays of seconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load;
use super::wire::{Wire, through};
use support::chance::number;
use support::http::Answer;
use support::postgres::Cluster;
use support::process::{Place, Server, until, usage_event};
use support::world::{Folder, runtime};
use support::{Database, on_postgres};

/// The number of concurrent clients.
const CLIENTS: usize = 60;

fn question(place: &Place) -> Value {
    json!({"credential": place.key, "operation": "chat", "model": "svc-1", "reserve": false})
}

/// Asserts that the status is 200, or 503 with a time to retry. Returns the status. No client may wait
/// forever.
fn assert_answered(answer: &Answer) -> u16 {
    if answer.status != 200 {
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1, "{}", answer.text);
    }
    answer.status
}

/// Reports one event from each of many clients. Returns the number of accepted and of refused events, and the
/// longest wait.
fn report_at_once(server: &Server, place: &Place, round: u64) -> (usize, usize, Duration) {
    let (taken, sent_away) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (taken, sent_away) = (&taken, &sent_away);
            scope.spawn(move || {
                let event = usage_event(place, &format!("round-{round}-{client}"));
                let answer = server.ask("/service/v1/usage", &event).send();
                let counter = if assert_answered(&answer) == 200 { taken } else { sent_away };
                counter.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    (taken.into_inner(), sent_away.into_inner(), began.elapsed())
}

#[on_postgres]
fn silent_and_slow_postgres_delay_answers_by_a_bounded_time(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let rounds = number("TOLLKEEPER_TEST_KILLS").unwrap_or(1);
    let (folder, direct) = (Folder::new(), runtime().block_on(cluster.empty_database()));
    let wire = Wire::to(&cluster.socket());
    let start = load::start(&folder, &through(&wire, &direct));
    let server = start.run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let authorize = || server.ask("/service/v1/authorize", &question(&place)).send();
    assert_eq!(authorize().json()["allowed"], true);

    for round in 0..rounds {
        // Returns how often this process has logged a message about the feed.
        let log_count = |what: &str| server.log().matches(what).count();
        let (lost, found) = ("the feed of changes can't be read", "the feed of changes is read again");
        let (lost_before, found_before) = (log_count(lost), log_count(found));

        wire.hold(true);
        // Cached keys are authorized from memory while the cache is trusted, which is up to five seconds
        // after the last read of the feed.
        let mut from_memory = 0;
        while log_count(lost) == lost_before {
            let answer = authorize();
            if answer.status == 200 {
                assert_eq!(answer.json()["allowed"], true);
                from_memory += 1;
            }
            assert_answered(&answer);
        }
        assert!(from_memory > 0, "no decision was made from memory");
        assert_eq!(assert_answered(&authorize()), 503, "no decision uses outdated memory");
        let silent = report_at_once(&server, &place, 2 * round);
        assert_eq!(silent.0, 0, "nothing can have been written");
        wire.hold(false);
        assert!(until(|| log_count(found) > found_before), "{}", server.log());
        assert!(until(|| authorize().status == 200), "{}", server.log());

        // The delay exceeds the feed's timeout, so the caches aren't trusted, and every answer is late.
        wire.delay(Duration::from_millis(3_000));
        assert!(until(|| log_count(lost) > lost_before + 1), "{}", server.log());
        let slow = report_at_once(&server, &place, 2 * round + 1);
        assert_answered(&authorize());
        wire.delay(Duration::ZERO);
        assert!(until(|| authorize().status == 200), "{}", server.log());
        println!(
            "round {round}: {from_memory} decisions from memory while PostgreSQL was silent; of {CLIENTS} reports \
             {} were sent away then, the last after {:?}; while it was slow {} were taken and {} sent away, the last after {:?}",
            silent.1, silent.2, slow.0, slow.1, slow.2
        );
    }

    // Refused clients retry, and each event counts once. A connection that hasn't been used since then may
    // still wait for answers, and its first use replaces it.
    for round in 0..2 * rounds {
        assert!(until(|| report_at_once(&server, &place, round).0 == CLIENTS), "{}", server.log());
    }
    // The same applies to connections for reads.
    assert!(until(|| server.get(&place.project_path).bearer(&ada.access_token).send().status == 200));
    let counted = i64::try_from(CLIENTS).unwrap() * i64::try_from(2 * rounds).unwrap();
    assert_eq!(server.requests(&place, &ada), counted);
    let audit = start.command(&["audit"]);
    assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    assert!(!server.log().contains("internal_error"), "{}", server.log());
    assert_eq!(server.stop().code, Some(0));
}
