//! Events from Stripe that are forged, old, repeated, out of order, or about unknown payments.

use serde_json::json;
use tollkeeper::clock::{DAY_MS, HOUR_MS};

use support::shop::with_shop;
use support::stripe::WEBHOOK_SECRET;
use support::stripe::cards::Card;
use support::stripe::webhook::sign;
use support::{Database, on_each_database};

#[on_each_database]
fn forged_events_are_refused(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        let event = shop.stripe.undelivered().pop().unwrap();
        let (signature, body) = shop.stripe.packed(event["id"].as_str().unwrap(), WEBHOOK_SECRET);
        let now = shop.world().clock.now().unix_seconds();
        let other_body = body.replace("10", "99");
        let cases = [
            (sign("whsec_other", now, &body), body.as_str()),
            (signature.clone(), other_body.as_str()),
            (sign(WEBHOOK_SECRET, now - 301, &body), body.as_str()),
            (sign(WEBHOOK_SECRET, now + 301, &body), body.as_str()),
            (String::new(), body.as_str()),
            ("t=1,v1=00".to_owned(), body.as_str()),
        ];
        for (signature, body) in cases {
            let answer = shop.send_raw(&signature, body.as_bytes()).await;
            assert_eq!((answer.status, answer.code()), (400, "invalid_signature".to_owned()), "{signature}");
        }
        let garbage = "{\"id\":1}";
        let answer = shop.send_raw(&sign(WEBHOOK_SECRET, now, garbage), garbage.as_bytes()).await;
        assert_eq!((answer.status, answer.code()), (400, "invalid_json".to_owned()));
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_events").await, 0);
        assert_eq!(shop.balance().await, "0");
        // A signature is valid for exactly five minutes. One valid signature out of two is enough.
        let both = format!(
            "{},{}",
            sign("whsec_other", now - 300, &body),
            &sign(WEBHOOK_SECRET, now - 300, &body)[13..]
        );
        assert_eq!(shop.send_raw(&both, body.as_bytes()).await.status, 200);
    });
}

#[on_each_database]
fn events_come_twice_and_out_of_order(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        let events: Vec<_> =
            shop.stripe.events().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
        assert!(events.len() >= 2);
        for event in events.iter().rev().chain(&events).chain(&events) {
            assert_eq!(shop.send(event).await.status, 200);
        }
        shop.work().await;
        // The events arrive once more, after the payment was credited.
        for event in &events {
            shop.send(event).await;
        }
        shop.work().await;
        assert_eq!(shop.balance().await, "10");
        // Events with different ids about the same payment credit it only once.
        assert_eq!(shop.count("SELECT COUNT(*) FROM credits").await, 1);
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await, 0);
    });
}

#[on_each_database]
fn unknown_payment_is_kept_and_tried_again(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        let id = begun["id"].as_str().unwrap().to_owned();
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        // The database was restored from an older backup.
        let mut tx = shop.world().app.db.write().await.unwrap();
        tollkeeper::db::sql("UPDATE payments SET id = 'payment_01h455vb4pex5vsknk084sn02q', session_id = NULL, next_at = NULL")
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        shop.hear().await;
        assert!(shop.count("SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await > 0);
        for _ in 0..6 {
            shop.pass_ms(HOUR_MS);
            shop.work().await;
        }
        assert!(shop.count("SELECT COUNT(*) FROM stripe_events WHERE attempts > 3").await > 0);
        // The audit reports the events after a day.
        shop.pass_ms(DAY_MS);
        shop.work().await;
        let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
        let drifts: Vec<_> = report.drifts.iter().map(|drift| drift.invariant.to_string()).collect();
        assert!(
            !drifts.is_empty() && drifts.iter().all(|drift| drift.contains("payment_at_processor")),
            "{drifts:?}"
        );
        // The payment is restored.
        let mut tx = shop.world().app.db.write().await.unwrap();
        tollkeeper::db::sql("UPDATE payments SET id = $1").bind(id.as_str()).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!(shop.balance().await, "10");
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await, 0);
        shop.pass_ms(DAY_MS);
        shop.work().await;
        let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
        assert!(report.is_clean(), "{:?}", report.drifts);
    });
}

#[on_each_database]
fn done_events_are_removed_after_a_month(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("10", false).await;
        let stored = shop.count("SELECT COUNT(*) FROM stripe_events").await;
        assert!(stored > 0);
        shop.pass_ms(30 * DAY_MS - 1_000);
        tollkeeper::payments::jobs::sweep(&shop.world().app.payments).await.unwrap();
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_events").await, stored);
        shop.pass_ms(1_001);
        tollkeeper::payments::jobs::sweep(&shop.world().app.payments).await.unwrap();
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_events").await, 0);
    });
}
