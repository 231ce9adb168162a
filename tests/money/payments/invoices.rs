//! Invoices that are paid at Stripe. All sums are calculated by hand.

use serde_json::json;
use tollkeeper::ids::InvoiceId;

use support::shop::with_shop;
use support::stripe::cards::Card;
use support::{Database, on_each_database};

#[on_each_database]
fn invoice_is_paid_to_the_last_digit(database: Database) {
    with_shop(database, async |shop| {
        // 400,001 x 0.0000025 = 1.0000025. The credit limit covers it.
        shop.books.use_today("chat-a", 400_001, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        assert_eq!(invoice.due.to_string(), "1.0000025");

        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(
            (&begun["kind"], &begun["amount"], &begun["invoice_id"]),
            (&json!("invoice"), &json!(1.01), &json!(invoice.id))
        );
        let again = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(again["id"], begun["id"], "one page per invoice");
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        let [paid] = shop.books.invoices().await.try_into().unwrap();
        assert_eq!((paid.due.to_string(), paid.status.as_str()), ("0".to_owned(), "paid"));
        // The rest becomes a credit: 1.01 - 1.0000025.
        assert_eq!(shop.balance().await, "0.0099975");
        assert_eq!(shop.credits().await, ["payment 0.0099975 of 1.01"]);
        let token = shop.token().await;
        let post = |body| shop.world().post(&shop.path("payments"), &body).bearer(&token);
        assert_eq!(
            post(json!({"invoice_id": invoice.id})).refused().await,
            (409, "invoice_not_open".to_owned())
        );
        let unknown = InvoiceId::new(shop.world().clock.now(), &shop.world().app.random);
        assert_eq!(
            post(json!({"invoice_id": unknown})).refused().await,
            (404, "invoice_not_found".to_owned())
        );
    });
}

#[on_each_database]
fn invoice_whose_due_has_changed_has_another_page(database: Database) {
    with_shop(database, async |shop| {
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        let first = shop.begin(&json!({"invoice_id": invoice.id})).await;
        // 10 less the discount: 3,000,000 x 0.0000025 x 0.05 = 0.375.
        assert_eq!(first["amount"], 9.63);
        let session_id = shop.session(&first["id"]).await;
        shop.buy_elsewhere("4", "part").await;
        let second = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(second["amount"], 5.63);
        let replaced = shop.payment(&first["id"]).await;
        assert_eq!(
            (&replaced["status"], &replaced["failure_code"]),
            (&json!("canceled"), &json!("replaced"))
        );
        shop.work().await;
        assert_eq!(shop.stripe.object(&session_id)["status"], "expired");
        shop.stripe.visit(&shop.session(&second["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "0.005");
    });
}

#[on_each_database]
fn small_invoice_is_rounded_up_to_what_can_be_charged(database: Database) {
    with_shop(database, async |shop| {
        // 80,000 x 0.0000025 = 0.2, but the minimum charge at Stripe is 0.50.
        shop.books.use_today("chat-a", 80_000, 0).await;
        shop.books.set_time("2026-04-02T09:00:00Z");
        shop.books.run_scheduler().await;
        let [invoice] = shop.books.invoices().await.try_into().unwrap();
        assert_eq!(invoice.due.to_string(), "0.2");
        let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(begun["amount"], json!(0.5));
        let again = shop.begin(&json!({"invoice_id": invoice.id})).await;
        assert_eq!(again["id"], begun["id"], "one page per invoice");
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        let [paid] = shop.books.invoices().await.try_into().unwrap();
        assert_eq!((paid.due.to_string(), paid.status.as_str()), ("0".to_owned(), "paid"));
        assert_eq!(shop.balance().await, "0.3");
        assert_eq!(shop.credits().await, ["payment 0.3 of 0.5"]);
    });
}
