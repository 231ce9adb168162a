//! Requests and answers that are lost.

use std::time::Duration;

use tollkeeper::stripe::{
    Client, Created, Error, NewPaymentIntent, PaymentIntent, PaymentIntentStatus, Reason,
};

use super::{Account, key};
use support::chance::first_seed;
use support::stripe::cards::Card;
use support::stripe::faults::Fault;

const INTENTS: &str = "/v1/payment_intents";

#[tokio::test]
async fn each_fault_has_its_reason() {
    let cases = [
        (Fault::LostRequest, Reason::CutOff, 0),
        (Fault::LostAnswer, Reason::CutOff, 1),
        (Fault::HalfAnswer, Reason::CutOff, 1),
        (Fault::Silence, Reason::Timeout, 1),
        (Fault::Delay(Duration::from_secs(2)), Reason::Timeout, 0),
        (Fault::ErrorBefore, Reason::Status(500), 0),
        (Fault::ErrorAfter, Reason::Status(500), 1),
        (Fault::TooMany, Reason::Status(429), 0),
    ];
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    let client = account.stripe.client_with_timeout(Duration::from_millis(700));
    for (index, (fault, expected, charged)) in cases.into_iter().enumerate() {
        let (name, before) = (format!("pay_{index}"), account.stripe.charges().len());
        account.stripe.fail_next("POST", INTENTS, fault);
        let new = account.new_charge(&method, 1_000);
        let error = client.charge_off_session(&new, &key(&name)).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { reason, .. } if reason == expected), "{fault:?}: {error:?}");
        assert!(error.is_open(), "{fault:?}");
        assert_eq!(account.stripe.charges().len() - before, charged, "{fault:?}");
        let again = client.charge_off_session(&new, &key(&name)).await;
        match fault {
            // Stripe stores the answer, even if it is an error.
            Fault::ErrorAfter => assert_eq!(status(&again.unwrap_err()), Some(500)),
            // The first request is still in progress.
            Fault::Delay(_) => {
                assert_eq!(status(&again.unwrap_err()), Some(409));
                let patient = account.stripe.client();
                let through = async || {
                    while patient.charge_off_session(&new, &key(&name)).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(60), through()).await.unwrap();
            }
            _ => assert_eq!(again.unwrap().status, PaymentIntentStatus::Succeeded, "{fault:?}"),
        }
        assert_eq!(account.stripe.charges().len() - before, 1, "{fault:?}");
    }
    // A request with a key that arrives twice counts once.
    let before = account.stripe.charges().len();
    account.stripe.fail_next("POST", INTENTS, Fault::Twice);
    client.charge_off_session(&account.new_charge(&method, 1_000), &key("twice")).await.unwrap();
    assert_eq!(account.stripe.charges().len() - before, 1);
}

/// Returns the status of an error that leaves the outcome unknown.
fn status(error: &Error) -> Option<u16> {
    if let Error::Unknown { reason: Reason::Status(status), .. } = error { Some(*status) } else { None }
}

#[tokio::test]
async fn every_payment_is_charged_once_through_a_network_that_fails() {
    for seed in first_seed()..first_seed() + 4 {
        let account = Account::start().await;
        let method = account.save(&Card::visa(), "setup_1").await;
        account.stripe.fail_at_random(seed, 60);
        let client = account.stripe.client();
        for index in 0..25 {
            let id = format!("pay_{index}");
            let mut new = account.new_charge(&method, 1_000 + index);
            new.metadata = [("payment_id".to_owned(), id.clone())].into();
            let intent = settle(&client, &new, &id, seed).await;
            assert_eq!(
                (intent.status, intent.amount_received),
                (PaymentIntentStatus::Succeeded, 1_000 + index)
            );
        }
        account.stripe.heal();
        let charges = account.stripe.charges();
        let amounts: Vec<_> = charges.iter().map(|charge| charge["amount"].as_i64().unwrap()).collect();
        assert_eq!(amounts, (1_000..1_025).collect::<Vec<_>>(), "seed {seed}");
        let faults = account.stripe.exchanges().iter().filter(|exchange| exchange.fault.is_some()).count();
        assert!(faults > 25, "seed {seed}: {faults}");
    }
}

/// Repeats a charge with one key until its outcome is known. After a few errors it also searches the
/// payments, because Stripe may have stored an error for the key.
async fn settle(client: &Client, new: &NewPaymentIntent<'_>, id: &str, seed: u64) -> PaymentIntent {
    for tried in 0..200 {
        match client.charge_off_session(new, &key(id)).await {
            Ok(intent) => return intent,
            Err(error) => assert!(error.is_open(), "seed {seed}: {error}"),
        }
        if tried > 3
            && let Ok(page) = client.payment_intents(&Created::default()).await
        {
            let is_it =
                |intent: &PaymentIntent| intent.metadata.get("payment_id").is_some_and(|other| other == id);
            if let Some(found) = page.data.into_iter().find(is_it) {
                return found;
            }
        }
    }
    panic!("seed {seed}: {id} has no end");
}
