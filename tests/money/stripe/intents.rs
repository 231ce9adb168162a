//! Off-session charges, and idempotency keys.

use tollkeeper::clock::{DAY_MS, SECOND_MS};
use tollkeeper::stripe::{Created, Error, PaymentIntentStatus, Reason};

use super::{Account, START, key};
use support::stripe::cards::{Card, NO_FUNDS, Outcome, STOLEN};

#[tokio::test]
async fn saved_card_is_charged() {
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    account.new_events();
    let intent =
        account.client.charge_off_session(&account.new_charge(&method, 1_000), &key("pay_1")).await.unwrap();
    assert_eq!(
        (intent.status, intent.amount, intent.amount_received),
        (PaymentIntentStatus::Succeeded, 1_000, 1_000)
    );
    assert_eq!(intent.latest_charge.as_ref().unwrap().object().unwrap().amount, 1_000);
    assert_eq!((intent.created, intent.metadata["payment_id"].as_str()), (START, "pay_1"));
    assert_eq!(
        account.new_events(),
        ["payment_intent.created", "charge.succeeded", "payment_intent.succeeded"]
    );
    assert_eq!(account.client.payment_intent(&intent.id).await.unwrap(), intent);
    let charge = account.client.charge(intent.latest_charge.as_ref().unwrap().id()).await.unwrap();
    assert_eq!(charge.payment_intent.unwrap().id(), intent.id);
    // A payment that has succeeded can't be canceled.
    let error = account.client.cancel_payment_intent(&intent.id, &key("cancel_1")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().code.as_deref(), Some("payment_intent_unexpected_state"));
}

#[tokio::test]
async fn refusals_of_banks_have_their_reasons() {
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    let cases = [
        (STOLEN, "card_declined", "stolen_card", Some("do_not_try_again")),
        (NO_FUNDS, "card_declined", "insufficient_funds", Some("try_again_later")),
        (
            Outcome::Declined { decline_code: "lost_card", advice_code: None },
            "card_declined",
            "lost_card",
            None,
        ),
        (Outcome::AuthenticationRequired, "authentication_required", "authentication_required", None),
    ];
    for (index, (outcome, code, decline_code, advice_code)) in cases.into_iter().enumerate() {
        account.stripe.set_outcome(&method, outcome);
        account.new_events();
        let new = account.new_charge(&method, 1_000);
        let error = account.client.charge_off_session(&new, &key(&format!("pay_{index}"))).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)) && !error.is_open());
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.status, refusal.kind.as_str()), (402, "card_error"));
        assert_eq!(
            (refusal.code.as_deref(), refusal.decline_code.as_deref()),
            (Some(code), Some(decline_code))
        );
        assert_eq!(refusal.advice_code.as_deref(), advice_code);
        let intent = account.client.payment_intent(refusal.payment_intent.as_deref().unwrap()).await.unwrap();
        assert_eq!((intent.status, intent.amount_received), (PaymentIntentStatus::RequiresPaymentMethod, 0));
        assert_eq!(intent.last_payment_error.unwrap().decline_code.as_deref(), Some(decline_code));
        assert_eq!(intent.latest_charge.unwrap().id(), refusal.charge.as_deref().unwrap());
        assert_eq!(
            account.new_events(),
            ["payment_intent.created", "charge.failed", "payment_intent.payment_failed"]
        );
        let canceled =
            account.client.cancel_payment_intent(&intent.id, &key(&format!("cancel_{index}"))).await;
        assert_eq!(canceled.unwrap().status, PaymentIntentStatus::Canceled);
    }
    assert!(account.stripe.charges().is_empty());
}

#[tokio::test]
async fn same_key_charges_once() {
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    let new = account.new_charge(&method, 1_000);
    let first = account.client.charge_off_session(&new, &key("pay_1")).await.unwrap();
    account.stripe.set_outcome(&method, STOLEN);
    let again = account.client.charge_off_session(&new, &key("pay_1")).await.unwrap();
    assert_eq!((first, account.stripe.charges().len()), (again, 1));
    // A refusal is also repeated for the same key, even if the card would succeed now.
    let error = account.client.charge_off_session(&new, &key("pay_2")).await.unwrap_err();
    account.stripe.set_outcome(&method, Outcome::Succeeds);
    let same = account.client.charge_off_session(&new, &key("pay_2")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().payment_intent, same.refusal().unwrap().payment_intent);
    // Stripe refuses another amount with the same key.
    let other = account.new_charge(&method, 1_001);
    let error = account.client.charge_off_session(&other, &key("pay_1")).await.unwrap_err();
    assert_eq!(
        (error.refusal().unwrap().status, error.refusal().unwrap().kind.as_str()),
        (400, "idempotency_error")
    );
    assert_eq!(account.stripe.charges().len(), 1);
    // After a day Stripe may have forgotten the key.
    account.clock.advance_ms(DAY_MS);
    account.client.charge_off_session(&new, &key("pay_1")).await.unwrap();
    assert_eq!(account.stripe.charges().len(), 2);
}

#[tokio::test]
async fn mistakes_in_requests_are_refused_and_not_kept() {
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    let cases = [
        (49, "USD", "amount_too_small", "amount"),
        (0, "USD", "parameter_invalid_integer", "amount"),
        (-5, "USD", "parameter_invalid_integer", "amount"),
        (1_005, "KWD", "parameter_invalid_integer", "amount"),
        (1_050, "ISK", "parameter_invalid_integer", "amount"),
        (100_000_000, "USD", "amount_too_large", "amount"),
    ];
    for (amount, currency, code, param) in cases {
        let mut new = account.new_charge(&method, amount);
        new.currency = currency;
        let error = account.client.charge_off_session(&new, &key("pay_1")).await.unwrap_err();
        let refusal = error.refusal().unwrap();
        assert_eq!(
            (refusal.code.as_deref(), refusal.param.as_deref()),
            (Some(code), Some(param)),
            "{amount} {currency}"
        );
    }
    let mut new = account.new_charge("pm_none", 1_000);
    let error = account.client.charge_off_session(&new, &key("pay_1")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().code.as_deref(), Some("resource_missing"));
    assert!(!error.is_missing(), "the payment method is missing, not the requested object");
    new.payment_method = &method;
    account.client.charge_off_session(&new, &key("pay_1")).await.unwrap();
    assert_eq!(account.stripe.charges().len(), 1);
    for id in ["pi_none", &method] {
        assert!(account.client.payment_intent(id).await.unwrap_err().is_missing(), "{id}");
    }
}

#[tokio::test]
async fn wrong_secret_key_is_a_mistake_of_the_configuration() {
    let account = Account::start().await;
    let url = tollkeeper::kernel::urls::BaseUrl::parse(&account.stripe.url).unwrap();
    let secret = tollkeeper::kernel::secrets::Secret::new("sk_test_wrong");
    let settings = tollkeeper::stripe::Settings::new(secret, Some(url)).unwrap();
    let client = tollkeeper::stripe::Client::new(settings).unwrap();
    let error = client.customer(&account.customer.id).await.unwrap_err();
    assert!(matches!(&error, Error::Misconfigured(refusal) if refusal.status == 401));
    assert!(!error.to_string().contains("rong"), "{error}");
    // No server is listening.
    let Account { stripe, client, customer, .. } = account;
    drop(stripe);
    tokio::task::yield_now().await;
    let error = client.customer(&customer.id).await.unwrap_err();
    assert_eq!(error, Error::Unknown { reason: Reason::NotConnected, should_retry: None, request_id: None });
}

#[tokio::test]
async fn payments_are_listed_by_time_and_page() {
    let account = Account::start().await;
    let method = account.save(&Card::visa(), "setup_1").await;
    let mut ids = Vec::new();
    for index in 0..103 {
        let new = account.new_charge(&method, 100 + index);
        let intent = account.client.charge_off_session(&new, &key(&format!("pay_{index}"))).await.unwrap();
        ids.insert(0, intent.id);
        account.clock.advance_ms(SECOND_MS);
    }
    let mut created = Created { from: Some(START + 1), until: Some(START + 102), after: None };
    let first = account.client.payment_intents(&created).await.unwrap();
    assert_eq!((first.data.len(), first.has_more), (100, true));
    assert!(first.data.iter().all(|intent| intent.latest_charge.as_ref().unwrap().object().is_some()));
    created.after = Some(&first.data[99].id);
    let second = account.client.payment_intents(&created).await.unwrap();
    assert!(!second.has_more);
    let found: Vec<_> = first.data.iter().chain(&second.data).map(|intent| intent.id.clone()).collect();
    // The newest and the oldest of the 103 payments are outside the range.
    assert_eq!(found, ids[1..102]);
    let of = account.client.payment_intents_of(&account.customer.id, &Created::default()).await.unwrap();
    assert_eq!((of.data.len(), of.has_more), (100, true));
    assert!(
        account.client.payment_intents_of("cus_other", &Created::default()).await.unwrap().data.is_empty()
    );
}

#[tokio::test]
async fn objects_can_be_other_than_they_should_be() {
    let account = Account::start().await;
    let intent = account.pay(1_000, "pay_1").await;
    account.stripe.edit(&intent.id, |object| {
        object["amount_received"] = 999.into();
        object["livemode"] = true.into();
        object["status"] = "a_new_one".into();
        object["metadata"] = serde_json::Value::Null;
    });
    let read = account.client.payment_intent(&intent.id).await.unwrap();
    assert_eq!((read.status, read.amount_received, read.livemode), (PaymentIntentStatus::Other, 999, true));
    assert!(read.metadata.is_empty());
    // An amount with a fraction isn't rounded.
    account.stripe.edit(&intent.id, |object| object["amount_received"] = 999.5.into());
    let error = account.client.payment_intent(&intent.id).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { status: 200, .. }), "{error:?}");
    assert_eq!(account.stripe.object(&intent.id)["amount"], 1_000);
    // A key that Stripe has forgotten counts as a new key.
    account.stripe.forget_keys();
    account.pay(1_000, "pay_1").await;
    assert_eq!(account.stripe.charges().len(), 2);
}
