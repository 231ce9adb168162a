//! The maximum amount that is charged without an owner's confirmation. All sums are calculated by hand.

use serde_json::{Value, json};

use support::shop::{Shop, with_shop};
use support::{Database, on_each_database};

/// Returns the status, amount and failure of the automatic top-ups, in the order in which they were paid.
async fn top_ups(shop: &Shop<'_>) -> Vec<String> {
    let mut rows = shop.rows().await;
    rows.sort_by_key(|row| (row.paid_at.is_none(), row.paid_at));
    let words = rows.iter().filter(|row| row.kind.as_str() == "auto_top_up").map(|row| {
        let failure = row.failure_code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        format!("{} {}{failure}", row.status.as_str(), row.amount())
    });
    words.collect()
}

/// Removes the queued e-mails about top-ups, and returns their notices.
async fn mails(shop: &Shop<'_>) -> Vec<Value> {
    let mut tx = shop.world().app.db.write().await.unwrap();
    let rows: Vec<(String,)> =
        tollkeeper::db::sql("SELECT details FROM outbox WHERE template = 'auto_top_up' ORDER BY id")
            .all(&mut tx)
            .await
            .unwrap();
    tollkeeper::db::sql("DELETE FROM outbox").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    rows.into_iter()
        .map(|(details,)| serde_json::from_str::<Value>(&details).unwrap()["top_up"].clone())
        .collect()
}

async fn work(shop: &Shop<'_>) {
    for _ in 0..4 {
        shop.work().await;
    }
}

#[on_each_database]
fn automatic_charges_of_a_day_are_bounded(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("50", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        // 9 x 1,000,000,000 x 0.0000025 = 22,500. The balance is 50 - 22,500 = -22,450, and 22,500 are
        // missing.
        for _ in 0..9 {
            shop.books.use_today("chat-a", 1_000_000_000, 0).await;
        }
        assert_eq!(shop.balance().await, "-22450");
        // `payments.maximum_amount` is 10,000. On the first day, that amount is charged in one charge.
        work(shop).await;
        assert_eq!(shop.balance().await, "-12450");
        assert_eq!(top_ups(shop).await, ["succeeded 10000", "processing 12500 daily_maximum"]);
        let mail = json!({"reason": "daily_maximum", "amount": "12500", "currency": "USD"});
        assert_eq!(mails(shop).await, [mail], "the owners are notified once");
        // Nothing more is charged on that day, regardless of usage.
        shop.books.set_time("2026-03-10T23:59:59Z");
        shop.books.use_today("chat-a", 1, 0).await;
        work(shop).await;
        assert_eq!((shop.stripe.charges().len(), mails(shop).await), (2, vec![]));
        assert_eq!(shop.balance().await, "-12450.0000025");
        // 10,000 are charged on the second day, which leaves -2,450.0000025. 2,500.01 are charged on the
        // third day.
        shop.books.set_time("2026-03-11T00:00:00Z");
        work(shop).await;
        assert_eq!(shop.balance().await, "-2450.0000025");
        assert_eq!(mails(shop).await.len(), 1);
        shop.books.set_time("2026-03-12T00:00:00Z");
        work(shop).await;
        assert_eq!(shop.balance().await, "50.0099975");
        assert_eq!(top_ups(shop).await, ["succeeded 10000", "succeeded 10000", "succeeded 2500.01"]);
        assert_eq!((shop.stripe.charges().len(), mails(shop).await), (4, vec![]));
    });
}

#[on_each_database]
fn charge_that_waits_for_the_next_month_counts_in_it(database: Database) {
    with_shop(database, async |shop| {
        shop.books.set_time("2026-03-31T12:00:00Z");
        shop.buy("50", true).await;
        let top_up = json!({"enabled": true, "threshold": 10, "restore_to": 50, "monthly_cap": 10_100});
        shop.top_up(&top_up).await;
        // 12,500 are missing. 10,000 are charged on the last day of March, and 2,500 in April.
        for _ in 0..5 {
            shop.books.use_today("chat-a", 1_000_000_000, 0).await;
        }
        work(shop).await;
        assert_eq!(shop.balance().await, "-2450");
        shop.books.set_time("2026-04-01T00:00:00Z");
        work(shop).await;
        // The balance is 50 - 12,500 = -12,450. April's cap has 10,100 - 2,500 = 7,600 left, of which 7,500
        // can be charged on the first day.
        for _ in 0..5 {
            shop.books.use_today("chat-a", 1_000_000_000, 0).await;
        }
        work(shop).await;
        shop.books.set_time("2026-04-02T00:00:00Z");
        work(shop).await;
        assert_eq!(
            top_ups(shop).await[..4],
            [
                "succeeded 10000",
                "succeeded 2500",
                "succeeded 7500",
                // 100 of the cap are left.
                "succeeded 100",
            ]
        );
        assert_eq!(shop.read_top_up().await["paused_reason"], "monthly_cap");
        assert_eq!(shop.balance().await, "-4850");
    });
}
