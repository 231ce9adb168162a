//! Webhook events about balances and about credits that expire soon, with amounts calculated by hand.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::{self, credits, expiring};
use tollkeeper::billing::wallets;
use tollkeeper::clock::Time;
use tollkeeper::metrics::Job;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use super::webhook_events::{subscribe, take_events};
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

const START: &str = "2026-01-15T09:00:00Z";

async fn set_alert(books: &Books<'_>, below: Value) {
    let path = format!("{}/billing/balance-alert", books.place.organization_path());
    let call = books.world.call(Method::PUT, &path).json(&json!({ "below": below }));
    call.bearer(&books.ada.access_token).data().await;
}

async fn set_credit_limit(books: &Books<'_>, limit: &str) {
    let (billing, id) = (&books.world.app.billing, books.organization_id());
    wallets::set_credit_limit(billing, id, Nano::parse(limit).unwrap(), &Trail::operator()).await.unwrap();
}

/// Takes the queued events. Returns their types, balances, credit limits and thresholds.
async fn take(books: &Books<'_>) -> Vec<(String, Value, Value, Value)> {
    let events = take_events(books.world).await.into_iter().map(|event| {
        let data = &event["data"];
        assert_eq!(data["organization_id"], json!(books.place.organization));
        assert_eq!((&data["currency"], data.as_object().unwrap().len()), (&json!("USD"), 5), "{event}");
        let value = |name: &str| data[name].clone();
        let of = event["type"].as_str().unwrap().to_owned();
        (of, value("balance"), value("credit_limit"), value("alert_below"))
    });
    events.collect()
}

#[on_each_database]
fn balance_tells_webhooks_of_its_standing_once(database: Database) {
    with_books(database, START, async |books| {
        set_credit_limit(books, "1").await;
        let of = ["balance.low", "balance.depleted", "balance.recovered"];
        subscribe(books.world, &books.ada, &books.place, &of).await;
        let event = |of: &str, balance: f64, limit: i64, below: Value| {
            vec![(format!("balance.{of}"), json!(balance), json!(limit), below)]
        };
        // 0 is below the threshold of 10, but the credit limit of 1 isn't used up.
        set_alert(books, json!(10)).await;
        let low = take(books).await;
        assert_eq!(low, [("balance.low".to_owned(), json!(0), json!(1), json!(10))]);
        books.buy_credit("10", "payment 1").await;
        let back = take(books).await;
        assert_eq!(back, [("balance.recovered".to_owned(), json!(10), json!(1), json!(10))]);
        // chat-a: 1,000 x 0.0000025 = 0.0025.
        books.use_today("chat-a", 1_000, 0).await;
        assert_eq!(take(books).await, event("low", 9.9975, 1, json!(10)));
        books.use_today("chat-a", 1_000, 0).await;
        assert_eq!(take(books).await, [], "it is told once");
        // 4,400,000 x 0.0000025 = 11, and 9.995 - 11 = -1.005, which exceeds the credit limit by 0.005.
        books.use_today("chat-a", 4_400_000, 0).await;
        assert_eq!(take(books).await, event("depleted", -1.005, 1, json!(10)));
        set_credit_limit(books, "2").await;
        assert_eq!(take(books).await, [], "the balance is still low");
        set_alert(books, Value::Null).await;
        assert_eq!(take(books).await, event("recovered", -1.005, 2, Value::Null));
        set_credit_limit(books, "1").await;
        assert_eq!(take(books).await, event("depleted", -1.005, 1, Value::Null));
        // The balance of -1.005 isn't depleted with a credit limit of 5.
        set_credit_limit(books, "5").await;
        assert_eq!(take(books).await, event("recovered", -1.005, 5, Value::Null));
        set_alert(books, json!(-3)).await;
        // 1,598,000 x 0.0000025 = 3.995. The balance is -5, which is both low and depleted.
        books.use_today("chat-a", 1_598_000, 0).await;
        let both = [event("depleted", -5.0, 5, json!(-3)), event("low", -5.0, 5, json!(-3))];
        let both: Vec<_> =
            both.concat().into_iter().map(|(of, _, limit, below)| (of, json!(-5), limit, below)).collect();
        assert_eq!(take(books).await, both);
    });
}

#[on_each_database]
fn credit_that_expires_within_a_week_is_announced_once(database: Database) {
    with_books(database, START, async |books| {
        subscribe(books.world, &books.ada, &books.place, &["credit.expiring"]).await;
        let mut added = Vec::new();
        for (amount, reference, until) in [
            ("1", "payment 1", "2026-02-09T00:00:00Z"),
            ("3", "payment 2", "2026-02-10T00:00:00Z"),
            ("5", "payment 3", "2026-02-17T00:00:00Z"),
        ] {
            let expires_at = Time::parse(until);
            let new = credits::NewCredit { expires_at, ..books.new_credit(amount, reference) };
            added.push(books.add(&new).await.unwrap().credit.id);
        }
        // 400,001 x 0.0000025 = 1.0000025: the first credit is used up, and 2.9999975 of the second one are
        // left.
        books.use_today("chat-a", 400_001, 0).await;
        books.set_time("2026-02-02T23:59:00Z");
        assert_eq!(expiring::announce_due(&books.world.app.billing).await.unwrap(), 0);
        books.set_time("2026-02-03T00:00:00Z");
        let billing = &books.world.app.billing;
        let pair = tokio::join!(expiring::announce_due(billing), expiring::announce_due(billing));
        assert_eq!(pair.0.unwrap() + pair.1.unwrap(), 1);
        let organization = books.place.organization.clone();
        let data = |id: usize, amount: Value, until: &str| {
            json!({"organization_id": organization, "credit_id": added[id], "currency": "USD", "amount": amount,
                "expires_at": until})
        };
        let expected = json!({"type": "credit.expiring", "timestamp": "2026-02-03T00:00:00.000Z",
            "data": data(1, json!(2.9999975), "2026-02-10T00:00:00.000Z")});
        assert_eq!(take_events(books.world).await, [expected]);
        let lease = books.world.app.leases.lease(Job::Billing);
        bookkeeping::run_due(billing, &lease).await.unwrap();
        assert_eq!(take_events(books.world).await, Vec::<Value>::new(), "the event is sent once");
        // When the third credit is announced, the second one has expired.
        books.set_time("2026-02-10T09:00:00Z");
        bookkeeping::run_due(&books.world.app.billing, &lease).await.unwrap();
        let later = take_events(books.world).await;
        let later: Vec<_> = later.iter().map(|event| &event["data"]).collect();
        assert_eq!(later, [&data(2, json!(5), "2026-02-17T00:00:00.000Z")]);
    });
}
