//! A limited balance and more clients than it pays for, which call all replicas at the same time.

use serde_json::{Value, json};

use super::run_on;
use support::chance::{Chance, number};
use support::process::{Place, usage_event};
use support::replicas::{Fleet, text};
use support::{Database, on_each_database};

const CLIENTS: u64 = 48;
/// The prompt and completion tokens of a call, which cost 10 x 0.000002 and 100 x 0.000006.
const TOKENS: (i64, i64) = (10, 100);
const CALL_NANO: u64 = 620_000;

/// The calls that a client made before one was refused.
#[derive(Default)]
struct ClientCalls {
    captured: u64,
    /// The events that would capture the open reservations.
    kept: Vec<Value>,
}

#[on_each_database]
fn balance_is_spent_exactly(database: Database) {
    // The amount must be in whole cents: 500 calls cost 0.31.
    let cents = 31 * number("TOLLKEEPER_TEST_CALLS").unwrap_or(500) / 500;
    let calls = cents * 10_000_000 / CALL_NANO;
    assert_eq!(calls * CALL_NANO, cents * 10_000_000, "TOLLKEEPER_TEST_CALLS is a multiple of 500");
    run_on(database, |backend, replicas, _| {
        let replicas = replicas.set("TOLLKEEPER_BILLING__CREDIT_LIMIT", "0");
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        assert_eq!(reserve(&fleet, &place)["code"], "insufficient_quota", "it is prepaid");
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        let credit = [
            "credit",
            "add",
            "--organization",
            place.organization(),
            "--amount",
            &amount,
            "--reference",
            "p",
        ];
        let added = replicas.starts[1].command(&credit);
        assert_eq!(added.code, Some(0), "{}", added.log);

        let spent: Vec<ClientCalls> = std::thread::scope(|scope| {
            let (fleet, place) = (&fleet, &place);
            let clients = (0..CLIENTS).map(|number| scope.spawn(move || spend(fleet, place, number)));
            clients.collect::<Vec<_>>().into_iter().map(|client| client.join().unwrap()).collect()
        });
        let captured: u64 = spent.iter().map(|one| one.captured).sum();
        let kept: Vec<_> = spent.into_iter().flat_map(|one| one.kept).collect();
        println!("{backend}: {calls} calls were paid for; {captured} captured, {} set aside", kept.len());
        assert_eq!(captured + kept.len() as u64, calls);
        assert!(captured > 0 && !kept.is_empty());
        for event in &kept {
            capture(&fleet, event);
        }
        assert_eq!(reserve(&fleet, &place)["code"], "insufficient_quota");
        let path = format!("/v1/organizations/{}/billing/summary", place.organization());
        let summary = fleet.get(&path).bearer(&ada.access_token).data();
        let balance = &summary["balance"];
        assert_eq!((balance["available"].as_f64(), balance["reserved"].as_f64()), (Some(0.0), Some(0.0)));
        assert_eq!(fleet.next().requests(&place, &ada), i64::try_from(calls).unwrap());
        fleet.stop();
        let audit = replicas.starts[2].command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    });
}

fn reserve(fleet: &Fleet, place: &Place) -> Value {
    let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": TOKENS.1,
                          "estimated_prompt_tokens": TOKENS.0});
    fleet.ask("/service/v1/authorize", &question).bare()
}

fn capture(fleet: &Fleet, event: &Value) {
    let answer = fleet.ask("/service/v1/usage", &json!({ "events": [event] })).bare();
    assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
}

/// Makes calls until no money is left. Most calls are captured immediately, and some stay open.
fn spend(fleet: &Fleet, place: &Place, client: u64) -> ClientCalls {
    let (mut spent, mut chance) = (ClientCalls::default(), Chance::new(client));
    for round in 0.. {
        let decision = reserve(fleet, place);
        if decision["allowed"] != true {
            assert_eq!(decision["code"], "insufficient_quota", "{decision}");
            break;
        }
        let mut event = usage_event(place, &format!("{client}-{round}"))["events"][0].take();
        event["prompt_tokens"] = json!(TOKENS.0);
        event["completion_tokens"] = json!(TOKENS.1);
        event["reservation_id"] = json!(text(&decision["reservation"], "id"));
        if chance.below(4) == 0 {
            spent.kept.push(event);
        } else {
            capture(fleet, &event);
            spent.captured += 1;
        }
    }
    spent
}
