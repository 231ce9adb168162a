//! A payment at Stripe must match the request.

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, HOUR_MS};

use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::{Database, on_each_database};

/// Returns the drifts that the audit finds.
async fn drifts(shop: &Shop<'_>) -> Vec<String> {
    let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
    report
        .drifts
        .iter()
        .map(|drift| format!("{} {} {}", drift.invariant, drift.expected, drift.found))
        .filter(|drift| !crate::audit::is_recounted(drift))
        .collect()
}

#[on_each_database]
fn payment_of_something_else_is_not_credited(database: Database) {
    with_shop(database, async |shop| {
        let changes: [(&str, Value, &str); 5] = [
            ("amount_received", json!(999), "amount 1000"),
            ("currency", json!("eur"), "currency usd"),
            ("livemode", json!(true), "test mode"),
            ("customer", json!("cus_other"), "customer cus_"),
            ("metadata", json!({"payment_id": "payment_01h455vb4pex5vsknk084sn02q"}), "payment payment_"),
        ];
        for (name, value, expected) in changes {
            let begun = shop.begin(&json!({"amount": 10})).await;
            let session_id = shop.session(&begun["id"]).await;
            shop.stripe.visit(&session_id, &Card::visa()).unwrap();
            let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
            let good = shop.stripe.object(&intent_id)[name].clone();
            shop.stripe.edit(&intent_id, |intent| intent[name] = value);
            shop.hear().await;
            assert_eq!(shop.balance().await, "0", "{name}");
            assert_eq!(shop.payment(&begun["id"]).await["status"], "open", "{name}");
            let found = drifts(shop).await;
            let it = format!("payment_at_processor {expected}");
            assert!(found.len() == 1 && found[0].starts_with(&it), "{name}: {found:?}");
            // After the value is restored, the payment is credited, and the finding disappears.
            shop.stripe.edit(&intent_id, |intent| intent[name] = good);
            shop.pass_ms(DAY_MS);
            shop.work().await;
            assert_eq!(shop.balance().await, "10", "{name}");
            assert_eq!(drifts(shop).await, [] as [String; 0], "{name}");
            // An operator refunds the payment, so that the next case starts with a balance of zero.
            let id = shop.row(&begun["id"]).await.id;
            let trail = tollkeeper::trail::Trail::operator();
            tollkeeper::payments::refunds::refund(&shop.world().app.payments, id, None, &trail)
                .await
                .unwrap();
            shop.stripe.drop_events();
            let mut tx = shop.world().app.db.write().await.unwrap();
            tollkeeper::db::sql("DELETE FROM stripe_events").execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(shop.balance().await, "0");
            shop.check().await;
        }
    });
}

#[on_each_database]
fn comparison_finds_what_no_event_has_told_of(database: Database) {
    with_shop(database, async |shop| {
        // The payment was made, but its event and the server's own checks were lost.
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.stripe.drop_events();
        let mut tx = shop.world().app.db.write().await.unwrap();
        let text = "UPDATE payments SET next_at = NULL, session_id = NULL, status = 'canceled'";
        tollkeeper::db::sql(text).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!(shop.balance().await, "10");
        assert_eq!(shop.payment(&begun["id"]).await["status"], "succeeded");
        assert_eq!(drifts(shop).await, [] as [String; 0]);
    });
}

#[on_each_database]
fn comparison_finds_what_stripe_does_not_have(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("10", false).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        shop.stripe.edit(&intent_id, |intent| intent["status"] = json!("canceled"));
        shop.pass_ms(DAY_MS);
        shop.work().await;
        let found = drifts(shop).await;
        assert_eq!(
            found,
            [format!("payment_at_processor a payment that has succeeded at Stripe ({intent_id}) canceled")]
        );
        shop.stripe.edit(&intent_id, |intent| intent["status"] = json!("succeeded"));
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!(drifts(shop).await, [] as [String; 0]);
    });
}

/// When a stuck event is finally processed, its finding disappears, although the next comparison is a day
/// away.
#[on_each_database]
fn finding_about_a_stuck_event_ends_with_it(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.work().await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        for event in shop.stripe.undelivered() {
            assert_eq!(shop.send(event["id"].as_str().unwrap()).await.status, 200);
        }
        shop.stripe.drop_events();
        // After many failures, its next attempt is 26 hours away.
        let mut tx = shop.world().app.db.write().await.unwrap();
        tollkeeper::db::sql("UPDATE stripe_events SET next_at = next_at + $1, last_error = 'refused'")
            .bind(26 * HOUR_MS)
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        shop.pass_ms(25 * HOUR_MS);
        shop.work().await;
        let found = drifts(shop).await;
        assert!(
            !found.is_empty() && found.iter().all(|drift| drift.ends_with("to be processed refused")),
            "{found:?}"
        );
        shop.pass_ms(2 * HOUR_MS);
        shop.work().await;
        assert_eq!(drifts(shop).await, [] as [String; 0]);
    });
}
