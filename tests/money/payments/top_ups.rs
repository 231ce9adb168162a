//! Automatic top-ups. All sums are calculated by hand.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;

use support::shop::{Shop, with_shop};
use support::stripe::cards::{Card, NO_FUNDS, Outcome, STOLEN};
use support::{Database, on_each_database};

/// Creates an organization with a balance of 20 and a saved card, whose balance is restored to 50 when it is
/// below 10. Returns the id of the card.
async fn open(shop: &Shop<'_>) -> String {
    shop.buy("20", true).await;
    let top_up = shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
    assert_eq!((&top_up["enabled"], &top_up["paused_reason"]), (&json!(true), &json!(null)));
    let cards = shop.stripe.all("payment_method");
    cards.iter().find(|card| !card["customer"].is_null()).unwrap()["id"].as_str().unwrap().to_owned()
}

/// Returns the kind, status, amount and failure of the payments after the first one, oldest first.
async fn later(shop: &Shop<'_>) -> Vec<String> {
    let rows = shop.rows().await;
    let words = rows.iter().skip(1).map(|row| {
        let failure = row.failure_code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        format!("{} {} {}{failure}", row.kind.as_str(), row.status.as_str(), row.amount())
    });
    words.collect()
}

/// Removes the queued e-mails about top-ups, and returns their notices.
async fn mails(shop: &Shop<'_>) -> Vec<Value> {
    let mut tx = shop.world().app.db.write().await.unwrap();
    let rows: Vec<(String, String)> = tollkeeper::db::sql(
        "SELECT template, details FROM outbox WHERE template = 'auto_top_up' ORDER BY id",
    )
    .all(&mut tx)
    .await
    .unwrap();
    tollkeeper::db::sql("DELETE FROM outbox").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    rows.into_iter()
        .map(|(_, details)| serde_json::from_str::<Value>(&details).unwrap()["top_up"].clone())
        .collect()
}

#[on_each_database]
fn one_charge_closes_the_whole_gap(database: Database) {
    with_shop(database, async |shop| {
        open(shop).await;
        // 4,000,000 x 0.0000025 = 10. That is exactly the threshold, so nothing is charged.
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await, [] as [String; 0]);
        // Another token leaves 9.9999975, so 40.0000025 are missing.
        shop.books.use_today("chat-a", 1, 0).await;
        // Usage before the charge counts too: 1,000,000 x 0.0000025 = 2.5. The sum is rounded up to cents.
        shop.books.use_today("chat-a", 1_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await, ["auto_top_up succeeded 42.51"]);
        assert_eq!(shop.balance().await, "50.0099975");
        shop.hear().await;
        shop.work().await;
        assert_eq!(shop.stripe.charges().len(), 2);
        // The top-up can start again.
        shop.books.use_today("chat-a", 17_000_000, 0).await;
        shop.work().await;
        // 50.0099975 - 42.5 = 7.5099975, so 42.4900025 are missing.
        assert_eq!(later(shop).await, ["auto_top_up succeeded 42.51", "auto_top_up succeeded 42.5"]);
        assert_eq!(shop.balance().await, "50.0099975");
    });
}

#[on_each_database]
fn many_calls_at_once_cause_one_charge(database: Database) {
    with_shop(database, async |shop| {
        open(shop).await;
        let world = shop.world();
        let now = world.clock.now().to_string();
        let calls = (0..64).map(|number| {
            // 64 x 100,000 x 0.0000025 = 16.
            let event = json!({"id": format!("m{number}"), "source": "many", "time": now, "api_key_id": shop.books.keys[0],
                "model": "chat-a", "kind": "chat", "prompt_tokens": 100_000, "completion_tokens": 0});
            async move {
                let answer = world.ask("/service/v1/usage", &json!({ "events": [event] })).bare().await;
                assert_eq!(answer["results"][0]["status"], "accepted", "{answer}");
            }
        });
        let works = async {
            for _ in 0..8 {
                shop.work().await;
            }
        };
        futures_util::join!(join_all(calls), works);
        shop.work().await;
        let ups = later(shop).await;
        assert_eq!(ups.len(), 1, "{ups:?}");
        assert_eq!(shop.stripe.charges().len(), 2);
    });
}

#[on_each_database]
fn reserved_money_counts(database: Database) {
    with_shop(database, async |shop| {
        open(shop).await;
        // 4,000,000 x 0.0000025 = 10 are used, and 8,000 x 0.0000000007 are reserved, so the balance is below
        // the threshold.
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        shop.books.authorize_call("embed-e", 8_000).await;
        shop.work().await;
        assert_eq!(later(shop).await.len(), 1);
    });
}

#[on_each_database]
fn hard_decline_pauses_at_once(database: Database) {
    with_shop(database, async |shop| {
        let card = open(shop).await;
        shop.stripe.set_outcome(&card, STOLEN);
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await, ["auto_top_up failed 45 stolen_card"]);
        let top_up = shop.read_top_up().await;
        assert_eq!((&top_up["paused_reason"], &top_up["failures"]), (&json!("declined"), &json!(1)));
        assert_eq!(mails(shop).await, [json!({"reason": "declined", "amount": "45", "currency": "USD"})]);
        // No further attempt is made, regardless of usage.
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        for _ in 0..3 {
            shop.pass_ms(DAY_MS);
            shop.work().await;
        }
        assert_eq!(later(shop).await.len(), 1);
        // An owner turns the top-up on again, with a card that succeeds. The balance is -10, so 60 are
        // missing.
        shop.stripe.set_outcome(&card, Outcome::Succeeds);
        shop.top_up(&json!({"enabled": true})).await;
        shop.work().await;
        assert_eq!(later(shop).await[1], "auto_top_up succeeded 60");
        assert_eq!(shop.balance().await, "50");
        assert_eq!(shop.read_top_up().await["failures"], 0);
    });
}

#[on_each_database]
fn soft_decline_is_tried_once_a_day_three_times_in_all(database: Database) {
    with_shop(database, async |shop| {
        let card = open(shop).await;
        shop.stripe.set_outcome(&card, NO_FUNDS);
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        let attempts = || shop.stripe.all("payment_intent").len() - 1;
        shop.work().await;
        assert_eq!(
            (later(shop).await, attempts()),
            (vec!["auto_top_up processing 45 insufficient_funds".to_owned()], 1)
        );
        assert_eq!(
            mails(shop).await,
            [json!({"reason": "retried", "amount": "45", "currency": "USD"})],
            "at the first"
        );
        // The attempt stays claimed: neither time nor usage causes another charge within the day.
        for _ in 0..5 {
            shop.pass_ms(4 * 3_600_000);
            shop.books.use_today("chat-a", 1_000, 0).await;
            shop.work().await;
        }
        assert_eq!((later(shop).await.len(), attempts()), (1, 1));
        shop.pass_ms(4 * 3_600_000);
        shop.work().await;
        assert_eq!((attempts(), mails(shop).await.len()), (2, 0));
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!(attempts(), 3);
        assert_eq!(later(shop).await, ["auto_top_up failed 45 insufficient_funds"]);
        assert_eq!(mails(shop).await, [json!({"reason": "declined", "amount": "45", "currency": "USD"})]);
        assert_eq!(shop.read_top_up().await["paused_reason"], "declined");
        // Each attempt has its own idempotency key.
        let keys: std::collections::BTreeSet<_> = shop
            .stripe
            .exchanges()
            .iter()
            .filter(|exchange| exchange.request.path == "/v1/payment_intents")
            .filter_map(|exchange| exchange.request.key().map(str::to_owned))
            .collect();
        assert_eq!(keys.len(), 3, "{keys:?}");
    });
}

#[on_each_database]
fn charge_that_the_bank_wants_confirmed_has_a_page(database: Database) {
    with_shop(database, async |shop| {
        let card = open(shop).await;
        shop.stripe.set_outcome(&card, Outcome::AuthenticationRequired);
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        shop.work().await;
        let rows = shop.rows().await;
        let row = &rows[1];
        assert_eq!(row.status.as_str(), "action_required");
        let id = json!(row.id);
        let shown = shop.payment(&id).await;
        let url = shown["checkout_url"].as_str().unwrap().to_owned();
        assert_eq!(shop.read_top_up().await["paused_reason"], "authentication_required");
        let told = mails(shop).await;
        assert_eq!(
            told,
            [
                json!({"reason": "authentication_required", "amount": "45", "currency": "USD", "checkout_url": url})
            ]
        );
        shop.stripe.visit(&shop.session(&id).await, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(later(shop).await, ["auto_top_up succeeded 45"]);
        assert_eq!(shop.balance().await, "50");
        assert_eq!(shop.stripe.charges().len(), 2);
    });
}

#[on_each_database]
fn monthly_cap_is_told_and_ends_with_the_month(database: Database) {
    with_shop(database, async |shop| {
        open(shop).await;
        shop.top_up(&json!({"monthly_cap": 60})).await;
        // The balance is 5, so 45 are charged. Later it is 50 - 45 = 5 again, and 15 of the cap are left.
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        shop.books.use_today("chat-a", 18_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await, ["auto_top_up succeeded 45", "auto_top_up succeeded 15"]);
        assert_eq!(shop.balance().await, "20");
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await.len(), 3);
        assert_eq!(later(shop).await[2], "auto_top_up canceled 45 monthly_cap");
        assert_eq!(mails(shop).await.len(), 1);
        let top_up = shop.read_top_up().await;
        assert_eq!(
            (&top_up["paused_reason"], &top_up["resumes_at"]),
            (&json!("monthly_cap"), &json!("2026-04-01T00:00:00.000Z"))
        );
        shop.books.set_time("2026-04-01T00:00:00Z");
        shop.work().await;
        shop.work().await;
        assert_eq!(shop.balance().await, "50");
        assert_eq!(shop.read_top_up().await["paused_reason"], json!(null));
    });
}

#[on_each_database]
fn refunds_and_disputes_stop_it(database: Database) {
    with_shop(database, async |shop| {
        open(shop).await;
        let first = shop.rows().await[0].clone();
        shop.stripe.refund_by_hand(first.intent_id.as_deref().unwrap(), 100);
        shop.hear().await;
        assert_eq!(shop.read_top_up().await["paused_reason"], "refunded");
        shop.top_up(&json!({"enabled": true})).await;
        shop.stripe.dispute(first.intent_id.as_deref().unwrap(), 1_900);
        shop.hear().await;
        assert_eq!(shop.read_top_up().await["paused_reason"], "disputed");
        shop.work().await;
        // The refund and the dispute reduce the balance to less than the threshold. That begins a top-up, but
        // the pause cancels it, so nothing is charged.
        assert_eq!(later(shop).await, ["auto_top_up canceled 50 disabled"]);
        assert_eq!(shop.stripe.charges().len(), 1);
        assert_eq!(mails(shop).await.len(), 2);
    });
}

#[on_each_database]
fn values_have_to_fit_together(database: Database) {
    with_shop(database, async |shop| {
        let put = |body: Value| {
            let call = shop.world().call(http::Method::PUT, &shop.path("auto-top-up")).json(&body);
            call.bearer(&shop.books.ada.access_token)
        };
        let good = json!({"enabled": true, "threshold": 10, "restore_to": 50});
        assert_eq!(put(good.clone()).refused().await, (409, "no_payment_method".to_owned()));
        shop.buy("20", true).await;
        for (body, param) in [
            (json!({"enabled": true, "threshold": -1, "restore_to": 50}), "threshold"),
            (json!({"enabled": true, "threshold": 10, "restore_to": 14.99}), "restore_to"),
            (json!({"enabled": true, "threshold": 10, "restore_to": 10_001}), "restore_to"),
            (json!({"enabled": true, "threshold": 10, "restore_to": 50, "monthly_cap": 4}), "monthly_cap"),
            (
                json!({"enabled": true, "threshold": 10, "restore_to": 50, "monthly_cap": "60.001"}),
                "monthly_cap",
            ),
        ] {
            let answer = put(body.clone()).send().await;
            assert_eq!(
                (answer.status, answer.json()["error"]["param"].clone()),
                (400, json!(param)),
                "{body}"
            );
        }
        let read =
            shop.world().get(&shop.path("auto-top-up")).bearer(&shop.books.ada.access_token).send().await;
        let tag = read.header("etag").to_owned();
        put(good).data().await;
        let late = put(json!({"enabled": false})).header("if-match", &tag);
        assert_eq!(late.refused().await, (412, "precondition_failed".to_owned()));
        put(json!({"enabled": false})).data().await;
        shop.books.use_today("chat-a", 8_000_000, 0).await;
        shop.work().await;
        assert_eq!(later(shop).await, [] as [String; 0]);
    });
}
