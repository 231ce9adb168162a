//! Customers that Stripe no longer has, because they were deleted in its dashboard or belong to the account's
//! other mode.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::Clock;

use support::process::Start;
use support::shop::{Shop, with_shop};
use support::stripe::FakeStripe;
use support::stripe::cards::Card;
use support::world::Folder;
use support::{Database, on_each_database};

async fn delete_customer(shop: &Shop<'_>) {
    let customers = shop.stripe.all("customer");
    let customer = customers.iter().find(|customer| customer["deleted"].is_null()).unwrap();
    shop.stripe.delete_customer(customer["id"].as_str().unwrap());
    // No event reports the deletion.
    shop.stripe.drop_events();
}

async fn card(shop: &Shop<'_>) -> Value {
    let summary = shop.world().get(&shop.path("summary")).bearer(&shop.token().await).data().await;
    summary["payment_method"].clone()
}

#[on_each_database]
fn another_customer_is_made_for_a_payment(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        delete_customer(shop).await;
        // The card is deleted with its customer.
        let begun = shop.begin(&json!({"amount": 30})).await;
        assert_eq!(card(shop).await, json!(null));
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "50");
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_customers").await, 1);
        // The same happens again within an hour.
        delete_customer(shop).await;
        shop.buy("5", true).await;
        assert_eq!(shop.balance().await, "55");
        assert_eq!(shop.stripe.all("customer").len(), 3);
        assert_eq!(card(shop).await["last4"], "4242");
    });
}

#[on_each_database]
fn another_customer_is_made_for_a_card(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        delete_customer(shop).await;
        let call = shop.world().call(Method::PUT, &shop.path("payment-method"));
        let url = call.bearer(&shop.token().await).data().await["checkout_url"].clone();
        let sessions = shop.stripe.all("checkout.session");
        let session = sessions.iter().find(|session| session["url"] == url).unwrap();
        shop.stripe.visit(session["id"].as_str().unwrap(), &Card::numbered("5555555555554444")).unwrap();
        shop.hear().await;
        assert_eq!(card(shop).await["last4"], "4444");
    });
}

#[on_each_database]
fn charge_of_a_deleted_customer_pauses_for_want_of_a_card(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        delete_customer(shop).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        let top_up = shop.read_top_up().await;
        assert_eq!((&top_up["paused_reason"], &top_up["failures"]), (&json!("no_payment_method"), &json!(0)));
        assert_eq!(card(shop).await, json!(null));
        let rows = shop.rows().await;
        assert_eq!(rows[1].failure_code.as_deref(), Some("no_payment_method"));
        // After a new card is saved, top-ups continue. 5 + 5 - 5 = 5 are left, so 50 are missing.
        shop.buy_by("5", true, &Card::visa()).await;
        shop.top_up(&json!({"enabled": true, "restore_to": 55})).await;
        shop.books.use_today("chat-a", 2_000_000, 0).await;
        shop.work().await;
        assert_eq!(shop.balance().await, "55");
    });
}

/// After a change from a sandbox to live mode, Stripe has neither the earlier customers nor their cards.
#[on_each_database]
fn another_customer_is_made_after_a_change_of_the_mode(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        for kind in ["customer", "payment_method"] {
            for object in shop.stripe.all(kind) {
                let id = object["id"].as_str().unwrap();
                shop.stripe.edit(id, |object| object["object"] = json!("object_of_the_other_mode"));
            }
        }
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        // 20 - 6,000,000 x 0.0000025 = 5.
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        let top_up = shop.read_top_up().await;
        assert_eq!((&top_up["paused_reason"], &top_up["failures"]), (&json!("no_payment_method"), &json!(0)));
        shop.buy("30", true).await;
        assert_eq!(shop.balance().await, "35");
        assert_eq!(card(shop).await["last4"], "4242");
        assert_eq!(shop.stripe.all("customer").len(), 1);
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_customers").await, 1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn customer_that_stripe_does_not_have_is_named_in_the_log() {
    let (stripe, folder) = (FakeStripe::start(&Clock::System).await, Folder::new());
    let settings = stripe.settings(&folder.0);
    let set = |start: Start, (name, value): &(&str, String)| start.set(name, value);
    let server = settings.iter().fold(Start::new(&folder.0), set).run();
    let ada = server.sign_up("ada");
    let place = server.settle(&ada);
    let organization = place.project_path.split("/projects").next().unwrap();
    let begin = || {
        let call = server.post(&format!("{organization}/billing/payments"), &json!({"amount": 20}));
        call.bearer(&ada.access_token).data()
    };
    begin();
    let customer_id = stripe.all("customer")[0]["id"].as_str().unwrap().to_owned();
    stripe.delete_customer(&customer_id);
    begin();
    server.wait_for_log("Stripe doesn't have an organization's customer");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("doesn't have an organization's customer")).unwrap();
    assert!(line.contains("WARN") && line.contains(&customer_id), "{line}");
    assert_eq!(server.stop().code, Some(0));
}
