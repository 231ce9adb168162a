//! Pages at Stripe that the server expires when they are no longer needed.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::billing::audit;
use tollkeeper::billing::bookkeeping::invoice_changes;
use tollkeeper::billing::store::invoices::Invoice;
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::{Database, on_each_database};

/// Closes a month with an invoice for 1, and begins its payment at Stripe. Returns the invoice, the payment,
/// and the id of the session.
async fn begin(shop: &mut Shop<'_>) -> (Invoice, Value, String) {
    // 400,000 x 0.0000025 = 1.
    shop.books.use_today("chat-a", 400_000, 0).await;
    shop.books.set_time("2026-04-02T09:00:00Z");
    shop.books.run_scheduler().await;
    let [invoice] = shop.books.invoices().await.try_into().unwrap();
    assert_eq!(invoice.due.to_string(), "1");
    let begun = shop.begin(&json!({"invoice_id": invoice.id})).await;
    let session_id = shop.session(&begun["id"]).await;
    (invoice, begun, session_id)
}

/// Asserts that the page expires the next time that the job runs.
async fn expect_ended(shop: &Shop<'_>, begun: &Value, session_id: &str) {
    shop.work().await;
    assert_eq!(shop.stripe.object(session_id)["status"], "expired");
    let shown = shop.payment(&begun["id"]).await;
    assert_eq!(
        (&shown["status"], &shown["failure_code"], &shown["checkout_url"]),
        (&json!("canceled"), &json!("invoice_not_open"), &json!(null))
    );
    assert!(shop.stripe.visit(session_id, &Card::visa()).is_err());
}

#[on_each_database]
fn page_ends_when_its_invoice_is_paid_by_hand(database: Database) {
    with_shop(database, async |shop| {
        let (invoice, begun, session_id) = begin(shop).await;
        let billing = &shop.world().app.billing;
        invoice_changes::mark_paid(billing, invoice.id, None, &Trail::operator()).await.unwrap();
        expect_ended(shop, &begun, &session_id).await;
        assert_eq!(shop.balance().await, "0");
    });
}

#[on_each_database]
fn page_ends_when_credit_pays_its_invoice(database: Database) {
    with_shop(database, async |shop| {
        let (_, begun, session_id) = begin(shop).await;
        shop.buy_elsewhere("0.4", "a part").await;
        shop.work().await;
        assert_eq!(shop.stripe.object(&session_id)["status"], "open", "an amount is still due");
        shop.buy_elsewhere("0.6", "the rest").await;
        expect_ended(shop, &begun, &session_id).await;
        assert_eq!(shop.balance().await, "0");
    });
}

#[on_each_database]
fn page_ends_when_its_invoice_is_void_or_given_up(database: Database) {
    with_shop(database, async |shop| {
        let (invoice, begun, session_id) = begin(shop).await;
        let billing = &shop.world().app.billing;
        invoice_changes::void(billing, invoice.id, &Trail::operator()).await.unwrap();
        expect_ended(shop, &begun, &session_id).await;
    });
    with_shop(database, async |shop| {
        let (invoice, begun, session_id) = begin(shop).await;
        let billing = &shop.world().app.billing;
        invoice_changes::give_up(billing, invoice.id, &Trail::operator()).await.unwrap();
        expect_ended(shop, &begun, &session_id).await;
    });
}

#[on_each_database]
fn page_that_was_paid_first_is_credit(database: Database) {
    with_shop(database, async |shop| {
        let (invoice, begun, session_id) = begin(shop).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        let billing = &shop.world().app.billing;
        invoice_changes::mark_paid(billing, invoice.id, None, &Trail::operator()).await.unwrap();
        shop.work().await;
        shop.hear().await;
        // The invoice is paid twice, so the second payment of 1 becomes credit.
        assert_eq!(shop.payment(&begun["id"]).await["status"], "succeeded");
        assert_eq!(shop.balance().await, "1");
        assert_eq!(shop.count("SELECT COUNT(*) FROM stripe_tasks").await, 0);
    });
}

#[on_each_database]
fn payment_of_an_invoice_ends_no_page(database: Database) {
    with_shop(database, async |shop| {
        let (_, begun, session_id) = begin(shop).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.payment(&begun["id"]).await["status"], "succeeded");
        let expired = shop.stripe.exchanges();
        assert!(expired.iter().all(|exchange| !exchange.request.path.ends_with("/expire")));
    });
}

#[on_each_database]
fn pages_of_a_deleted_organization_end_with_it(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 25})).await;
        let session_id = shop.session(&begun["id"]).await;
        let token = shop.token().await;
        let path = shop.books.place.organization_path();
        shop.world().call(Method::DELETE, &path).bearer(&token).data().await;
        shop.work().await;
        assert_eq!(shop.stripe.object(&session_id)["status"], "expired");
        assert_eq!(shop.row(&begun["id"]).await.failure_code.as_deref(), Some("organization_deleted"));
    });
}

/// Returns the findings of the audit.
async fn drifts(shop: &Shop<'_>) -> Vec<String> {
    let report = audit::check(&shop.world().app.billing, None).await.unwrap();
    report
        .drifts
        .iter()
        .map(|drift| format!("{} {} {}", drift.invariant, drift.expected, drift.found))
        .filter(|drift| !crate::audit::is_recounted(drift))
        .collect()
}

#[on_each_database]
fn payment_of_a_deleted_organization_is_told_until_it_is_refunded(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 25})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        let token = shop.token().await;
        let path = shop.books.place.organization_path();
        shop.world().call(Method::DELETE, &path).bearer(&token).data().await;
        shop.hear().await;
        assert_eq!(
            (shop.balance().await, shop.row(&begun["id"]).await.status.as_str()),
            ("25".to_owned(), "succeeded")
        );
        let found = "payment_at_processor no remainder of a payment to a deleted organization 25 USD";
        assert_eq!(drifts(shop).await, [found]);
        // The daily comparison finds it again.
        for _ in 0..2 {
            shop.pass_ms(25 * 3_600_000);
            shop.work().await;
            assert_eq!(drifts(shop).await, [found]);
        }
        let id = shop.row(&begun["id"]).await.id;
        let payments = &shop.world().app.payments;
        tollkeeper::payments::refunds::refund(payments, id, None, &Trail::operator()).await.unwrap();
        assert_eq!((shop.balance().await, drifts(shop).await), ("0".to_owned(), vec![]));
    });
}
