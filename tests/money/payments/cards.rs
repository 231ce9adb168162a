//! The saved card.

use http::Method;
use serde_json::json;

use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::{Database, on_each_database};

async fn shown(shop: &Shop<'_>) -> serde_json::Value {
    let summary = shop.world().get(&shop.path("summary")).bearer(&shop.books.ada.access_token).data().await;
    summary["payment_method"].clone()
}

async fn begin(shop: &Shop<'_>) -> serde_json::Value {
    let call = shop.world().call(Method::PUT, &shop.path("payment-method"));
    call.bearer(&shop.books.ada.access_token).data().await["checkout_url"].clone()
}

#[on_each_database]
fn card_is_saved_replaced_and_removed(database: Database) {
    with_shop(database, async |shop| {
        let url = begin(shop).await;
        assert_eq!(begin(shop).await, url, "the same page while it is open");
        let [session] = shop.stripe.all("checkout.session").try_into().unwrap();
        assert_eq!((&session["mode"], &session["url"]), (&json!("setup"), &url));
        assert_eq!(shown(shop).await, json!(null));
        shop.stripe.visit(session["id"].as_str().unwrap(), &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shown(shop).await, json!({"type": "visa", "last4": "4242", "expiry": "08/31"}));

        // A payment with another card replaces the saved card, and the first card is detached.
        shop.buy_by("10", true, &Card::numbered("5555555555554444")).await;
        assert_eq!(shown(shop).await, json!({"type": "mastercard", "last4": "4444", "expiry": "08/31"}));
        let attached = || {
            let cards = shop.stripe.all("payment_method");
            cards.iter().filter(|card| !card["customer"].is_null()).count()
        };
        assert_eq!(attached(), 1);
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_customers").await, 1, "one customer");

        let remove = || {
            let call = shop.world().call(Method::DELETE, &shop.path("payment-method"));
            call.bearer(&shop.books.ada.access_token)
        };
        remove().data().await;
        assert_eq!(shown(shop).await, json!(null));
        shop.work().await;
        assert_eq!((attached(), shop.count("SELECT COUNT(*) FROM stripe_tasks").await), (0, 0));
        assert_eq!(remove().refused().await, (409, "no_payment_method".to_owned()));
        shop.hear().await;
    });
}

#[on_each_database]
fn deleted_organization_leaves_no_card_and_no_page(database: Database) {
    with_shop(database, async |shop| {
        let id = shop.buy("10", true).await;
        let begun = shop.begin(&json!({"amount": 20})).await;
        let session_id = shop.session(&begun["id"]).await;
        let payment = shop.row(&id).await.id;
        let trail = tollkeeper::trail::Trail::operator();
        tollkeeper::payments::refunds::refund(&shop.world().app.payments, payment, None, &trail)
            .await
            .unwrap();
        let path = shop.books.place.organization_path();
        shop.world().call(Method::DELETE, &path).bearer(&shop.books.ada.access_token).data().await;
        shop.pass_ms(5 * 60_000);
        shop.work().await;
        shop.work().await;
        assert_eq!(shop.stripe.object(&session_id)["status"], "expired");
        assert!(shop.stripe.all("payment_method").iter().all(|card| card["customer"].is_null()));
        let row = shop.row(&begun["id"]).await;
        assert_eq!(row.failure_code.as_deref(), Some("organization_deleted"));
    });
}

#[on_each_database]
fn saved_card_is_seen_without_its_event(database: Database) {
    with_shop(database, async |shop| {
        let ask = async || {
            let call = shop.world().call(Method::PUT, &shop.path("payment-method"));
            let url = call.bearer(&shop.token().await).data().await["checkout_url"].clone();
            let sessions = shop.stripe.all("checkout.session");
            let session = sessions.iter().find(|session| session["url"] == url);
            session.map(|session| session["id"].as_str().unwrap().to_owned())
        };
        let session_id = ask().await.expect("a page that is open");
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.stripe.drop_events();
        // The page is used up, so the server creates another one, and finds the saved card.
        let second = ask().await.expect("a page that is open");
        assert_ne!(second, session_id);
        let summary = shop.world().get(&shop.path("summary")).bearer(&shop.token().await).data().await;
        assert_eq!(summary["payment_method"]["last4"], "4242");
        assert_eq!(ask().await, Some(second), "the same page while it is open");
    });
}

#[on_each_database]
fn saved_card_whose_event_is_lost_is_found_by_the_job(database: Database) {
    with_shop(database, async |shop| {
        let call = shop.world().call(Method::PUT, &shop.path("payment-method"));
        call.bearer(&shop.token().await).data().await;
        let [session] = shop.stripe.all("checkout.session").try_into().unwrap();
        shop.stripe.visit(session["id"].as_str().unwrap(), &Card::visa()).unwrap();
        shop.stripe.drop_events();
        shop.pass_ms(5 * 60_000);
        shop.work().await;
        let summary = shop.world().get(&shop.path("summary")).bearer(&shop.token().await).data().await;
        assert_eq!(summary["payment_method"]["last4"], "4242");
    });
}
