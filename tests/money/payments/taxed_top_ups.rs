//! Automatic top-ups with a tax. All sums are calculated by hand.

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, MINUTE_MS};
use tollkeeper::db::sql;

use super::taxes::begin_setup;
use support::shop::{Shop, with_configured_shop};
use support::stripe::cards::{Card, NO_FUNDS, Outcome};
use support::stripe::faults::Fault;
use support::{Database, on_each_database};

/// Runs a test on each database, with a tax of 19%.
fn run_on(database: Database, test: impl AsyncFn(&mut Shop)) {
    with_configured_shop(database, &[("TOLLKEEPER_PAYMENTS__STRIPE_TAX", "true")], async |shop| {
        shop.stripe.set_tax(190_000);
        test(shop).await;
    });
}

/// Creates an organization with a balance of 20, a saved card and an address, whose balance is restored to 50
/// when it is below 10. Returns the id of the card.
async fn open(shop: &Shop<'_>) -> String {
    shop.buy("20", true).await;
    shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
    let cards = shop.stripe.all("payment_method");
    cards.iter().find(|card| !card["customer"].is_null()).unwrap()["id"].as_str().unwrap().to_owned()
}

/// Returns the status, amount, tax and failure of the automatic top-ups, oldest first.
async fn top_ups(shop: &Shop<'_>) -> Vec<String> {
    let rows = shop.rows().await;
    let words = rows.iter().filter(|row| row.kind.as_str() == "auto_top_up").map(|row| {
        let failure = row.failure_code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        let tax = row.tax().map_or_else(|| "?".to_owned(), |tax| tax.to_string());
        format!("{} {} + {tax}{failure}", row.status.as_str(), row.amount())
    });
    words.collect()
}

fn calculations(shop: &Shop<'_>) -> usize {
    shop.stripe.all("tax.calculation").len()
}

#[on_each_database]
fn card_is_charged_with_the_tax_that_stripe_records(database: Database) {
    run_on(database, async |shop| {
        open(shop).await;
        // 20 - 15 = 5, so 45 are missing. The tax is 45 x 0.19 = 8.55.
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55"]);
        assert_eq!(shop.balance().await, "50");
        let charges = shop.stripe.charges();
        assert_eq!(charges.last().unwrap()["amount"], 5_355);
        let row = shop.rows().await[1].clone();
        let (calculation_id, intent_id) = (row.tax_calculation_id.unwrap(), row.intent_id.unwrap());
        assert_eq!(shop.stripe.recorded_taxes(), [(calculation_id, intent_id)].into());
        let shown = shop.payment(&json!(row.id)).await;
        assert_eq!((&shown["tax"], &shown["total"]), (&json!(8.55), &json!(53.55)));
        assert!(shown["receipt_url"].as_str().unwrap().contains("/receipts/ch_"), "{shown}");
        shop.hear().await;
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!((shop.balance().await.as_str(), calculations(shop)), ("50", 1));
        // The charges are 20 + 3.80 and 45 + 8.55.
        assert_eq!(shop.stripe.balance(), 7_735);
    });
}

#[on_each_database]
fn cap_counts_what_the_card_is_charged(database: Database) {
    run_on(database, async |shop| {
        open(shop).await;
        shop.top_up(&json!({"monthly_cap": 60})).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        // 60 - 53.55 = 6.45 of the cap are left. With tax, 6.45 would be 7.68. 6.45 x 6.45 / 7.68 = 5.41, and
        // 5.41 + 1.03 = 6.44.
        shop.books.use_today("chat-a", 18_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55", "succeeded 5.41 + 1.03"]);
        assert_eq!((shop.balance().await.as_str(), calculations(shop)), ("10.41", 3));
        shop.books.use_today("chat-a", 1_000_000, 0).await;
        shop.work().await;
        assert_eq!(shop.read_top_up().await["paused_reason"], "monthly_cap");
        assert_eq!(calculations(shop), 3);
    });
}

#[on_each_database]
fn cap_that_leaves_too_little_for_amount_and_tax_pauses(database: Database) {
    run_on(database, async |shop| {
        open(shop).await;
        shop.top_up(&json!({"monthly_cap": 59})).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        // 5.45 of the cap are left. That is more than the minimum amount of 5, but less than 5 + 0.95.
        shop.books.use_today("chat-a", 18_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55", "canceled 45 + 0 monthly_cap"]);
        let top_up = shop.read_top_up().await;
        assert_eq!(
            (&top_up["paused_reason"], &top_up["resumes_at"]),
            (&json!("monthly_cap"), &json!("2026-04-01T00:00:00.000Z"))
        );
        assert_eq!(shop.stripe.charges().len(), 2);
    });
}

#[on_each_database]
fn address_of_a_saved_card_is_enough_for_the_tax(database: Database) {
    run_on(database, async |shop| {
        shop.buy_elsewhere("20", "elsewhere").await;
        let session_id = begin_setup(shop).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55"]);
        // The customer's existing address isn't replaced.
        let customer_id = shop.stripe.all("customer")[0]["id"].as_str().unwrap().to_owned();
        shop.stripe.edit(&customer_id, |customer| customer["address"]["city"] = json!("Hamburg"));
        let session_id = begin_setup(shop).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        assert_eq!(shop.stripe.object(&customer_id)["address"]["city"], "Hamburg");
    });
}

#[on_each_database]
fn nothing_is_charged_without_an_address(database: Database) {
    run_on(database, async |shop| {
        shop.buy_elsewhere("20", "elsewhere").await;
        let session_id = begin_setup(shop).await;
        shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        shop.hear().await;
        // The card was saved before the tax was introduced.
        shop.stripe.forget_address(shop.stripe.all("customer")[0]["id"].as_str().unwrap());
        shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["failed 45 + 0 tax_location"]);
        let top_up = shop.read_top_up().await;
        assert_eq!((&top_up["paused_reason"], &top_up["resumes_at"]), (&json!("tax_location"), &json!(null)));
        assert_eq!(shop.stripe.charges().len(), 0);
        let mut tx = shop.world().app.db.read().await.unwrap();
        let text = "SELECT details FROM outbox WHERE template = 'auto_top_up'";
        let (details,): (String,) = sql(text).one(&mut tx).await.unwrap();
        drop(tx);
        assert_eq!(serde_json::from_str::<Value>(&details).unwrap()["top_up"]["reason"], "tax_location");
        // Nothing more is tried until an owner buys credit on a page, which asks for the address, and turns
        // the top-up on again.
        shop.pass_ms(DAY_MS);
        shop.work().await;
        shop.buy("10", false).await;
        assert_eq!(shop.stripe.charges().len(), 1);
        shop.top_up(&json!({"enabled": true})).await;
        // The balance is 5 + 10 - 10 = 5.
        shop.books.use_today("chat-a", 4_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await[1], "succeeded 45 + 8.55");
        assert_eq!(shop.balance().await, "50");
    });
}

#[on_each_database]
fn nothing_is_charged_while_the_tax_cannot_be_computed(database: Database) {
    run_on(database, async |shop| {
        open(shop).await;
        let faults =
            [Fault::LostRequest, Fault::LostAnswer, Fault::HalfAnswer, Fault::ErrorBefore, Fault::TooMany];
        for (number, fault) in faults.into_iter().enumerate() {
            shop.books.use_today("chat-a", if number == 0 { 6_000_000 } else { 18_000_000 }, 0).await;
            shop.stripe.fail_next("POST", "/v1/tax/calculations", fault);
            shop.work().await;
            assert_eq!(shop.stripe.charges().len(), 1 + number, "{fault:?}");
            assert_eq!(shop.read_top_up().await["paused_reason"], json!(null), "{fault:?}");
            shop.pass_ms(MINUTE_MS);
            shop.work().await;
            assert_eq!(shop.stripe.charges().len(), 2 + number, "{fault:?}");
            assert_eq!(shop.balance().await, "50", "{fault:?}");
        }
        let expected = vec!["succeeded 45 + 8.55".to_owned(); 5];
        assert_eq!(top_ups(shop).await, expected);
    });
}

#[on_each_database]
fn lost_answer_of_a_charge_with_tax_is_charged_once(database: Database) {
    run_on(database, async |shop| {
        open(shop).await;
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.stripe.fail_next("POST", "/v1/payment_intents", Fault::LostAnswer);
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["processing 45 + 8.55"]);
        // The tax changes in the meantime, but the server finds the original charge.
        shop.stripe.set_tax(200_000);
        shop.stripe.forget_keys();
        shop.pass_ms(MINUTE_MS);
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55"]);
        assert_eq!((shop.stripe.charges().len(), calculations(shop)), (2, 1));
    });
}

#[on_each_database]
fn later_attempts_are_for_the_same_amount_and_tax(database: Database) {
    run_on(database, async |shop| {
        let card = open(shop).await;
        shop.stripe.set_outcome(&card, NO_FUNDS);
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["processing 45 + 8.55 insufficient_funds"]);
        shop.stripe.set_outcome(&card, Outcome::Succeeds);
        shop.stripe.set_tax(200_000);
        shop.pass_ms(DAY_MS);
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 8.55"]);
        assert_eq!((calculations(shop), shop.stripe.recorded_taxes().len()), (1, 1));
    });
}

#[on_each_database]
fn page_on_which_a_charge_is_confirmed_has_its_own_tax(database: Database) {
    run_on(database, async |shop| {
        let card = open(shop).await;
        shop.stripe.set_outcome(&card, Outcome::AuthenticationRequired);
        shop.books.use_today("chat-a", 6_000_000, 0).await;
        shop.work().await;
        shop.work().await;
        assert_eq!(top_ups(shop).await, ["action_required 45 + ? authentication_required"]);
        let id = json!(shop.rows().await[1].id);
        shop.stripe.set_tax(200_000);
        shop.stripe.visit(&shop.session(&id).await, &Card::visa()).unwrap();
        shop.hear().await;
        // 45 x 0.2 = 9.
        assert_eq!(top_ups(shop).await, ["succeeded 45 + 9"]);
        assert_eq!(shop.balance().await, "50");
        assert_eq!(shop.stripe.charges().last().unwrap()["amount"], 5_400);
    });
}
