//! Requests to Stripe that are lost, or whose answers are lost. The server sends the same request again with
//! the same key.

use serde_json::{Value, json};
use std::time::Duration;
use tollkeeper::clock::{DAY_MS, MINUTE_MS};
use tollkeeper::payments::refunds;
use tollkeeper::trail::Trail;

use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::stripe::faults::Fault;
use support::{Database, on_each_database};

const FAULTS: [Fault; 8] = [
    Fault::LostRequest,
    Fault::LostAnswer,
    Fault::HalfAnswer,
    Fault::ErrorBefore,
    Fault::ErrorAfter,
    Fault::TooMany,
    Fault::Delay(Duration::from_millis(5)),
    Fault::Twice,
];

/// Returns the distinct idempotency keys of the POST requests to a path.
fn keys(shop: &Shop<'_>, path: &str) -> Vec<String> {
    let exchanges = shop.stripe.exchanges();
    let of = exchanges.iter().filter(|it| it.request.method == "POST" && it.request.path == path);
    let mut keys: Vec<_> = of.filter_map(|it| it.request.key().map(str::to_owned)).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[on_each_database]
fn page_is_the_same_whatever_happens_to_the_request(database: Database) {
    with_shop(database, async |shop| {
        for (number, fault) in FAULTS.into_iter().enumerate() {
            let sessions = shop.stripe.all("checkout.session").len();
            shop.stripe.fail_next("POST", "/v1/checkout/sessions", fault);
            let post = || {
                let call = shop.world().post(&shop.path("payments"), &json!({"amount": 10}));
                call.bearer(&shop.books.ada.access_token).header("idempotency-key", &number.to_string())
            };
            let first = post().send().await;
            assert!([200, 502].contains(&first.status), "{fault:?}");
            if fault == Fault::ErrorAfter {
                // Stripe repeats this error for a day. The customer never gets the page, and the payment is
                // canceled.
                continue;
            }
            let second = post().data().await;
            assert_eq!(shop.stripe.all("checkout.session").len(), sessions + 1, "{fault:?}");
            shop.stripe.visit(&shop.session(&second["id"]).await, &Card::visa()).unwrap();
        }
        shop.hear().await;
        assert_eq!(shop.balance().await, "70");
        assert_eq!(keys(shop, "/v1/checkout/sessions").len(), 8);
        shop.pass_ms(2 * DAY_MS);
        shop.work().await;
        let given_up: Vec<_> = shop.rows().await.into_iter().filter_map(|row| row.failure_code).collect();
        assert_eq!(given_up, ["session_expired"]);
    });
}

#[on_each_database]
fn card_is_charged_once_whatever_happens_to_the_request(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        let mut charges = 1;
        for fault in FAULTS {
            // The balance falls to 5, so 45 are missing. 15 are used in the first round, and 45 in the
            // others.
            let used = if charges == 1 { 6_000_000 } else { 18_000_000 };
            shop.books.use_today("chat-a", used, 0).await;
            shop.stripe.fail_next("POST", "/v1/payment_intents", fault);
            for _ in 0..5 {
                shop.work().await;
                shop.pass_ms(MINUTE_MS);
            }
            charges += 1;
            assert_eq!(
                (shop.stripe.charges().len(), shop.balance().await),
                (charges, "50".to_owned()),
                "{fault:?}"
            );
        }
        shop.hear().await;
        assert_eq!(shop.stripe.charges().len(), 9);
        assert_eq!(keys(shop, "/v1/payment_intents").len(), 8, "one for each attempt");
    });
}

#[on_each_database]
fn attempt_of_which_stripe_has_forgotten_the_key_is_looked_up(database: Database) {
    with_shop(database, async |shop| {
        shop.buy("20", true).await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.stripe.fail_next("POST", "/v1/payment_intents", Fault::LostAnswer);
        shop.work().await;
        // The outage lasts two days.
        shop.stripe.forget_keys();
        shop.stripe.drop_events();
        shop.pass_ms(2 * DAY_MS);
        shop.work().await;
        assert_eq!((shop.stripe.charges().len(), shop.balance().await), (2, "50".to_owned()));
    });
}

#[on_each_database]
fn refund_is_made_once_whatever_happens_to_the_request(database: Database) {
    with_shop(database, async |shop| {
        let id: Value = shop.buy("100", false).await;
        let payment = shop.row(&id).await.id;
        for (number, fault) in (1_i64..).zip(FAULTS) {
            shop.stripe.fail_next("POST", "/v1/refunds", fault);
            let amount = tollkeeper::money::Nano::parse("5");
            refunds::refund(&shop.world().app.payments, payment, amount, &Trail::operator()).await.unwrap();
            shop.stripe.forget_keys();
            for _ in 0..3 {
                shop.pass_ms(MINUTE_MS);
                shop.work().await;
            }
            assert_eq!(shop.stripe.balance(), 10_000 - 500 * number, "{fault:?}");
        }
        shop.hear().await;
        assert_eq!(shop.balance().await, "60");
        assert_eq!(shop.count("SELECT COUNT(*) FROM payment_refunds WHERE status = 'succeeded'").await, 8);
    });
}

#[on_each_database]
fn event_is_done_when_stripe_is_back(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        for _ in 0..4 {
            shop.stripe.fail_next("GET", "/v1/", Fault::ErrorBefore);
        }
        shop.hear().await;
        assert_eq!(shop.balance().await, "0");
        for _ in 0..4 {
            shop.pass_ms(MINUTE_MS);
            shop.work().await;
        }
        assert_eq!(shop.balance().await, "10");
    });
}
