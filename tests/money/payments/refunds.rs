//! Refunds by an operator, and refunds that are made at Stripe. All sums are calculated by hand.

use serde_json::{Value, json};
use tollkeeper::billing::bookkeeping::OperatorError;
use tollkeeper::money::Nano;
use tollkeeper::payments::refunds::{self, Refund, Status};
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_shop};
use support::stripe::refunds::RefundOutcome;
use support::{Database, on_each_database};

async fn refund(shop: &Shop<'_>, id: &Value, amount: Option<&str>) -> Result<Refund, String> {
    let id = shop.row(id).await.id;
    let amount = amount.map(|amount| Nano::parse(amount).unwrap());
    let refund = refunds::refund(&shop.world().app.payments, id, amount, &Trail::operator()).await;
    refund.map_err(|error| match error {
        OperatorError::Invalid(message) => message,
        OperatorError::Failed(error) => panic!("{error}"),
    })
}

#[on_each_database]
fn operator_refunds_what_is_left_of_a_credit(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        // 4,000,000 x 0.0000025 = 10. The other credit isn't touched.
        shop.buy_elsewhere("100", "elsewhere").await;
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        assert_eq!(shop.credits().await, ["purchase 15 of 25", "purchase 100 of 100"]);
        let message = refund(shop, &id, Some("15.01")).await.unwrap_err();
        assert!(message.contains("15 USD of the credit remain"), "{message}");
        assert!(refund(shop, &id, Some("0.001")).await.is_err());

        let part = refund(shop, &id, Some("5")).await.unwrap();
        assert_eq!((part.status, part.amount_minor), (Status::Succeeded, 500));
        assert_eq!(shop.credits().await, ["purchase 10 of 25", "purchase 100 of 100"]);
        assert_eq!(shop.balance().await, "110");
        let rest = refund(shop, &id, None).await.unwrap();
        assert_eq!(rest.amount_minor, 1_000);
        assert_eq!(
            (shop.balance().await.as_str(), &shop.payment(&id).await["refunded"]),
            ("100", &json!(15))
        );
        assert!(refund(shop, &id, None).await.is_err(), "nothing is left");
        // 25 were paid, and 15 were refunded.
        assert_eq!(shop.stripe.balance(), 1_000);
        // The events about refunds by the operator change nothing.
        shop.hear().await;
        assert_eq!(shop.balance().await, "100");
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_refunds").await, 2);
    });
}

#[on_each_database]
fn refund_that_stripe_refuses_is_given_back(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        shop.stripe.set_refunds(RefundOutcome::Fails);
        let message = refund(shop, &id, Some("10")).await.unwrap_err();
        assert!(message.contains("the credit is unchanged"), "{message}");
        assert_eq!((shop.balance().await.as_str(), &shop.payment(&id).await["refunded"]), ("25", &json!(0)));
        // The full amount can still be refunded.
        shop.stripe.set_refunds(RefundOutcome::Succeeds);
        assert_eq!(refund(shop, &id, None).await.unwrap().amount_minor, 2_500);
        assert_eq!(shop.balance().await, "0");
    });
}

#[on_each_database]
fn refund_that_fails_days_later_is_given_back_once(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        let made = refund(shop, &id, Some("10")).await.unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "15");
        shop.stripe.settle_refund(made.stripe_id.as_deref().unwrap(), false);
        shop.hear().await;
        for event in shop.stripe.events() {
            shop.send(event["id"].as_str().unwrap()).await;
        }
        shop.work().await;
        assert_eq!((shop.balance().await.as_str(), &shop.payment(&id).await["refunded"]), ("25", &json!(0)));
    });
}

#[on_each_database]
fn refunds_at_stripe_are_booked_once_each(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        let intent_id = shop.row(&id).await.intent_id.unwrap();
        shop.stripe.refund_by_hand(&intent_id, 300);
        shop.stripe.refund_by_hand(&intent_id, 400);
        // Each event contains the total: 7, not 3 + 7.
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), &shop.payment(&id).await["refunded"]), ("18", &json!(7)));
        for event in shop.stripe.events() {
            shop.send(event["id"].as_str().unwrap()).await;
        }
        shop.work().await;
        assert_eq!(shop.balance().await, "18");
        assert_eq!(shop.credits().await, ["purchase 18 of 25"]);
        // The operator refunds 8 more.
        refund(shop, &id, Some("8")).await.unwrap();
        shop.hear().await;
        assert_eq!((shop.balance().await.as_str(), &shop.payment(&id).await["refunded"]), ("10", &json!(15)));
        assert_eq!(shop.stripe.balance(), 1_000);
    });
}

#[on_each_database]
fn refund_at_stripe_of_what_was_used_is_a_debt(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        // 8,000,000 x 0.0000025 = 20.
        shop.books.use_today("chat-a", 8_000_000, 0).await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_500);
        shop.hear().await;
        // 25 - 20 - 25.
        assert_eq!(
            (shop.balance().await.as_str(), shop.credits().await),
            ("-20", vec!["purchase 0 of 25".to_owned()])
        );
        shop.check().await;
        // The next purchase first pays the debt.
        shop.buy_elsewhere("30", "next").await;
        assert_eq!(
            (shop.balance().await.as_str(), shop.credits().await[1].as_str()),
            ("10", "purchase 10 of 30")
        );
        shop.check().await;
        // The month's invoice contains the usage, which was paid.
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        // The invoice is 20 less the discount: 7,000,000 x 0.0000025 x 0.05 = 0.875.
        assert_eq!(
            (invoice.amount.to_string(), invoice.due.to_string()),
            ("19.125".to_owned(), "0".to_owned())
        );
    });
}

#[on_each_database]
fn debt_of_a_refund_is_due_with_the_invoice(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("25", false).await;
        shop.books.use_today("chat-a", 8_000_000, 0).await;
        shop.stripe.refund_by_hand(&shop.row(&id).await.intent_id.unwrap(), 2_500);
        shop.hear().await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        // The usage of 20 less the discount of 0.875 was paid. The 20 that were refunded although they were
        // used are owed again, and the discount pays 0.875 of them.
        assert_eq!(
            (invoice.amount.to_string(), invoice.brought_forward.to_string(), invoice.due.to_string()),
            ("19.125".to_owned(), "19.125".to_owned(), "19.125".to_owned())
        );
        shop.check().await;
        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(begun["amount"], 19.13);
        shop.stripe.visit(&shop.session(&begun["id"]).await, &support::stripe::cards::Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "0.005");
    });
}
