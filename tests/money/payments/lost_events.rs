//! Events that Stripe never sends, because the webhook isn't subscribed to their types. A day later the books
//! are correct, and the operator has the list of missing types. All sums are calculated by hand.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::payments::inbound::EVENT_TYPES;

use support::shop::{Shop, with_configured_shop, with_shop};
use support::stripe::cards::{Card, Outcome};
use support::stripe::refunds::RefundOutcome;
use support::{Database, on_each_database};

const UNLIMITED: (&str, &str) = ("TOLLKEEPER_LIMITS__ENABLED", "false");

/// Returns the drifts that the audit finds.
async fn drifts(shop: &Shop<'_>) -> Vec<String> {
    let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
    let line = |drift: &tollkeeper::billing::rules::audit::Drift| {
        format!("{} {}: {}, {}", drift.invariant, drift.subject, drift.expected, drift.found)
    };
    report.drifts.iter().map(line).collect()
}

async fn a_day_passes(shop: &Shop<'_>) {
    shop.pass_ms(25 * HOUR_MS);
    shop.work().await;
    shop.work().await;
}

/// Begins a payment and pays it with a card. Returns the ids of the payment and of its payment intent.
async fn pay(shop: &Shop<'_>, amount: i64, card: &Card) -> (Value, String) {
    let begun = shop.begin(&json!({"amount": amount})).await;
    let session_id = shop.session(&begun["id"]).await;
    shop.stripe.visit(&session_id, card).unwrap();
    let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
    (begun["id"].clone(), intent_id)
}

/// Opens the page for saving a card, and saves a card.
async fn save_card(shop: &Shop<'_>) {
    let call = shop.world().call(Method::PUT, &shop.path("payment-method")).json(&json!({}));
    call.bearer(&shop.token().await).data().await;
    let sessions = shop.stripe.all("checkout.session");
    let session = sessions.iter().rfind(|session| session["mode"] == "setup").unwrap();
    shop.stripe.visit(session["id"].as_str().unwrap(), &Card::visa()).unwrap();
}

async fn saved_card(shop: &Shop<'_>) -> Value {
    let summary = shop.world().get(&shop.path("summary")).bearer(&shop.token().await).data().await;
    summary["payment_method"]["last4"].clone()
}

/// Does everything that events report. Returns the ids of the payments.
async fn go_through_all(shop: &Shop<'_>) -> Vec<Value> {
    let on_its_way = Card { now: Outcome::Processing, ..Card::visa() };
    let (first, first_intent) = pay(shop, 25, &Card::visa()).await;
    let (second, second_intent) = pay(shop, 20, &Card::visa()).await;
    let (third, third_intent) = pay(shop, 30, &on_its_way).await;
    let (fourth, fourth_intent) = pay(shop, 40, &on_its_way).await;
    let fifth = shop.begin(&json!({"amount": 10})).await["id"].clone();
    shop.stripe.settle(&third_intent, true);
    shop.stripe.settle(&fourth_intent, false);
    shop.hear().await;
    // Open payments are checked every five minutes.
    shop.pass_ms(6 * MINUTE_MS);
    shop.work().await;
    // 25 + 20 + 30.
    assert_eq!(shop.balance().await, "75");
    save_card(shop).await;
    shop.hear().await;
    // 7 of the 25 are refunded. The refund of another 3 fails.
    shop.stripe.refund_by_hand(&first_intent, 700);
    let failing = shop.stripe.refund_by_hand(&first_intent, 300);
    shop.hear().await;
    shop.stripe.settle_refund(&failing, false);
    // 5 of the 30 are refunded later, because the refund is pending.
    shop.stripe.set_refunds(RefundOutcome::Pending);
    let pending = shop.stripe.refund_by_hand(&third_intent, 500);
    shop.hear().await;
    shop.stripe.settle_refund(&pending, true);
    shop.hear().await;
    // 18 of the 25 are disputed and returned. The 20 are disputed and lost.
    let won = shop.stripe.dispute(&first_intent, 1_800);
    let lost = shop.stripe.dispute(&second_intent, 2_000);
    shop.hear().await;
    shop.stripe.close_dispute(&won, true);
    shop.stripe.close_dispute(&lost, false);
    shop.hear().await;
    vec![first, second, third, fourth, fifth]
}

/// Returns sets of types that the webhook doesn't get: each type alone, all types about a kind of object, and
/// all types.
fn lost() -> Vec<Vec<&'static str>> {
    let of = |begin: &str| EVENT_TYPES.iter().copied().filter(|kind| kind.starts_with(begin)).collect();
    let mut sets: Vec<Vec<_>> = EVENT_TYPES.iter().map(|kind| vec![*kind]).collect();
    let mut refunds: Vec<_> = of("refund.");
    refunds.push("charge.refunded");
    sets.extend([
        refunds,
        of("charge.dispute."),
        of("checkout."),
        of("payment_intent."),
        EVENT_TYPES.to_vec(),
    ]);
    sets
}

#[on_each_database]
fn books_are_right_a_day_later_whatever_events_are_missing(database: Database) {
    for lost in lost() {
        with_configured_shop(database, &[UNLIMITED], async |shop| {
            let sent: Vec<_> = EVENT_TYPES.into_iter().filter(|kind| !lost.contains(kind)).collect();
            shop.stripe.subscribe(&sent);
            let ids = go_through_all(shop).await;
            a_day_passes(shop).await;
            // (25 - 7) + (20 - 20) + (30 - 5).
            assert_eq!(shop.balance().await, "43", "{lost:?}");
            let mut shown = Vec::new();
            for id in &ids {
                let it = shop.payment(id).await;
                let figures = (&it["refunded"], &it["disputed"]);
                shown.push(format!("{} {} {}", it["status"].as_str().unwrap(), figures.0, figures.1));
            }
            assert_eq!(shown[..3], ["succeeded 7 0", "succeeded 0 20", "succeeded 5 0"], "{lost:?}");
            assert_eq!(shown[4], "canceled 0 0", "{lost:?}");
            assert_eq!(saved_card(shop).await, "4242", "{lost:?}");
            let mut told: Vec<_> = lost
                .iter()
                .map(|kind| {
                    let id = shop.stripe.all("webhook_endpoint")[0]["id"].as_str().unwrap().to_owned();
                    format!(
                        "payment_at_processor {kind}: {kind} to be sent to the webhook, \
                         it isn't enabled for {id}"
                    )
                })
                .collect();
            told.sort();
            assert_eq!(drifts(shop).await, told);

            let cards = shop.stripe.all("payment_method");
            let card = cards.iter().find(|card| !card["customer"].is_null()).unwrap();
            shop.stripe.detach_by_hand(card["id"].as_str().unwrap());
            shop.hear().await;
            a_day_passes(shop).await;
            assert_eq!(saved_card(shop).await, Value::Null, "{lost:?}");

            // The operator subscribes the webhook to the missing types.
            shop.stripe.subscribe(&["*"]);
            a_day_passes(shop).await;
            assert_eq!(drifts(shop).await, [] as [String; 0], "{lost:?}");
            assert_eq!(shop.balance().await, "43", "{lost:?}");
        });
    }
}

#[on_each_database]
fn refund_that_fails_and_dispute_that_ends_weeks_later_are_found(database: Database) {
    with_configured_shop(database, &[UNLIMITED], async |shop| {
        let first = shop.buy("25", false).await;
        let second = shop.buy("18", false).await;
        let intent = async |id: &Value| shop.row(id).await.intent_id.unwrap();
        let refund_id = shop.stripe.refund_by_hand(&intent(&first).await, 700);
        let dispute_id = shop.stripe.dispute(&intent(&second).await, 1_800);
        shop.hear().await;
        // 25 - 7 + 18 - 18.
        assert_eq!(shop.balance().await, "18");
        for _ in 0..20 {
            a_day_passes(shop).await;
        }
        // No event reports the following changes.
        shop.stripe.subscribe(&[]);
        shop.stripe.forbid(&["/v1/events", "/v1/webhook_endpoints"]);
        shop.stripe.settle_refund(&refund_id, false);
        a_day_passes(shop).await;
        assert_eq!(shop.balance().await, "25");
        for _ in 0..80 {
            a_day_passes(shop).await;
        }
        shop.stripe.close_dispute(&dispute_id, true);
        a_day_passes(shop).await;
        assert_eq!(shop.balance().await, "43");
        assert_eq!(drifts(shop).await, [] as [String; 0]);
    });
}

#[on_each_database]
fn list_that_the_key_may_not_read_is_told(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        shop.stripe.forbid(&["/v1/disputes"]);
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 700);
        shop.stripe.drop_events();
        a_day_passes(shop).await;
        // The comparison still covers everything else.
        assert_eq!(shop.balance().await, "18");
        let told = drifts(shop).await;
        let begin = "payment_at_processor Disputes: a secret key that may read Disputes, Stripe refuses";
        assert!(told.len() == 1 && told[0].starts_with(begin), "{told:?}");
        shop.stripe.forbid(&[]);
        a_day_passes(shop).await;
        assert_eq!(drifts(shop).await, [] as [String; 0]);
    });
}
