//! Taxes that Stripe calculates. The credit equals the purchase without tax, and refunds consist of net
//! amount and tax in proportion. All sums are calculated by hand.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::money::Nano;
use tollkeeper::payments::refunds::{self, Refund, Status};
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_configured_shop};
use support::stripe::cards::Card;
use support::stripe::params::Params;
use support::stripe::refunds::RefundOutcome;
use support::{Database, on_each_database};

const TAX: (&str, &str) = ("TOLLKEEPER_PAYMENTS__STRIPE_TAX", "true");

/// Runs a test on each database, with a tax rate in millionths.
fn run_taxed(database: Database, tax_ppm: i64, test: impl AsyncFn(&mut Shop)) {
    with_configured_shop(database, &[TAX], async |shop| {
        shop.stripe.set_tax(tax_ppm);
        test(shop).await;
    });
}

/// Refunds an amount of a payment, as an operator does. `None` refunds the rest.
async fn refund(shop: &Shop<'_>, id: &Value, amount: Option<&str>) -> Result<Refund, String> {
    let id = shop.row(id).await.id;
    let amount = amount.map(|amount| Nano::parse(amount).unwrap());
    let made = refunds::refund(&shop.world().app.payments, id, amount, &Trail::operator()).await;
    shop.pass_ms(1);
    made.map_err(|error| error.to_string())
}

/// Returns the refunded and disputed amount of a payment without tax, and its tax, in minor units.
async fn returned(shop: &Shop<'_>, id: &Value) -> (i64, i64) {
    let row = shop.row(id).await;
    (row.refunded_minor + row.disputed_minor, row.returned_tax_minor)
}

/// Returns the drifts that the audit finds.
async fn drifts(shop: &Shop<'_>) -> Vec<String> {
    let report = tollkeeper::billing::audit::check(&shop.world().app.billing, None).await.unwrap();
    let words = report.drifts.iter();
    let words = words.map(|drift| format!("{} {} {}", drift.invariant, drift.expected, drift.found));
    words.filter(|drift| !crate::audit::is_recounted(drift)).collect()
}

#[on_each_database]
fn credit_is_what_was_bought_and_the_tax_is_paid_on_top(database: Database) {
    with_configured_shop(
        database,
        &[TAX, ("TOLLKEEPER_PAYMENTS__STRIPE_TAX_CODE", "txcd_10103001")],
        async |shop| {
            shop.stripe.set_tax(190_000);
            let begun = shop.begin(&json!({"amount": "25.50", "save_card": true})).await;
            assert_eq!(
                (&begun["amount"], &begun["tax"], &begun["total"]),
                (&json!(25.5), &json!(null), &json!(null)),
                "the tax isn't known before the address"
            );
            let exchanges = shop.stripe.exchanges();
            let asked = exchanges.iter().find(|it| it.request.path == "/v1/checkout/sessions").unwrap();
            let fields = Params::parse(&asked.request.fields);
            for (name, value) in [
                ("automatic_tax[enabled]", "true"),
                ("tax_id_collection[enabled]", "true"),
                ("invoice_creation[enabled]", "true"),
                ("customer_update[address]", "auto"),
                ("customer_update[name]", "auto"),
                ("line_items[0][price_data][unit_amount]", "2550"),
                ("line_items[0][price_data][tax_behavior]", "exclusive"),
                ("line_items[0][price_data][product_data][tax_code]", "txcd_10103001"),
            ] {
                assert_eq!(fields.text(name), Some(value), "{name}");
            }
            shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
            shop.hear().await;
            // 25.50 x 0.19 = 4.845.
            let paid = shop.payment(&begun["id"]).await;
            assert_eq!(
                (&paid["status"], &paid["amount"], &paid["tax"], &paid["total"]),
                (&json!("succeeded"), &json!(25.5), &json!(4.85), &json!(30.35))
            );
            let receipt = paid["receipt_url"].as_str().unwrap();
            assert!(receipt.starts_with(&format!("{}/invoices/in_", shop.stripe.url)), "{receipt}");
            assert_eq!(shop.balance().await, "25.5");
            assert_eq!(shop.credits().await, ["purchase 25.5 of 25.5"]);
            assert_eq!(shop.stripe.balance(), 3_035);
            // Repeated events and the next daily comparison change nothing.
            for event in shop.stripe.events() {
                shop.send(event["id"].as_str().unwrap()).await;
            }
            shop.pass_ms(tollkeeper::clock::DAY_MS);
            shop.work().await;
            assert_eq!((shop.balance().await, drifts(shop).await), ("25.5".to_owned(), vec![]));
        },
    );
}

#[on_each_database]
fn page_that_was_not_stored_is_found_by_its_payment(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let begun = shop.begin(&json!({"amount": 20})).await;
        let session_id = shop.session(&begun["id"]).await;
        let mut tx = shop.world().app.db.write().await.unwrap();
        sql("UPDATE payments SET session_id = NULL, checkout_url = NULL").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "20");
        assert_eq!(shop.payment(&begun["id"]).await["total"], 23.8);
    });
}

#[on_each_database]
fn session_of_something_else_is_not_credited(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let changes: [(&str, Value, &str); 4] = [
            ("amount_subtotal", json!(999), "amount before tax 1000"),
            ("amount_total", json!(1_189), "amount with tax 1190"),
            (
                "total_details",
                json!({"amount_tax": 190, "amount_discount": 5, "amount_shipping": 0}),
                "discount 0",
            ),
            ("metadata", json!({}), "session of payment payment_"),
        ];
        for (name, value, expected) in changes {
            let begun = shop.begin(&json!({"amount": 10})).await;
            let session_id = shop.session(&begun["id"]).await;
            shop.stripe.visit(&session_id, &Card::visa()).unwrap();
            let good = shop.stripe.object(&session_id)[name].clone();
            shop.stripe.edit(&session_id, |session| session[name] = value);
            let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
            // Only the events about the payment intent are delivered.
            for event in shop.stripe.undelivered() {
                if event["data"]["object"]["id"] == *intent_id {
                    shop.send(event["id"].as_str().unwrap()).await;
                }
            }
            shop.stripe.drop_events();
            shop.work().await;
            assert_eq!(shop.balance().await, "0", "{name}");
            let found = drifts(shop).await;
            let it = format!("payment_at_processor {expected}");
            assert!(found.len() == 1 && found[0].starts_with(&it), "{name}: {found:?}");
            shop.stripe.edit(&session_id, |session| session[name] = good);
            shop.pass_ms(tollkeeper::clock::DAY_MS);
            shop.work().await;
            assert_eq!((shop.balance().await, drifts(shop).await), ("10".to_owned(), vec![]), "{name}");
            refund(shop, &begun["id"], None).await.unwrap();
            shop.stripe.drop_events();
            assert_eq!(shop.balance().await, "0");
        }
    });
}

#[on_each_database]
fn paid_amount_has_to_be_amount_and_tax(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        let session_id = shop.session(&begun["id"]).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        let intent_id = shop.stripe.object(&session_id)["payment_intent"].as_str().unwrap().to_owned();
        shop.stripe.edit(&intent_id, |intent| intent["amount_received"] = json!(1_000));
        shop.hear().await;
        assert_eq!(shop.balance().await, "0");
        let expected = format!("payment_at_processor amount 1190 amount 1000 ({intent_id})");
        assert_eq!(drifts(shop).await, [expected]);
        shop.stripe.edit(&intent_id, |intent| intent["amount_received"] = json!(1_190));
        shop.pass_ms(tollkeeper::clock::DAY_MS);
        shop.work().await;
        assert_eq!((shop.balance().await, drifts(shop).await), ("10".to_owned(), vec![]));
    });
}

#[on_each_database]
fn three_refunds_at_stripe_take_back_the_whole_net(database: Database) {
    run_taxed(database, 88_750, async |shop| {
        let id = shop.buy("20", false).await;
        // 20 x 0.08875 = 1.775.
        assert_eq!(shop.payment(&id).await["total"], 21.78);
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        // 7.26 x 20 / 21.78 = 6.666…, twice that is 13.333…, and the last refund takes the rest.
        for (balance, parts) in [("13.34", (666, 60)), ("6.67", (1_333, 119)), ("0", (2_000, 178))] {
            shop.stripe.refund_by_hand(&intent_id, 726);
            shop.hear().await;
            assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), (balance, parts));
            shop.check().await;
        }
        let paid = shop.payment(&id).await;
        assert_eq!((&paid["refunded"], &paid["total"]), (&json!(20), &json!(21.78)));
        assert_eq!(shop.stripe.balance(), 0);
    });
}

#[on_each_database]
fn operator_refunds_credit_and_its_tax_goes_back(database: Database) {
    let yen = ("TOLLKEEPER_BILLING__CURRENCY", "JPY");
    with_configured_shop(database, &[TAX, yen], async |shop| {
        shop.stripe.set_tax(100_000);
        let id = shop.buy("999", false).await;
        // The tax of 99.9 is rounded, because the yen is the smallest unit.
        let paid = shop.payment(&id).await;
        assert_eq!((&paid["tax"], &paid["total"]), (&json!(100), &json!(1_099)));
        // 333 x 1099 / 999 = 366.3…, 666 x 1099 / 999 = 732.6…, and the rest is 1099 - 733.
        for (amount, expected) in [(Some("333"), (367, 34)), (Some("333"), (366, 33)), (None, (366, 33))] {
            let made = refund(shop, &id, amount).await.unwrap();
            assert_eq!(
                (made.status, made.amount_minor, made.tax_minor),
                (Status::Succeeded, expected.0, expected.1)
            );
            shop.hear().await;
            shop.check().await;
        }
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("0", (999, 100)));
        assert_eq!(shop.stripe.balance(), 0);
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_refunds").await, 3);
    });
}

#[on_each_database]
fn refund_that_fails_brings_back_net_and_tax(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let id = shop.buy("25", false).await;
        shop.stripe.set_refunds(RefundOutcome::Fails);
        refund(shop, &id, Some("10")).await.unwrap_err();
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("25", (0, 0)));
        shop.stripe.set_refunds(RefundOutcome::Succeeds);
        // 25 + 4.75.
        assert_eq!(refund(shop, &id, None).await.unwrap().amount_minor, 2_975);
        assert_eq!((shop.balance().await.as_str(), shop.stripe.balance()), ("0", 0));
    });
}

#[on_each_database]
fn refund_of_one_unit_may_be_tax_alone(database: Database) {
    run_taxed(database, 1_000_000, async |shop| {
        let id = shop.buy("20", false).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        // Half of the 40 is tax. 0.01 x 20 / 40 is less than 0.01, so the net amount is zero.
        let refund_id = shop.stripe.refund_by_hand(&intent_id, 1);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("20", (0, 1)));
        shop.check().await;
        shop.stripe.refund_by_hand(&intent_id, 1);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("19.99", (1, 1)));
        shop.stripe.settle_refund(&refund_id, false);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("19.99", (1, 0)));
        shop.stripe.refund_by_hand(&intent_id, 3_999);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("0", (2_000, 2_000)));
        assert_eq!(shop.stripe.balance(), 0);
    });
}

#[on_each_database]
fn dispute_after_a_refund_takes_the_net_of_the_rest(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let id = shop.buy("25", false).await;
        // 4,000,000 x 0.0000025 = 10.
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        // The total is 25 + 4.75 = 29.75. 11.90 is 10 + 1.90, and 17.85 is 15 + 2.85.
        shop.stripe.refund_by_hand(&intent_id, 1_190);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("5", (1_000, 190)));
        let dispute_id = shop.stripe.dispute(&intent_id, 1_785);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("-10", (2_500, 475)));
        let shown = shop.payment(&id).await;
        assert_eq!((&shown["refunded"], &shown["disputed"]), (&json!(10), &json!(15)));
        shop.check().await;
        shop.stripe.close_dispute(&dispute_id, true);
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), returned(shop, &id).await), ("5", (1_000, 190)));
        // 5 of the credit are left: 5 + 0.95.
        assert_eq!(refund(shop, &id, None).await.unwrap().amount_minor, 595);
        assert_eq!(shop.balance().await, "0");
        // The amount that was used remains, with its tax.
        assert_eq!(shop.stripe.balance(), 1_190);
    });
}

#[on_each_database]
fn audit_finds_tax_that_went_back_twice(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let id = shop.buy("25", false).await;
        refund(shop, &id, Some("10")).await.unwrap();
        shop.stripe.drop_events();
        let change = async |text: &'static str| {
            let mut tx = shop.world().app.db.write().await.unwrap();
            sql(text).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
        };
        change("UPDATE payments SET returned_tax_minor = 0").await;
        assert_eq!(drifts(shop).await, ["payment_returned 10 and 1.9 of tax 10 and 0 of tax"]);
        // 1.90 + 4.75.
        change("UPDATE payments SET returned_tax_minor = 665").await;
        change("UPDATE payment_refunds SET tax_minor = 665, amount_minor = 1665").await;
        assert_eq!(drifts(shop).await, ["payment_returned 10 and 4.75 of tax 10 and 6.65 of tax"]);
        change("UPDATE payments SET returned_tax_minor = 190").await;
        change("UPDATE payment_refunds SET tax_minor = 190, amount_minor = 1190").await;
        assert_eq!(drifts(shop).await, [""; 0]);
    });
}

#[on_each_database]
fn invoices_of_usage_are_paid_without_tax(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        // 400,001 x 0.0000025 = 1.0000025.
        shop.books.use_today("chat-a", 400_001, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(
            (&begun["amount"], &begun["tax"], &begun["total"]),
            (&json!(1.01), &json!(0), &json!(1.01))
        );
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        let paid = shop.payment(&begun["id"]).await;
        assert_eq!(
            (&paid["status"], &paid["total"], &paid["receipt_url"]),
            (&json!("succeeded"), &json!(1.01), &json!(null))
        );
        assert_eq!(shop.stripe.balance(), 101);
    });
}

#[on_each_database]
fn webhooks_are_told_of_the_tax(database: Database) {
    run_taxed(database, 190_000, async |shop| {
        let path = format!("{}/webhooks", shop.books.place.organization_path());
        let body = json!({"url": "https://example.com", "events": ["payment.succeeded"]});
        shop.world().post(&path, &body).bearer(&shop.books.ada.access_token).data().await;
        shop.buy("20", false).await;
        let mut tx = shop.world().app.db.read().await.unwrap();
        let (body,): (Vec<u8>,) = sql("SELECT body FROM webhook_events").one(&mut tx).await.unwrap();
        let data = &serde_json::from_slice::<Value>(&body).unwrap()["data"];
        assert_eq!((&data["amount"], &data["tax"], &data["total"]), (&json!(20), &json!(3.8), &json!(23.8)));
    });
}

/// Begins saving a card on a page at Stripe. Returns the id of the session.
pub async fn begin_setup(shop: &Shop<'_>) -> String {
    let call = shop.world().call(Method::PUT, &shop.path("payment-method")).bearer(&shop.token().await);
    call.data().await;
    let sessions = shop.stripe.all("checkout.session");
    sessions.last().unwrap()["id"].as_str().unwrap().to_owned()
}
