//! A customer's complete journey from registration to the bill, with each request at another replica.

use serde_json::json;

use super::{REPLICAS, run_on, trials};
use support::process::{Account, Place, until, usage_event};
use support::replicas::{Fleet, text};
use support::{Database, on_each_database};

/// The number of concurrent customers in each trial.
const CUSTOMERS: u64 = 6;

#[on_each_database]
fn customer_journey_works_across_replicas(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        // A single customer uses the replicas strictly in turn, starting with each of them.
        for first in 0..REPLICAS {
            fleet.next();
            journey(&fleet, &format!("alone{first}"));
        }
        // Concurrent customers mix the turns.
        let customers = CUSTOMERS * trials();
        std::thread::scope(|scope| {
            for number in 0..customers {
                let fleet = &fleet;
                scope.spawn(move || journey(fleet, &format!("customer{number}")));
            }
        });
        fleet.stop();
        let audit = replicas.starts[0].command(&["audit"]);
        assert_eq!(audit.code, Some(0), "{}{}", audit.stdout, audit.log);
    });
}

fn journey(fleet: &Fleet, name: &str) {
    let mut ada = fleet.sign_up(name);
    let refreshed = fleet.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token).data();
    ada.access_token = text(&refreshed, "access_token");
    let me = fleet.get("/v1/auth/me").bearer(&ada.access_token).data();
    assert_eq!((&me["user"]["username"], &me["user"]["email_verified"]), (&json!(name), &json!(true)));
    let place = fleet.settle(&ada, &format!("{name}'s"));
    change(fleet, &ada, &place);
    call(fleet, &place, name);
    read_the_bill(fleet, &ada, &place);
    fleet.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data();
    let out = || {
        let at_each = (0..REPLICAS).map(|_| fleet.get("/v1/auth/me").bearer(&ada.access_token).send().status);
        at_each.into_iter().all(|status| status == 401)
    };
    assert!(until(out), "logged out, but still allowed");
}

/// Asserts that changes at one replica are visible at the next.
fn change(fleet: &Fleet, ada: &Account, place: &Place) {
    for name in ["Another bot", "The bot"] {
        let put = fleet.call("PUT", &place.project_path).bearer(&ada.access_token);
        put.json(&json!({ "name": name })).data();
        let project = fleet.get(&place.project_path).bearer(&ada.access_token).data();
        assert_eq!(project["name"], name, "{project}");
    }
    let projects = format!("/v1/organizations/{}/projects", place.organization());
    let listed = fleet.get(&projects).bearer(&ada.access_token).data();
    assert_eq!((&listed["total"], &listed["projects"][0]["name"]), (&json!(1), &json!("The bot")));
}

/// Makes two calls. One is captured by an event that is sent three times, and the other is released.
fn call(fleet: &Fleet, place: &Place, name: &str) {
    assert_eq!(fleet.get("/v1/models").bearer(&place.key).bare()["object"], "list");
    let question = json!({"credential": place.key, "operation": "chat", "model": "svc-1", "max_tokens": 500,
                          "estimated_prompt_tokens": 1_000});
    let reserve = || -> String {
        let decision = fleet.ask("/service/v1/authorize", &question).bare();
        assert_eq!(decision["allowed"], true, "{decision}");
        text(&decision["reservation"], "id")
    };
    let (used, unused) = (reserve(), reserve());
    fleet.call_service("POST", &format!("/service/v1/reservations/{used}/extend")).bare();
    fleet.call_service("DELETE", &format!("/service/v1/reservations/{unused}")).bare();
    let mut batch = usage_event(place, name);
    batch["events"][0]["reservation_id"] = json!(used);
    for status in ["accepted", "duplicate", "duplicate"] {
        let answer = fleet.ask("/service/v1/usage", &batch).bare();
        assert_eq!(answer["results"][0]["status"], status, "{answer}");
    }
}

fn read_the_bill(fleet: &Fleet, ada: &Account, place: &Place) {
    let get = |path: &str| fleet.get(path).bearer(&ada.access_token).data();
    let organization = format!("/v1/organizations/{}", place.organization());
    for _ in 0..REPLICAS {
        assert_eq!(fleet.next().requests(place, ada), 1);
        let usage = get(&format!("{organization}/billing/usage"));
        assert_eq!(usage["total"]["chat"]["requests"], 1, "{usage}");
        let usage = get(&format!("{}/usage", place.project_path));
        assert_eq!(usage["total"]["chat"]["tokens"], json!({"prompt": 1_000, "completion": 500}), "{usage}");
        let summary = get(&format!("{organization}/billing/summary"));
        // 1,000 x 0.000002 and 500 x 0.000006 are due.
        assert_eq!(summary["balance"]["reserved"].as_f64(), Some(0.0), "{summary}");
        assert_eq!(summary["balance"]["available"].as_f64(), Some(-0.005), "{summary}");
        assert_eq!(get(&format!("{organization}/billing/invoices"))["total"], 0);
    }
}
