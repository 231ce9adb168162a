//! Alerts of low balances.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::balance_alerts::mail_due;

use super::budgets::alerts::mails;
use support::transcript::{Books, with_books};
use support::{Database, on_each_database};

const START: &str = "2026-01-15T09:00:00Z";

fn path(books: &Books<'_>) -> String {
    format!("{}/billing/balance-alert", books.place.organization_path())
}

async fn read(books: &Books<'_>) -> Value {
    books.world.get(&path(books)).bearer(&books.ada.access_token).data().await
}

async fn set(books: &Books<'_>, below: Value) -> Value {
    let call = books.world.call(Method::PUT, &path(books)).json(&json!({ "below": below }));
    call.bearer(&books.ada.access_token).data().await
}

async fn told(books: &Books<'_>) -> u64 {
    mail_due(&books.world.app.billing, &books.world.app.mail.outbox).await.unwrap()
}

#[on_each_database]
fn balance_below_its_threshold_is_told_once_until_it_is_back(database: Database) {
    with_books(database, START, async |books| {
        let none = json!({"below": null, "low_since": null, "balance": 0, "currency": "USD"});
        assert_eq!(read(books).await, none);
        books.buy_credit("10", "payment 1").await;
        // A balance of 10 is at the threshold, so it isn't low.
        assert_eq!(set(books, json!(10)).await["low_since"], Value::Null);
        assert_eq!(told(books).await, 0);
        // chat-a: 1,000 x 0.0000025 = 0.0025.
        books.use_today("chat-a", 1_000, 0).await;
        assert_eq!(read(books).await["low_since"], "2026-01-15T09:00:00.000Z");
        books.use_today("chat-a", 1_000, 0).await;
        let pair = tokio::join!(told(books), told(books));
        assert_eq!(pair.0 + pair.1, 1);
        let sent = mails(books.world, "Low balance: Acme").await;
        assert_eq!(sent.len(), 1);
        assert!(sent[0].0.contains("ada@example.com"), "{}", sent[0].0);
        for part in [" 9.99 USD", " 10.00 USD"] {
            assert!(sent[0].1.contains(part), "{part}: {}", sent[0].1);
        }
        books.use_today("chat-a", 1_000, 0).await;
        assert_eq!(told(books).await, 0, "the alert is sent once");
        // 0.0075 were used, so the balance is above the threshold again.
        books.buy_credit("0.01", "payment 2").await;
        assert_eq!(read(books).await["low_since"], Value::Null);
        assert_eq!(told(books).await, 0);
        books.use_today("chat-a", 10_000, 0).await;
        assert_eq!(told(books).await, 1, "and again after the balance falls again");
        // Without a threshold no balance is low. A balance below a new threshold triggers an e-mail
        // immediately.
        assert_eq!(set(books, Value::Null).await["low_since"], Value::Null);
        set(books, json!("-5.5")).await;
        assert_eq!(told(books).await, 0);
        set(books, json!(100)).await;
        assert_eq!(told(books).await, 1);
        set(books, json!(200)).await;
        assert_eq!(told(books).await, 0, "the balance was already low");
    });
}

#[on_each_database]
fn reserved_money_is_not_used_yet(database: Database) {
    with_books(database, START, async |books| {
        books.buy_credit("1", "payment 1").await;
        set(books, json!("0.999999")).await;
        books.authorize_call("embed-e", 8_192).await;
        assert_eq!(read(books).await["low_since"], Value::Null);
        books.capture_call("embed-e", 8_192).await;
        // 8,192 x 0.0000000007 = 0.0000057344, rounded down to nanos.
        assert_eq!(read(books).await["balance"].to_string(), "0.999994266");
        assert_eq!(told(books).await, 1);
    });
}

#[on_each_database]
fn bad_thresholds_are_named(database: Database) {
    with_books(database, START, async |books| {
        for (below, due) in [
            (json!(true), "below wrong_type"),
            (json!("much"), "below invalid_amount"),
            (json!(9_000_000_001_i64), "below invalid_amount"),
            (json!("-9000000000.000000001"), "below invalid_amount"),
        ] {
            let call = books.world.call(Method::PUT, &path(books)).json(&json!({ "below": below }));
            let answer = call.bearer(&books.ada.access_token).send().await;
            assert_eq!(answer.details(), [due], "{}", answer.text);
        }
    });
}
