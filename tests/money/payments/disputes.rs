//! Disputes: the wallet doesn't have the money while a bank has it. All sums are calculated by hand.

use serde_json::json;

use support::shop::with_shop;
use support::{Database, on_each_database};

#[on_each_database]
fn dispute_takes_the_amount_and_a_won_one_brings_it_back(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        // 4,000,000 x 0.0000025 = 10.
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        let dispute_id = shop.stripe.dispute(&intent_id, 2_500);
        shop.hear().await;
        // 25 - 10 - 25.
        assert_eq!(shop.balance().await, "-10");
        assert_eq!(shop.payment(&id).await["disputed"], 25);
        shop.check().await;
        for event in shop.stripe.events() {
            shop.send(event["id"].as_str().unwrap()).await;
        }
        shop.work().await;
        assert_eq!(shop.balance().await, "-10");

        shop.stripe.close_dispute(&dispute_id, true);
        shop.hear().await;
        assert_eq!(shop.balance().await, "15");
        assert_eq!(shop.payment(&id).await["disputed"], 0);
        assert_eq!(shop.credits().await, ["purchase 0 of 25", "purchase 15 of 25"]);
        for event in shop.stripe.events() {
            shop.send(event["id"].as_str().unwrap()).await;
        }
        shop.work().await;
        assert_eq!(shop.balance().await, "15");
    });
}

#[on_each_database]
fn lost_dispute_takes_from_the_other_credits(database: Database) {
    with_shop(database, async |shop| {
        shop.buy_elsewhere("12", "elsewhere").await;
        let id = shop.buy("25", false).await;
        // 8,000,000 x 0.0000025 = 20. The older credit is used first.
        shop.books.use_today("chat-a", 8_000_000, 0).await;
        assert_eq!(shop.credits().await, ["purchase 0 of 12", "purchase 17 of 25"]);
        shop.buy_elsewhere("4", "third").await;
        let dispute_id = shop.stripe.dispute(&shop.row(&id).await.intent_id.unwrap(), 2_000);
        shop.hear().await;
        // The dispute takes 17 from the payment's own credit, and 3 from the third one.
        assert_eq!(shop.credits().await, ["purchase 0 of 12", "purchase 0 of 25", "purchase 1 of 4"]);
        assert_eq!(shop.balance().await, "1");
        shop.stripe.close_dispute(&dispute_id, false);
        shop.hear().await;
        assert_eq!(shop.balance().await, "1");
        assert_eq!(shop.payment(&id).await["disputed"], 20);
    });
}

#[on_each_database]
fn inquiry_takes_nothing(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        let dispute_id = shop.stripe.inquire(&shop.row(&id).await.intent_id.unwrap(), 2_500);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), &shop.payment(&id).await["disputed"]), ("25", &json!(0)));
        shop.stripe.escalate(&dispute_id);
        shop.hear().await;
        assert_eq!(shop.balance().await, "0");
    });
}

#[on_each_database]
fn dispute_that_is_heard_of_before_the_payment_is_booked_after_it(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 25})).await;
        let session_id = shop.session(&begun["id"]).await;
        shop.stripe.visit(&session_id, &support::stripe::cards::Card::visa()).unwrap();
        shop.stripe.drop_events();
        let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
        shop.stripe.dispute(&intent_id, 2_500);
        shop.hear().await;
        assert_eq!(shop.balance().await, "0");
        let paid = shop.payment(&begun["id"]).await;
        assert_eq!((&paid["status"], &paid["disputed"]), (&json!("succeeded"), &json!(25)));
    });
}
