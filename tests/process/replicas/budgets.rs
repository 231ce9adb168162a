//! A hard budget and more clients than it pays for, which call several replicas at the same time.

use serde_json::json;

use super::run_on;
use support::billed::budgets_path;
use support::chance::Chance;
use support::process::{Place, usage_event};
use support::replicas::{Fleet, text};
use support::{Database, on_each_database};

const CLIENTS: u64 = 64;
/// The prompt and completion tokens of a call, which cost 10 x 0.000002 and 100 x 0.000006.
const TOKENS: (i64, i64) = (10, 100);
/// A budget for exactly 300 calls of 0.00062.
const LIMIT: &str = "0.186619999";
const CALLS: u64 = 300;

/// The number of calls that a client made before one was refused.
#[derive(Default)]
struct ClientCalls {
    captured: u64,
    open: u64,
}

#[on_each_database]
fn hard_budget_is_never_passed_by_a_call(database: Database) {
    run_on(database, |backend, replicas, _| {
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        let place = fleet.settle(&ada, "Acme");
        let path = budgets_path(place.organization());
        let body =
            json!({"name": "Most", "scope": "organization", "period": "total", "limit": LIMIT, "hard": true});
        let budget = fleet.post(&path, &body).bearer(&ada.access_token).data();
        let path = format!("{path}/{}", text(&budget, "id"));

        let spent: Vec<ClientCalls> = std::thread::scope(|scope| {
            let (fleet, place) = (&fleet, &place);
            let clients = (0..CLIENTS).map(|number| scope.spawn(move || spend(fleet, place, number)));
            clients.collect::<Vec<_>>().into_iter().map(|client| client.join().unwrap()).collect()
        });
        let captured: u64 = spent.iter().map(|one| one.captured).sum();
        let open: u64 = spent.iter().map(|one| one.open).sum();
        println!("{backend}: {captured} captured, {open} set aside");
        assert_eq!(captured + open, CALLS);
        assert!(captured > 0 && open > 0);
        let seen = fleet.get(&path).bearer(&ada.access_token).data();
        let due = |calls: u64| exact(calls * 620_000).parse::<f64>().ok();
        assert_eq!((seen["spent"].as_f64(), seen["reserved"].as_f64()), (due(captured), due(open)));
        assert_eq!(seen["left"].to_string(), "0.000619999");
        fleet.stop();
        let audit = replicas.starts[1].command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    });
}

/// Formats an amount below 1, which is given in nano.
fn exact(nano: u64) -> String {
    format!("0.{nano:09}")
}

/// Makes calls until the budget is used up. Most calls are captured, and some stay open.
fn spend(fleet: &Fleet, place: &Place, client: u64) -> ClientCalls {
    let (mut spent, mut chance) = (ClientCalls::default(), Chance::new(client));
    for round in 0.. {
        let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1",
            "max_tokens": TOKENS.1, "estimated_prompt_tokens": TOKENS.0});
        let decision = fleet.ask("/service/v1/authorize", &question).bare();
        if decision["allowed"] != true {
            assert_eq!(decision["code"], "budget_exceeded", "{decision}");
            break;
        }
        let mut event = usage_event(place, &format!("{client}-{round}"))["events"][0].take();
        event["prompt_tokens"] = json!(TOKENS.0);
        event["completion_tokens"] = json!(TOKENS.1);
        event["reservation_id"] = json!(text(&decision["reservation"], "id"));
        if chance.below(8) == 0 {
            spent.open += 1;
            continue;
        }
        let answer = fleet.ask("/service/v1/usage", &json!({ "events": [event] })).bare();
        assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
        spent.captured += 1;
    }
    spent
}
