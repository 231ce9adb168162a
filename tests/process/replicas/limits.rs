//! Limits that three replicas share: the rate of a key, and the concurrent calls of a model.

use std::time::Instant;

use serde_json::{Value, json};

use super::{REPLICAS, run_on, trials};
use support::process::Place;
use support::replicas::{Fleet, text};
use support::{Database, on_each_database};

/// The number of concurrent clients.
const CLIENTS: usize = 48;

/// Runs a function in all clients at the same time. Returns the results.
fn at_once<T: Send>(act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(CLIENTS);
    std::thread::scope(|scope| {
        let (act, start) = (&act, &start);
        let clients = (0..CLIENTS).map(|number| {
            scope.spawn(move || {
                start.wait();
                act(number)
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// On SQLite each process counts for itself, so the test only runs on PostgreSQL.
#[on_each_database]
fn key_rate_is_shared(database: Database) {
    const PER_MINUTE: u32 = 600;
    /// The calls that a replica reserves in advance: five seconds of the rate.
    const LEASE: f64 = 50.0;
    run_on(database, |backend, replicas, _| {
        if backend == "sqlite" {
            return;
        }
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        for trial in 0..trials() {
            let body =
                json!({"name": format!("limited {trial}"), "restrictions": {"rate_limit": PER_MINUTE}});
            let keys = format!("{}/api-keys", place.project_path);
            let key = text(&fleet.post(&keys, &body).bearer(&ada.access_token).data(), "key");
            let begun = Instant::now();
            let calls = 40;
            let let_through: u32 =
                at_once(|_| (0..calls).map(|_| u32::from(is_call_allowed(&fleet, &key))).sum::<u32>())
                    .into_iter()
                    .sum();
            let elapsed_s = begun.elapsed().as_secs_f64();
            // All replicas together immediately allow the calls of one minute, and then calls at the rate.
            let due = f64::from(PER_MINUTE) + elapsed_s * f64::from(PER_MINUTE) / 60.0;
            let all = CLIENTS * calls;
            println!("{backend}: {let_through} of {all} calls in {elapsed_s:.2} s, {due:.0} are due");
            #[allow(clippy::cast_precision_loss, reason = "three")]
            let leases = LEASE * REPLICAS as f64;
            assert!(f64::from(let_through) <= due + leases, "{let_through} were allowed, expected {due}");
            assert!(
                f64::from(let_through) >= due.min(all as f64) - leases,
                "{let_through} were allowed, expected {due}"
            );
        }
        fleet.stop();
    });
}

/// Returns `true` if a call is allowed. Asserts that a refusal has a time to retry.
fn is_call_allowed(fleet: &Fleet, key: &str) -> bool {
    let answer = fleet.get("/v1/billing/pricing").bearer(key).send();
    if answer.status == 200 {
        return true;
    }
    assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
    assert!(answer.header("retry-after-ms").parse::<u32>().is_ok_and(|ms| (1..=60_000).contains(&ms)));
    false
}

#[on_each_database]
fn model_concurrency_is_shared(database: Database) {
    run_on(database, |_, replicas, folder| {
        const AT_ONCE: usize = 5;
        let file = folder.0.join("catalog.toml");
        let catalog = std::fs::read_to_string(&file).unwrap();
        let limited = format!("max_concurrent_requests = {AT_ONCE}\n");
        std::fs::write(&file, catalog.replace("max_concurrent_requests = 1000000\n", &limited)).unwrap();
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        for trial in 0..trials() {
            let decisions = at_once(|_| reserve(&fleet, &place));
            let (yes, no): (Vec<_>, Vec<_>) =
                decisions.into_iter().partition(|decision| decision["allowed"] == true);
            assert_eq!((yes.len(), no.len()), (AT_ONCE, CLIENTS - AT_ONCE));
            assert!(no.iter().all(|decision| decision["code"] == "model_concurrency_limited"));
            // A call that ends at any replica allows another one at any replica.
            let mut held = yes;
            for number in 0..2 * AT_ONCE {
                let ends = held.remove(0);
                end(&fleet, &place, &format!("{trial}-{number}"), &ends, number % 2 == 0);
                let next = reserve(&fleet, &place);
                assert_eq!(next["allowed"], true, "{next}");
                assert_eq!(reserve(&fleet, &place)["allowed"], false);
                held.push(next);
            }
            held.iter().for_each(|decision| end(&fleet, &place, "", decision, false));
        }
        fleet.stop();
        let audit = replicas.starts[0].command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    });
}

fn reserve(fleet: &Fleet, place: &Place) -> Value {
    let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 100,
                          "estimated_prompt_tokens": 10});
    fleet.ask("/service/v1/authorize", &question).bare()
}

/// Captures or releases a reservation.
fn end(fleet: &Fleet, place: &Place, id: &str, decision: &Value, capture: bool) {
    let reservation = text(&decision["reservation"], "id");
    if capture {
        let mut batch = support::process::usage_event(place, id);
        batch["events"][0]["reservation_id"] = json!(reservation);
        let answer = fleet.ask("/service/v1/usage", &batch).bare();
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
    } else {
        fleet.call_service("DELETE", &format!("/service/v1/reservations/{reservation}")).bare();
    }
}
