//! Disputes in which a bank takes and returns parts of a payment. The wallet loses the share that the bank
//! still has. All sums are calculated by hand.

use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::payments::{Cause, Receipt, receive};
use tollkeeper::billing::books::booking::Booking;
use tollkeeper::money::Nano;
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_configured_shop, with_shop};
use support::{Database, on_each_database};

const TAX: (&str, &str) = ("TOLLKEEPER_PAYMENTS__STRIPE_TAX", "true");

async fn intent(shop: &Shop<'_>, id: &Value) -> String {
    shop.row(id).await.intent_id.unwrap()
}

/// Sends every event again, newest first.
async fn repeat(shop: &Shop<'_>) {
    for event in shop.stripe.events().iter().rev() {
        shop.send(event["id"].as_str().unwrap()).await;
    }
    shop.work().await;
}

/// Returns the balance, and the disputed and refunded amounts of a payment.
async fn figures(shop: &Shop<'_>, id: &Value) -> (String, Value, Value) {
    let payment = shop.payment(id).await;
    (shop.balance().await, payment["disputed"].clone(), payment["refunded"].clone())
}

fn expected(balance: &str, disputed: i64, refunded: i64) -> (String, Value, Value) {
    (balance.to_owned(), json!(disputed), json!(refunded))
}

#[on_each_database]
fn dispute_of_a_partly_refunded_payment_gives_nothing_back_twice(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("100", false).await;
        shop.stripe.refund_by_hand(&intent(shop, &id).await, 4_000);
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("60", 0, 40));
        let dispute_id = shop.stripe.dispute(&intent(shop, &id).await, 10_000);
        shop.hear().await;
        // 60 - 100.
        assert_eq!(figures(shop, &id).await, expected("-40", 100, 40));
        // The bank returns the amount that was refunded before: 40 + 60 are the customer's.
        shop.stripe.move_disputed(&dispute_id, 4_000, "usd");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("0", 60, 40));
        shop.check().await;
        shop.stripe.close_dispute(&dispute_id, false);
        shop.hear().await;
        repeat(shop).await;
        assert_eq!(figures(shop, &id).await, expected("0", 60, 40));
        // 100 - 40 - 100 + 40.
        assert_eq!(shop.stripe.balance(), 0);
    });
}

#[on_each_database]
fn tax_of_a_partly_refunded_payment_goes_back_once(database: Database) {
    with_configured_shop(database, &[TAX], async |shop| {
        shop.stripe.set_account(false, 19);
        let id = shop.buy("100", false).await;
        // 40 and 7.60 of tax are refunded. Then the dispute takes all 119, of which 47.60 are returned.
        shop.stripe.refund_by_hand(&intent(shop, &id).await, 4_760);
        shop.hear().await;
        let dispute_id = shop.stripe.dispute(&intent(shop, &id).await, 11_900);
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("-40", 100, 40));
        shop.stripe.move_disputed(&dispute_id, 4_760, "usd");
        shop.stripe.close_dispute(&dispute_id, false);
        shop.hear().await;
        repeat(shop).await;
        assert_eq!(figures(shop, &id).await, expected("0", 60, 40));
        let row = shop.row(&id).await;
        assert_eq!((row.tax_minor, row.returned_tax_minor), (Some(1_900), 1_900));
    });
}

#[on_each_database]
fn only_what_comes_back_of_a_won_dispute_is_credited(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("100", false).await;
        let dispute_id = shop.stripe.dispute(&intent(shop, &id).await, 4_000);
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("60", 40, 0));
        shop.stripe.move_disputed(&dispute_id, 2_500, "usd");
        shop.stripe.end_dispute(&dispute_id, "won");
        shop.hear().await;
        repeat(shop).await;
        // 100 - 40 + 25.
        assert_eq!(figures(shop, &id).await, expected("85", 15, 0));
        assert_eq!(shop.credits().await, ["purchase 60 of 100", "purchase 25 of 25"]);
    });
}

#[on_each_database]
fn dispute_that_is_withdrawn_again_is_taken_again(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("100", false).await;
        let dispute_id = shop.stripe.dispute(&intent(shop, &id).await, 10_000);
        shop.hear().await;
        for round in 0..3 {
            shop.stripe.move_disputed(&dispute_id, 10_000, "usd");
            shop.hear().await;
            assert_eq!(figures(shop, &id).await, expected("100", 0, 0), "{round}");
            shop.stripe.move_disputed(&dispute_id, -10_000, "usd");
            shop.hear().await;
            repeat(shop).await;
            assert_eq!(figures(shop, &id).await, expected("0", 100, 0), "{round}");
            shop.check().await;
        }
        // Both movements arrive at the same time, so nothing changes.
        shop.stripe.move_disputed(&dispute_id, 10_000, "usd");
        shop.stripe.move_disputed(&dispute_id, -10_000, "usd");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("0", 100, 0));
    });
}

#[on_each_database]
fn share_counts_not_the_currency_of_the_account(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("100", false).await;
        let dispute_id = shop.stripe.inquire(&intent(shop, &id).await, 10_000);
        // 100 USD are 92 EUR. 36.80 of them are returned, which is two fifths.
        shop.stripe.move_disputed(&dispute_id, -9_200, "eur");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("0", 100, 0));
        shop.stripe.move_disputed(&dispute_id, 3_680, "eur");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("40", 60, 0));
        // The rest is returned at another exchange rate: 56.30 instead of 55.20.
        shop.stripe.move_disputed(&dispute_id, 5_630, "eur");
        shop.hear().await;
        repeat(shop).await;
        assert_eq!(figures(shop, &id).await, expected("100", 0, 0));
    });
}

#[on_each_database]
fn dispute_that_an_older_server_has_booked_is_continued(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("100", false).await;
        let dispute_id = shop.stripe.dispute(&intent(shop, &id).await, 10_000);
        shop.hear().await;
        // The older server books the returned amount once, because its keys have no numbers.
        shop.stripe.move_disputed(&dispute_id, 10_000, "usd");
        let (billing, trail) = (&shop.world().app.billing, Trail::system());
        let booking = Booking { billing, trail: &trail, now: shop.world().clock.now() };
        let mut tx = shop.world().app.db.write().await.unwrap();
        let mut wallet = booking.lock(&mut tx, shop.books.organization_id()).await.unwrap().unwrap();
        let (payment_id, amount) = (shop.row(&id).await.id, Nano::parse("100").unwrap());
        let receipt =
            Receipt { payment_id, invoice_id: None, cause: Some(Cause::first(&dispute_id)), amount };
        receive(&booking, &mut tx, &mut wallet, receipt).await.unwrap();
        let texts =
            ["UPDATE payment_disputes SET reinstated_at = 1", "UPDATE payments SET disputed_minor = 0"];
        for text in texts {
            tollkeeper::db::sql(text).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("100", 0, 0));
        shop.check().await;
        shop.stripe.move_disputed(&dispute_id, -10_000, "usd");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("0", 100, 0));
        shop.stripe.move_disputed(&dispute_id, 10_000, "usd");
        shop.hear().await;
        assert_eq!(figures(shop, &id).await, expected("100", 0, 0));
    });
}
