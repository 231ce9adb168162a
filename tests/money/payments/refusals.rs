//! Refusals by Stripe that have other causes than the card. All sums are calculated by hand.

use serde_json::json;

use support::shop::{Shop, with_shop};
use support::stripe::faults::Fault;
use support::{Database, on_each_database};

/// Returns the status, amount and failure of the automatic top-ups.
async fn top_ups(shop: &Shop<'_>) -> Vec<String> {
    let rows = shop.rows().await;
    let words = rows.iter().filter(|row| row.kind.as_str() == "auto_top_up").map(|row| {
        let failure = row.failure_code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        format!("{} {}{failure}", row.status.as_str(), row.amount())
    });
    words.collect()
}

async fn work(shop: &Shop<'_>) {
    shop.work().await;
    shop.work().await;
}

#[on_each_database]
fn refusal_of_the_account_is_no_decline_of_the_card(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        shop.stripe.fail_next("POST", "/v1/payment_intents", Fault::AccountInvalid);
        // 6,000,000 x 0.0000025 = 15, so 45 are missing.
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        work(shop).await;
        let top_up = shop.read_top_up().await;
        assert_eq!((&top_up["paused_reason"], &top_up["failures"]), (&json!(null), &json!(0)));
        assert_eq!(top_ups(shop).await, ["processing 45 processor_unavailable"]);
        let mails = shop.count("SELECT COUNT(*) FROM outbox WHERE template = 'auto_top_up'").await;
        assert_eq!((shop.balance().await, mails), ("5".to_owned(), 0));
        // The charge is retried every hour, any number of times.
        for _ in 0..4 {
            shop.stripe.fail_next("POST", "/v1/payment_intents", Fault::AccountInvalid);
            shop.pass_ms(3_600_000);
            work(shop).await;
        }
        assert_eq!(shop.read_top_up().await["paused_reason"], json!(null));
        shop.pass_ms(3_600_000);
        work(shop).await;
        assert_eq!(top_ups(shop).await, ["succeeded 45"]);
        assert_eq!((shop.balance().await, shop.stripe.charges().len()), ("50".to_owned(), 2));
    });
}
