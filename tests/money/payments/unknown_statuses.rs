//! Statuses, fields and events from Stripe that this version doesn't support. They credit nothing, and the
//! audit reports an unknown status as long as it lasts. All sums are calculated by hand.

use serde_json::{Value, json};
use tollkeeper::clock::HOUR_MS;

use support::shop::{Shop, with_shop};
use support::stripe::WEBHOOK_SECRET;
use support::stripe::cards::{Card, Outcome};
use support::stripe::refunds::RefundOutcome;
use support::stripe::webhook::sign;
use support::{Database, on_each_database};

async fn a_day_passes(shop: &Shop<'_>) {
    shop.pass_ms(25 * HOUR_MS);
    shop.work().await;
    shop.work().await;
}

/// Returns the sorted findings of the audit.
async fn findings(shop: &Shop<'_>) -> Vec<String> {
    let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
    let line = |drift: &tollkeeper::billing::rules::audit::Drift| {
        format!("{} {}: {}, {}", drift.invariant, drift.subject, drift.expected, drift.found)
    };
    let mut lines: Vec<_> = report.drifts.iter().map(line).collect();
    lines.sort();
    lines
}

/// Returns the finding about an object with an unknown status.
fn unknown(object_id: &str) -> String {
    format!("payment_at_processor {object_id}: a known status, another status")
}

fn set_status(shop: &Shop<'_>, object_id: &str, status: &str) {
    shop.stripe.edit(object_id, |object| object["status"] = json!(status));
}

async fn intent(shop: &Shop<'_>, id: &Value) -> String {
    shop.row(id).await.intent_id.unwrap()
}

#[on_each_database]
fn payment_with_an_unknown_status_is_not_credited(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 25})).await;
        let session_id = shop.session(&begun["id"]).await;
        let on_its_way = Card { now: Outcome::Processing, ..Card::visa() };
        shop.stripe.visit(&session_id, &on_its_way).unwrap();
        let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
        set_status(shop, &intent_id, "requires_something_new");
        shop.hear().await;
        a_day_passes(shop).await;
        assert_eq!(shop.balance().await, "0");
        assert_eq!(shop.payment(&begun["id"]).await["status"], "open");
        assert_eq!(findings(shop).await, [unknown(&intent_id)]);
        // The payment finally succeeds.
        set_status(shop, &intent_id, "processing");
        shop.stripe.settle(&intent_id, true);
        shop.hear().await;
        assert_eq!(shop.balance().await, "25");
        a_day_passes(shop).await;
        assert_eq!(findings(shop).await, [] as [String; 0]);
    });
}

#[on_each_database]
fn refund_with_an_unknown_status_is_not_credited(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        shop.stripe.set_refunds(RefundOutcome::Pending);
        let refund_id = shop.stripe.refund_by_hand(&intent(shop, &id).await, 700);
        set_status(shop, &refund_id, "held_back");
        shop.hear().await;
        a_day_passes(shop).await;
        // The account doesn't have the 7, so neither does the wallet: 25 - 7.
        assert_eq!(shop.balance().await, "18");
        assert_eq!(findings(shop).await, [unknown(&refund_id)]);
        // The refund finally fails, and the 7 are credited again.
        shop.stripe.settle_refund(&refund_id, false);
        shop.hear().await;
        assert_eq!(shop.balance().await, "25");
        a_day_passes(shop).await;
        assert_eq!(findings(shop).await, [] as [String; 0]);
    });
}

#[on_each_database]
fn disputes_with_an_unknown_status_are_their_movements(database: Database) {
    with_shop(database, async |shop| {
        let (first, second) = (shop.buy("25", false).await, shop.buy("20", false).await);
        let inquiry_id = shop.stripe.inquire(&intent(shop, &first).await, 2_500);
        let dispute_id = shop.stripe.dispute(&intent(shop, &second).await, 2_000);
        for id in [&inquiry_id, &dispute_id] {
            set_status(shop, id, "arbitration");
        }
        shop.hear().await;
        a_day_passes(shop).await;
        // The bank has taken the 20, but nothing of the 25.
        assert_eq!(shop.balance().await, "25");
        let mut expected = [unknown(&inquiry_id), unknown(&dispute_id)];
        expected.sort();
        assert_eq!(findings(shop).await, expected);
        // The bank returns the 20.
        shop.stripe.end_dispute(&inquiry_id, "warning_closed");
        shop.stripe.move_disputed(&dispute_id, 2_000, "usd");
        shop.stripe.end_dispute(&dispute_id, "won");
        shop.hear().await;
        assert_eq!(shop.balance().await, "45");
        a_day_passes(shop).await;
        assert_eq!(findings(shop).await, [] as [String; 0]);
    });
}

#[on_each_database]
fn unknown_fields_and_events_change_nothing(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        let session_id = shop.session(&begun["id"]).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
        for id in [&session_id, &intent_id] {
            shop.stripe.edit(id, |object| object["amount_promised"] = json!({"amount": 99_900}));
        }
        let body = json!({"id": "evt_new", "object": "event", "type": "payment_intent_promise.kept", "created": 1,
            "livemode": false, "data": {"object": {"id": intent_id, "object": "payment_intent_promise"}}});
        let (now, body) = (shop.world().clock.now().unix_seconds(), body.to_string());
        let answer = shop.send_raw(&sign(WEBHOOK_SECRET, now, &body), body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        shop.work().await;
        assert_eq!(shop.balance().await, "0");
        shop.hear().await;
        assert_eq!(shop.credits().await, ["purchase 10 of 10"]);
        a_day_passes(shop).await;
        assert_eq!((shop.balance().await.as_str(), findings(shop).await), ("10", vec![]));
    });
}
