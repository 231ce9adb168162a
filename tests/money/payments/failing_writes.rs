//! The database refuses writes to one table after another, at each step of a story. Each step completes once
//! the writes are accepted: nothing is paid or credited twice, and nothing is lost. All sums are calculated
//! by hand.

use http::Method;
use serde_json::json;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::payments::jobs;
use tollkeeper::payments::refunds;
use tollkeeper::trail::Trail;

use support::http::Call;
use support::refusals::{accept_writes, refuse_writes};
use support::shop::{Shop, with_shop};
use support::stripe::cards::Card;
use support::{Database, on_each_database};

/// The tables that payments write to.
const TABLES: [&str; 14] = [
    "payments",
    "payment_customers",
    "auto_top_ups",
    "stripe_events",
    "stripe_tasks",
    "payment_refunds",
    "payment_disputes",
    "wallets",
    "credits",
    "ledger_transactions",
    "ledger_entries",
    "audit_log",
    "outbox",
    "idempotency_keys",
];

const SAVED_CARDS: &str = "SELECT COUNT(*) FROM payment_customers WHERE method_id IS NOT NULL";

/// A step of the story.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A payment of 20 begins, which saves the card.
    Begin,
    /// The customer pays on the page.
    Paid,
    /// The automatic top-up restores the balance to 50 when it is below 10.
    TopUpSet,
    /// 12 are used, so the card is charged 42.
    Charged,
    /// 3 of the first payment are refunded at Stripe.
    RefundedAtStripe,
    /// The customer disputes the charge of 42.
    Disputed,
    /// The dispute is won.
    Won,
    /// An operator refunds the rest of the first payment: 20 - 12 - 3 = 5.
    Refunded,
    /// The card is removed.
    CardRemoved,
}

const STEPS: [(Step, &str); 9] = [
    (Step::Begin, "0"),
    (Step::Paid, "20"),
    (Step::TopUpSet, "20"),
    (Step::Charged, "50"),
    (Step::RefundedAtStripe, "47"),
    (Step::Disputed, "5"),
    (Step::Won, "47"),
    (Step::Refunded, "42"),
    (Step::CardRemoved, "42"),
];

#[on_each_database]
fn each_step_survives_a_table_that_refuses_writes(database: Database) {
    for table in TABLES {
        with_shop(database, async |shop| {
            let mut refused = Vec::new();
            for (step, balance) in STEPS {
                prepare(shop, step).await;
                refuse_writes(shop.world(), table).await;
                if !attempt(shop, step).await || !is_done(shop, step, balance).await {
                    refused.push(step);
                }
                accept_writes(shop.world(), table).await;
                let mut attempts = 0;
                while !(attempt(shop, step).await && is_done(shop, step, balance).await) {
                    attempts += 1;
                    let found = shop.balance().await;
                    assert!(attempts < 5, "{table} {step:?}: {found} of {balance}\n{:#?}", shop.rows().await);
                    shop.pass_ms(40 * MINUTE_MS);
                }
                shop.check().await;
            }
            assert!(!refused.is_empty(), "{table}: nothing writes to it");
            assert_eq!(shop.rows().await.len(), 2, "{table}");
            assert_eq!((shop.stripe.charges().len(), shop.stripe.all("checkout.session").len()), (2, 1));
            // Payments of 20 + 42, and refunds of 3 and 5.
            assert_eq!(shop.stripe.balance(), 5_400, "{table}");
            assert_eq!(
                shop.credits().await,
                ["purchase 0 of 20", "purchase 0 of 42", "purchase 42 of 42"],
                "{table}"
            );
        });
    }
}

/// Prepares a step: does everything that happens outside the service.
async fn prepare(shop: &mut Shop<'_>, step: Step) {
    match step {
        Step::Paid => {
            let session_id = shop.rows().await[0].session_id.clone().unwrap();
            shop.stripe.visit(&session_id, &Card::visa()).unwrap();
        }
        // 4,800,000 x 0.0000025 = 12.
        Step::Charged => shop.books.use_today("chat-a", 4_800_000, 0).await,
        Step::RefundedAtStripe => drop(shop.stripe.refund_by_hand(&intent(shop, 2_000).await, 300)),
        Step::Disputed => drop(shop.stripe.dispute(&intent(shop, 4_200).await, 4_200)),
        Step::Won => {
            let dispute = shop.stripe.all("dispute").remove(0);
            shop.stripe.close_dispute(dispute["id"].as_str().unwrap(), true);
        }
        Step::Begin | Step::TopUpSet | Step::Refunded | Step::CardRemoved => {}
    }
}

/// Returns the id of the payment intent with this amount, in cents.
async fn intent(shop: &Shop<'_>, amount_minor: i64) -> String {
    let rows = shop.rows().await;
    rows.into_iter().find(|row| row.amount_minor == amount_minor).unwrap().intent_id.unwrap()
}

/// Tries a step. Returns `false` if any part of it has failed. The next attempt repeats everything that
/// failed.
async fn attempt(shop: &Shop<'_>, step: Step) -> bool {
    let token = shop.token().await;
    let world = shop.world();
    let is_asked = match step {
        Step::Begin => {
            let call = world.post(&shop.path("payments"), &json!({"amount": 20, "save_card": true}));
            succeeds(call.bearer(&token).header("idempotency-key", "one")).await
        }
        Step::TopUpSet => {
            let body = json!({"enabled": true, "threshold": 10, "restore_to": 50});
            let call = world.call(Method::PUT, &shop.path("auto-top-up")).json(&body);
            succeeds(call.bearer(&token)).await
        }
        Step::CardRemoved if shop.count(SAVED_CARDS).await > 0 => {
            succeeds(world.call(Method::DELETE, &shop.path("payment-method")).bearer(&token)).await
        }
        Step::Refunded if shop.count("SELECT COUNT(*) FROM payment_refunds").await < 2 => {
            let id = shop.rows().await.iter().find(|row| row.amount_minor == 2_000).unwrap().id;
            refunds::refund(&world.app.payments, id, None, &Trail::operator()).await.is_ok()
        }
        _ => true,
    };
    let mut is_heard = true;
    for event in shop.stripe.undelivered() {
        is_heard &= shop.send(event["id"].as_str().unwrap()).await.status == 200;
    }
    if is_heard {
        shop.stripe.drop_events();
    }
    let is_worked = jobs::run_due(&world.app.payments).await.is_ok();
    shop.pass_ms(1);
    is_asked && is_heard && is_worked
}

async fn succeeds(call: Call) -> bool {
    call.send().await.status == 200
}

/// Returns `true` if every part of a step is complete.
async fn is_done(shop: &Shop<'_>, step: Step, balance: &str) -> bool {
    let is_complete = match step {
        Step::Begin => shop.rows().await.iter().any(|row| row.checkout_url.is_some()),
        Step::CardRemoved => {
            let cards = shop.stripe.all("payment_method");
            cards.iter().all(|card| card["customer"].is_null())
                && shop.count("SELECT COUNT(*) FROM stripe_tasks").await == 0
        }
        _ => true,
    };
    let waiting = shop.count("SELECT COUNT(*) FROM stripe_events WHERE done_at IS NULL").await;
    is_complete && waiting == 0 && shop.balance().await == balance
}
