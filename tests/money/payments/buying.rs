//! Buying credit.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tollkeeper::clock::DAY_MS;

use support::shop::with_shop;
use support::stripe::cards::Card;
use support::stripe::faults::Fault;
use support::{Database, on_each_database};

#[on_each_database]
fn credit_is_bought_on_a_page_of_stripe(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": "25.50"})).await;
        assert_eq!(
            (&begun["kind"], &begun["status"], &begun["amount"], &begun["currency"]),
            (&json!("credit"), &json!("open"), &json!(25.5), &json!("USD"))
        );
        let session_id = shop.session(&begun["id"]).await;
        assert_eq!(begun["checkout_url"], shop.stripe.object(&session_id)["url"]);
        assert_eq!(shop.balance().await, "0");

        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        let paid = shop.payment(&begun["id"]).await;
        assert_eq!((&paid["status"], &paid["checkout_url"]), (&json!("succeeded"), &json!(null)));
        assert_eq!(paid["paid_at"], "2026-03-10T12:00:00.001Z");
        assert_eq!(shop.balance().await, "25.5");
        assert_eq!(shop.credits().await, ["purchase 25.5 of 25.5"]);
        // Without `save_card` the card isn't saved.
        let summary =
            shop.world().get(&shop.path("summary")).bearer(&shop.books.ada.access_token).data().await;
        assert_eq!(summary["payment_method"], json!(null));

        let movements =
            shop.world().get(&shop.path("movements")).bearer(&shop.books.ada.access_token).data().await;
        let [movement] = movements["movements"].as_array().unwrap().as_slice() else { panic!("{movements}") };
        assert_eq!(
            (&movement["kind"], &movement["amount"], &movement["reference"]),
            (&json!("payment"), &json!(25.5), &begun["id"])
        );
    });
}

#[on_each_database]
fn payment_is_credited_without_an_event(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        shop.stripe.visit(&shop.session(&begun["id"]).await, &Card::visa()).unwrap();
        shop.stripe.drop_events();
        shop.work().await;
        assert_eq!(shop.balance().await, "0");
        // The job reads open payments every five minutes.
        shop.pass_ms(5 * 60_000);
        shop.work().await;
        assert_eq!(shop.balance().await, "10");
        assert_eq!(shop.payment(&begun["id"]).await["status"], "succeeded");
    });
}

#[on_each_database]
fn unpaid_page_expires(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 10})).await;
        let other = shop.begin(&json!({"amount": 10})).await;
        assert_ne!(begun["id"], other["id"], "without an idempotency key each request is a payment");
        shop.stripe
            .visit(&shop.session(&begun["id"]).await, &Card::numbered("4000000000000002"))
            .unwrap_err();
        shop.hear().await;
        assert_eq!(shop.payment(&begun["id"]).await["status"], "open", "another card may be tried");
        shop.pass_ms(DAY_MS + 1);
        shop.work().await;
        let over = shop.payment(&begun["id"]).await;
        assert_eq!((&over["status"], &over["failure_code"]), (&json!("canceled"), &json!("session_expired")));
        assert_eq!(over["checkout_url"], json!(null));
        assert_eq!(shop.balance().await, "0");
    });
}

#[on_each_database]
fn same_request_has_the_same_payment(database: Database) {
    with_shop(database, async |shop| {
        let post = |amount: i64| {
            let call = shop.world().post(&shop.path("payments"), &json!({ "amount": amount }));
            call.bearer(&shop.books.ada.access_token).header("idempotency-key", "one")
        };
        let first = post(20).data().await;
        let second = post(20).data().await;
        assert_eq!(first, second);
        assert_eq!(post(30).refused().await, (409, "idempotency_key_reused".to_owned()));
        // The stored answer is gone, for instance because the server ended before it was stored. The payment
        // still exists.
        let mut tx = shop.world().app.db.write().await.unwrap();
        tollkeeper::db::sql("DELETE FROM idempotency_keys").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let third = post(20).data().await;
        assert_eq!((&third["id"], &third["checkout_url"]), (&first["id"], &first["checkout_url"]));
        assert_eq!((shop.rows().await.len(), shop.stripe.all("checkout.session").len()), (1, 1));
    });
}

#[on_each_database]
fn requests_at_once_have_the_same_payment(database: Database) {
    with_shop(database, async |shop| {
        let token = shop.token().await;
        let requests = |key: &'static str| {
            let call = || shop.world().post(&shop.path("payments"), &json!({"amount": 20})).bearer(&token);
            join_all((0..10).map(|_| call().header("idempotency-key", key).send()).collect::<Vec<_>>())
        };
        // Stripe takes a while, so all requests arrive before the first answer.
        shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::Delay(Duration::from_millis(300)));
        let answers = requests("ten").await;
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [200; 10]);
        assert!(answers.iter().all(|answer| answer.text == answers[0].text));
        assert_eq!((shop.rows().await.len(), shop.stripe.all("checkout.session").len()), (1, 1));
        // A request without a final answer is repeated, but isn't paid again.
        shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::LostAnswer);
        for answer in requests("lost").await {
            assert!([200, 409, 502].contains(&answer.status), "{}", answer.text);
        }
        assert_eq!(requests("lost").await[0].status, 200);
        assert_eq!((shop.rows().await.len(), shop.stripe.all("checkout.session").len()), (2, 2));
    });
}

#[on_each_database]
fn crash_before_the_page_is_stored_finds_the_same_page(database: Database) {
    with_shop(database, async |shop| {
        let call = || {
            let call = shop.world().post(&shop.path("payments"), &json!({"amount": 20}));
            call.bearer(&shop.books.ada.access_token).header("idempotency-key", "one")
        };
        let first = call().data().await;
        // The process ended between Stripe's answer and the commit.
        let mut tx = shop.world().app.db.write().await.unwrap();
        for text in [
            "DELETE FROM idempotency_keys",
            "UPDATE payments SET session_id = NULL, checkout_url = NULL, customer_id = NULL",
        ] {
            tollkeeper::db::sql(text).execute(&mut tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let second = call().data().await;
        assert_eq!(second, first);
        assert_eq!(shop.stripe.all("checkout.session").len(), 1);
    });
}

#[on_each_database]
fn page_that_nobody_came_back_for_is_found_by_the_job(database: Database) {
    with_shop(database, async |shop| {
        let begun = shop.begin(&json!({"amount": 20})).await;
        let session_id = shop.session(&begun["id"]).await;
        let mut tx = shop.world().app.db.write().await.unwrap();
        tollkeeper::db::sql("UPDATE payments SET session_id = NULL, checkout_url = NULL")
            .execute(&mut tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        // The customer still has the page and pays. The event finds the payment by its metadata.
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.balance().await, "20");
    });
}

#[on_each_database]
fn amounts_have_bounds(database: Database) {
    with_shop(database, async |shop| {
        for amount in [json!("4.99"), json!(10_000.01), json!("25.001"), json!(0), json!(-5), json!("x")] {
            let call = shop.world().post(&shop.path("payments"), &json!({ "amount": amount }));
            let answer = call.bearer(&shop.books.ada.access_token).send().await;
            assert_eq!(
                (answer.status, answer.json()["error"]["param"].clone()),
                (400, json!("amount")),
                "{amount}"
            );
        }
        for body in [json!({}), json!({"amount": 5, "invoice_id": "invoice_01h455vb4pex5vsknk084sn02q"})] {
            let call = shop.world().post(&shop.path("payments"), &body);
            assert_eq!(call.bearer(&shop.books.ada.access_token).send().await.status, 400, "{body}");
        }
        shop.begin(&json!({"amount": 5})).await;
        shop.begin(&json!({"amount": 10_000})).await;
        assert_eq!(shop.rows().await.len(), 2);
    });
}
