//! Automatic top-ups whose events arrive in every order, twice, late or never while attempts are counted.
//! Only the charge itself determines the time of the next attempt. All times are calculated by hand.

use futures_util::future::join;
use serde_json::json;
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS};

use support::shop::{Shop, with_configured_shop};
use support::stripe::cards::{Card, NO_FUNDS, Outcome};
use support::stripe::faults::Fault;
use support::{Database, on_each_database};

/// Turns off rate limits. Most stories last two days, and check every minute.
const UNLIMITED: (&str, &str) = ("TOLLKEEPER_LIMITS__ENABLED", "false");

/// Creates an organization with a balance of 20 and a saved card, whose balance is restored to 50 when it is
/// below 10. Returns the id of the card.
async fn open(shop: &Shop<'_>) -> String {
    shop.buy("20", true).await;
    shop.top_up(&json!({"enabled": true, "threshold": 10, "restore_to": 50})).await;
    let cards = shop.stripe.all("payment_method");
    cards.iter().find(|card| !card["customer"].is_null()).unwrap()["id"].as_str().unwrap().to_owned()
}

/// Returns the status and failure of the top-up.
async fn state(shop: &Shop<'_>) -> String {
    let row = shop.rows().await[1].clone();
    format!("{} {}", row.status.as_str(), row.failure_code.unwrap_or_default())
}

/// Returns the number of charges that were attempted for the top-up.
fn attempts(shop: &Shop<'_>) -> usize {
    shop.stripe.all("payment_intent").len() - 1
}

/// Returns the ids of the undelivered events, oldest first.
fn undelivered(shop: &Shop<'_>) -> Vec<String> {
    let events = shop.stripe.undelivered();
    events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

async fn send(shop: &Shop<'_>, ids: &[String]) {
    for id in ids {
        assert_eq!(shop.send(id).await.status, 200);
        // Each event is processed before the next one arrives.
        shop.work().await;
    }
}

/// The time at which the events of an attempt arrive.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Never,
    /// While the answer to the charge is pending.
    BeforeTheAnswer,
    /// After the answer, in one of the six orders of three events.
    After(usize),
    Twice,
    /// Twelve hours later.
    Late,
    /// After the events of the next attempt.
    AfterTheNext,
}

/// Returns the events in one of the six orders.
fn ordered(ids: &[String], number: usize) -> Vec<String> {
    let [a, b, c] = ids else { panic!("a declined attempt has three events: {ids:?}") };
    let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
    orders[number].iter().map(|id| (*id).clone()).collect()
}

/// Makes the next attempt, and delivers its events.
async fn attempt(shop: &Shop<'_>, arrival: Arrival, old: &mut Vec<String>) {
    shop.stripe.drop_events();
    match arrival {
        Arrival::BeforeTheAnswer => {
            shop.stripe.fail_next("POST", "/v1/payment_intents", Fault::Held);
            let charged = shop.work();
            let heard = async {
                shop.stripe.executed().await;
                for id in undelivered(shop) {
                    assert_eq!(shop.send(&id).await.status, 200);
                }
                shop.work().await;
                shop.stripe.release();
            };
            join(charged, heard).await;
        }
        _ => shop.work().await,
    }
    let ids = undelivered(shop);
    match arrival {
        Arrival::Never | Arrival::BeforeTheAnswer => {}
        Arrival::After(number) => send(shop, &ordered(&ids, number)).await,
        Arrival::Twice => {
            send(shop, &ids).await;
            send(shop, &ids).await;
        }
        Arrival::Late => {
            shop.pass_ms(12 * HOUR_MS);
            send(shop, &ids).await;
        }
        Arrival::AfterTheNext => {
            let before = std::mem::replace(old, ids.clone());
            send(shop, &ids).await;
            send(shop, &before).await;
        }
    }
}

#[on_each_database]
fn declined_charge_is_tried_once_a_day_however_its_events_arrive(database: Database) {
    let mut arrivals =
        vec![Arrival::Never, Arrival::BeforeTheAnswer, Arrival::Twice, Arrival::Late, Arrival::AfterTheNext];
    arrivals.extend((0..6).map(Arrival::After));
    for arrival in arrivals {
        with_configured_shop(database, &[UNLIMITED], async |shop| {
            let card = open(shop).await;
            shop.stripe.set_outcome(&card, NO_FUNDS);
            // 20 - 6,000,000 x 0.0000025 = 5.
            shop.books.use_today("chat-a", 6_000_000, 0).await;
            let mut old = Vec::new();
            for number in 1..=2 {
                let at = shop.world().clock.now();
                attempt(shop, arrival, &mut old).await;
                assert_eq!(attempts(shop), number, "{arrival:?}");
                assert_eq!(state(shop).await, "processing insufficient_funds", "{arrival:?}");
                // Nothing is attempted for 24 hours, not even after 5 minutes, when open payments are
                // checked.
                for ms in [MINUTE_MS, 5 * MINUTE_MS + 1_000, 11 * MINUTE_MS, HOUR_MS, 12 * HOUR_MS] {
                    let passed = shop.world().clock.now().unix_ms() - at.unix_ms();
                    shop.pass_ms(ms.max(passed) - passed);
                    shop.work().await;
                    assert_eq!(attempts(shop), number, "{arrival:?} after {ms} ms");
                }
                let passed = shop.world().clock.now().unix_ms() - at.unix_ms();
                shop.pass_ms(DAY_MS - MINUTE_MS - passed);
                shop.work().await;
                assert_eq!(attempts(shop), number, "{arrival:?} after 23:59");
                shop.pass_ms(2 * MINUTE_MS);
            }
            attempt(shop, arrival, &mut old).await;
            assert_eq!((attempts(shop), shop.stripe.charges().len()), (3, 1), "{arrival:?}");
            assert_eq!(state(shop).await, "failed insufficient_funds", "{arrival:?}");
            assert_eq!(shop.read_top_up().await["paused_reason"], "declined", "{arrival:?}");
        });
    }
}

#[on_each_database]
fn page_of_a_charge_to_be_confirmed_opens_at_once_however_its_events_arrive(database: Database) {
    for number in 0..6 {
        with_configured_shop(database, &[UNLIMITED], async |shop| {
            let card = open(shop).await;
            shop.stripe.set_outcome(&card, Outcome::AuthenticationRequired);
            shop.books.use_today("chat-a", 6_000_000, 0).await;
            shop.stripe.drop_events();
            shop.stripe.fail_next("POST", "/v1/checkout/sessions", Fault::ErrorBefore);
            shop.work().await;
            let ids = undelivered(shop);
            send(shop, &ordered(&ids, number)).await;
            // The first attempt to open the page has failed. It is repeated after a minute.
            shop.pass_ms(MINUTE_MS);
            shop.work().await;
            let row = shop.rows().await[1].clone();
            assert_eq!(row.status.as_str(), "action_required");
            assert!(row.checkout_url.is_some(), "order {number}");
            shop.stripe.visit(row.session_id.as_deref().unwrap(), &Card::visa()).unwrap();
            shop.hear().await;
            assert_eq!((state(shop).await.as_str(), shop.balance().await.as_str()), ("succeeded ", "50"));
        });
    }
}
