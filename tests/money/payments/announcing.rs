//! Webhook events about payments.

use serde_json::{Value, json};
use tollkeeper::db::sql;

use support::shop::{Shop, with_shop};
use support::stripe::cards::STOLEN;
use support::{Database, on_each_database};

async fn take(shop: &Shop<'_>) -> Vec<(String, Value)> {
    let mut tx = shop.world().app.db.write().await.unwrap();
    let rows: Vec<(Vec<u8>,)> =
        sql("SELECT body FROM webhook_events ORDER BY id").all(&mut tx).await.unwrap();
    sql("DELETE FROM webhook_events").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let events = rows.into_iter().map(|(body,)| serde_json::from_slice::<Value>(&body).unwrap());
    let mut events: Vec<_> =
        events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"].clone())).collect();
    events.sort_by(|a, b| a.0.cmp(&b.0));
    events
}

#[on_each_database]
fn webhooks_are_told_of_payments(database: Database) {
    with_shop(database, async |shop| {
        let path = format!("{}/webhooks", shop.books.place.organization_path());
        let types = [
            "payment.succeeded",
            "payment.failed",
            "payment.refunded",
            "payment.disputed",
            "auto_top_up.paused",
        ];
        let body = json!({"url": "https://example.com", "events": types});
        shop.world().post(&path, &body).bearer(&shop.books.ada.access_token).data().await;
        let organization = shop.books.place.organization.clone();
        let data = |id: &Value, status: &str, refunded: i64, disputed: i64| {
            json!({"organization_id": organization, "payment_id": id, "kind": "credit", "invoice_id": null, "status": status,
                "currency": "USD", "amount": 20, "refunded": refunded, "disputed": disputed, "failure_code": null})
        };
        let id = shop.buy("20", true).await;
        assert_eq!(take(shop).await, [("payment.succeeded".to_owned(), data(&id, "succeeded", 0, 0))]);
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        shop.stripe.refund_by_hand(&intent_id, 300);
        shop.hear().await;
        let paused = |reason: &str| {
            let data = json!({"organization_id": organization, "reason": reason, "resumes_at": null});
            ("auto_top_up.paused".to_owned(), data)
        };
        assert_eq!(
            take(shop).await,
            [paused("refunded"), ("payment.refunded".to_owned(), data(&id, "succeeded", 3, 0))]
        );
        shop.stripe.dispute(&intent_id, 1_700);
        shop.hear().await;
        assert_eq!(take(shop).await, [("payment.disputed".to_owned(), data(&id, "succeeded", 3, 17))]);
        // 0 is left, so a charge begins. The bank declines the card as stolen.
        let cards = shop.stripe.all("payment_method");
        let card = cards.iter().find(|card| !card["customer"].is_null()).unwrap();
        shop.stripe.set_outcome(card["id"].as_str().unwrap(), STOLEN);
        shop.top_up(&json!({"enabled": true})).await;
        shop.work().await;
        let told = take(shop).await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0], paused("declined"));
        let failed = &told[1].1;
        assert_eq!(
            (&failed["kind"], &failed["status"], &failed["amount"], &failed["failure_code"]),
            (&json!("auto_top_up"), &json!("failed"), &json!(50), &json!("stolen_card"))
        );
    });
}
