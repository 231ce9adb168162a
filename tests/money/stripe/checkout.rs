//! Checkout sessions.

use tollkeeper::clock::{DAY_MS, MINUTE_MS};
use tollkeeper::stripe::{
    ChargeStatus, CheckoutMode, CheckoutPaymentStatus, CheckoutStatus, PaymentIntentStatus,
    SetupIntentStatus, TotalDetails,
};

use super::{Account, START, key};
use support::stripe::cards::{Card, Outcome, STOLEN};

#[tokio::test]
async fn customer_pays_and_the_card_is_saved() {
    let account = Account::start().await;
    let made = account.client.create_payment_session(&account.new_session(), &key("pay_1")).await.unwrap();
    assert_eq!((made.mode, made.status), (CheckoutMode::Payment, Some(CheckoutStatus::Open)));
    assert_eq!((made.payment_status, made.payment_intent), (CheckoutPaymentStatus::Unpaid, None));
    assert_eq!((made.created, made.expires_at, made.livemode), (START, START + 86_400, false));
    assert_eq!((made.amount_subtotal, made.amount_total), (Some(2_500), Some(2_500)));
    assert!(made.url.unwrap().starts_with(&account.stripe.url));
    assert_eq!(
        (made.customer.unwrap().id(), made.metadata["payment_id"].as_str()),
        (&*account.customer.id, "pay_1")
    );

    account.stripe.visit(&made.id, &Card::visa()).unwrap();
    let paid = account.client.checkout_session(&made.id).await.unwrap();
    assert_eq!(
        (paid.status, paid.payment_status),
        (Some(CheckoutStatus::Complete), CheckoutPaymentStatus::Paid)
    );
    assert_eq!((paid.url, paid.client_reference_id.as_deref()), (None, Some("pay_1")));
    let intent = paid.payment_intent.unwrap().object().unwrap().clone();
    assert_eq!((intent.status, intent.amount_received), (PaymentIntentStatus::Succeeded, 2_500));
    assert_eq!((intent.currency.as_str(), intent.metadata["payment_id"].as_str()), ("usd", "pay_1"));
    let charge = intent.latest_charge.unwrap().object().unwrap().clone();
    assert_eq!((charge.status, charge.paid, charge.amount_refunded), (ChargeStatus::Succeeded, true, 0));
    let method = intent.payment_method.unwrap().object().unwrap().clone();
    let card = method.card.as_ref().unwrap();
    assert_eq!((card.brand.as_str(), card.last4.as_str()), ("visa", "4242"));
    assert_eq!((card.exp_month, card.exp_year), (8, 2031));
    assert_eq!(method.customer.as_ref().unwrap().id(), account.customer.id);

    let cards = account.client.cards_of(&account.customer.id).await.unwrap();
    assert_eq!(cards.data.iter().map(|card| card.id.as_str()).collect::<Vec<_>>(), [method.id.as_str()]);
    let expected = [
        "customer.created",
        "payment_intent.created",
        "payment_method.attached",
        "charge.succeeded",
        "payment_intent.succeeded",
        "checkout.session.completed",
    ];
    assert_eq!(account.new_events(), expected);
    // The page is used up.
    assert!(account.stripe.visit(&made.id, &Card::visa()).is_err());
    assert_eq!(account.stripe.charges().len(), 1);
}

#[tokio::test]
async fn card_that_is_not_to_be_saved_has_no_customer() {
    let account = Account::start().await;
    let mut new = account.new_session();
    new.save_card = false;
    let made = account.client.create_payment_session(&new, &key("pay_1")).await.unwrap();
    account.stripe.visit(&made.id, &Card::visa()).unwrap();
    assert!(account.client.cards_of(&account.customer.id).await.unwrap().data.is_empty());
    let paid = account.client.checkout_session(&made.id).await.unwrap();
    let method = paid.payment_intent.unwrap().object().unwrap().payment_method.clone().unwrap();
    let error = account.client.charge_off_session(&account.new_charge(method.id(), 100), &key("pay_2")).await;
    assert_eq!(
        error.unwrap_err().refusal().unwrap().code.as_deref(),
        Some("payment_method_unexpected_state")
    );
}

#[tokio::test]
async fn tax_is_added_and_named() {
    let account = Account::start().await;
    account.stripe.set_account(true, 19);
    let mut new = account.new_session();
    (new.automatic_tax, new.tax_id_collection, new.invoice) = (true, true, true);
    let made = account.client.create_payment_session(&new, &key("pay_1")).await.unwrap();
    assert!(made.livemode);
    // Before the page asks for the address, the tax is unknown.
    assert_eq!((made.amount_subtotal, made.amount_total), (Some(2_500), Some(2_500)));
    account.stripe.visit(&made.id, &Card::visa()).unwrap();
    let paid = account.client.checkout_session(&made.id).await.unwrap();
    // 19% of 25.00 is 4.75.
    assert_eq!((paid.amount_subtotal, paid.amount_total), (Some(2_500), Some(2_975)));
    assert_eq!(paid.total_details, Some(TotalDetails { amount_tax: 475, amount_discount: 0 }));
    let intent = paid.payment_intent.as_ref().unwrap().id();
    let found = account.client.checkout_session_of(intent).await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.amount_total), (made.id.as_str(), Some(2_975)));
    assert_eq!(account.client.checkout_session_of("pi_none").await.unwrap(), None);
    let invoice = account.client.invoice(paid.invoice.as_ref().unwrap().id()).await.unwrap();
    assert!(invoice.hosted_invoice_url.unwrap().starts_with(&account.stripe.url));
    // The address is known now, so the tax is too.
    let next = account.client.create_payment_session(&new, &key("pay_2")).await.unwrap();
    assert_eq!(next.amount_total, Some(2_975));
    assert_eq!(paid.payment_intent.unwrap().object().unwrap().amount_received, 2_975);
    assert!(paid.invoice.unwrap().id().starts_with("in_"));
}

#[tokio::test]
async fn declined_card_leaves_the_page_open() {
    let account = Account::start().await;
    let made = account.client.create_payment_session(&account.new_session(), &key("pay_1")).await.unwrap();
    let problem = account.stripe.visit(&made.id, &Card::numbered("4000000000009979")).unwrap_err();
    assert_eq!((problem.status, problem.error["decline_code"].as_str()), (402, Some("stolen_card")));
    let session = account.client.checkout_session(&made.id).await.unwrap();
    assert_eq!(
        (session.status, session.payment_status),
        (Some(CheckoutStatus::Open), CheckoutPaymentStatus::Unpaid)
    );
    let intent = session.payment_intent.unwrap().object().unwrap().clone();
    assert_eq!(intent.status, PaymentIntentStatus::RequiresPaymentMethod);
    let why = intent.last_payment_error.unwrap();
    assert_eq!(
        (why.code.as_deref(), why.decline_code.as_deref()),
        (Some("card_declined"), Some("stolen_card"))
    );
    assert_eq!(why.advice_code.as_deref(), Some("do_not_try_again"));
    // The customer uses another card for the same payment.
    account.stripe.visit(&made.id, &Card::visa()).unwrap();
    let session = account.client.checkout_session(&made.id).await.unwrap();
    assert_eq!(session.payment_intent.unwrap().id(), intent.id);
    assert_eq!((account.stripe.all("charge").len(), account.stripe.charges().len()), (2, 1));
}

#[tokio::test]
async fn payment_on_its_way_is_settled_later() {
    for succeeds in [true, false] {
        let account = Account::start().await;
        let made =
            account.client.create_payment_session(&account.new_session(), &key("pay_1")).await.unwrap();
        account.stripe.visit(&made.id, &Card { now: Outcome::Processing, ..Card::visa() }).unwrap();
        let session = account.client.checkout_session(&made.id).await.unwrap();
        assert_eq!(session.status, Some(CheckoutStatus::Complete));
        assert_eq!(session.payment_status, CheckoutPaymentStatus::Unpaid);
        let intent = session.payment_intent.unwrap().object().unwrap().clone();
        assert_eq!((intent.status, intent.amount_received), (PaymentIntentStatus::Processing, 0));
        account.new_events();
        account.stripe.settle(&intent.id, succeeds);
        let session = account.client.checkout_session(&made.id).await.unwrap();
        let intent = session.payment_intent.unwrap().object().unwrap().clone();
        let (payment_status, status, events) = if succeeds {
            let events =
                ["charge.succeeded", "payment_intent.succeeded", "checkout.session.async_payment_succeeded"];
            (CheckoutPaymentStatus::Paid, PaymentIntentStatus::Succeeded, events)
        } else {
            let events =
                ["charge.failed", "payment_intent.payment_failed", "checkout.session.async_payment_failed"];
            (CheckoutPaymentStatus::Unpaid, PaymentIntentStatus::RequiresPaymentMethod, events)
        };
        assert_eq!((session.payment_status, intent.status), (payment_status, status));
        assert_eq!(account.new_events(), events);
    }
}

#[tokio::test]
async fn sessions_expire_by_time_and_by_call() {
    let account = Account::start().await;
    let mut new = account.new_session();
    new.expires_at = Some(START + 1_800);
    let first = account.client.create_payment_session(&new, &key("pay_1")).await.unwrap();
    let second = account.client.create_payment_session(&account.new_session(), &key("pay_2")).await.unwrap();
    account.new_events();
    let expired = account.client.expire_checkout_session(&second.id, &key("expire_2")).await.unwrap();
    assert_eq!((expired.status, expired.url), (Some(CheckoutStatus::Expired), None));
    let error = account.client.expire_checkout_session(&second.id, &key("expire_3")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().status, 400);
    account.clock.advance_ms(30 * MINUTE_MS - 1);
    let open = account.client.checkout_session(&first.id).await.unwrap();
    assert_eq!(open.status, Some(CheckoutStatus::Open));
    account.clock.advance_ms(1);
    assert!(account.stripe.visit(&first.id, &Card::visa()).is_err());
    let expired = account.client.checkout_session(&first.id).await.unwrap();
    assert_eq!(expired.status, Some(CheckoutStatus::Expired));
    assert_eq!(account.new_events(), ["checkout.session.expired", "checkout.session.expired"]);
    assert!(account.stripe.charges().is_empty());
    for expires_at in [START + 1_800 - 1, START + 1_800 + DAY_MS / 1_000 + 1] {
        new.expires_at = Some(expires_at);
        let error = account.client.create_payment_session(&new, &key("pay_3")).await.unwrap_err();
        assert_eq!(error.refusal().unwrap().param.as_deref(), Some("expires_at"));
    }
}

#[tokio::test]
async fn card_is_saved_without_a_payment() {
    let account = Account::start().await;
    let made = account.client.create_setup_session(&account.new_setup(), &key("setup_1")).await.unwrap();
    assert_eq!(
        (made.mode, made.payment_status),
        (CheckoutMode::Setup, CheckoutPaymentStatus::NoPaymentRequired)
    );
    assert_eq!((made.amount_total, made.currency), (None, None));
    let problem = account.stripe.visit(&made.id, &Card { now: STOLEN, ..Card::visa() }).unwrap_err();
    assert_eq!(problem.status, 402);
    account.stripe.visit(&made.id, &Card::numbered("5555555555554444")).unwrap();
    let session = account.client.checkout_session(&made.id).await.unwrap();
    assert_eq!(session.status, Some(CheckoutStatus::Complete));
    let intent = session.setup_intent.unwrap().object().unwrap().clone();
    assert_eq!(
        (intent.status, intent.metadata["organization_id"].as_str()),
        (SetupIntentStatus::Succeeded, "org_1")
    );
    let method = intent.payment_method.unwrap().object().unwrap().clone();
    assert_eq!(method.card.as_ref().unwrap().brand, "mastercard");
    assert!(account.stripe.charges().is_empty());

    assert_eq!(account.client.payment_method(&method.id).await.unwrap(), method);
    let detached = account.client.detach_payment_method(&method.id, &key("detach_1")).await.unwrap();
    assert_eq!(detached.customer, None);
    assert!(account.client.cards_of(&account.customer.id).await.unwrap().data.is_empty());
    let error = account.client.charge_off_session(&account.new_charge(&method.id, 100), &key("pay_1")).await;
    assert_eq!(
        error.unwrap_err().refusal().unwrap().code.as_deref(),
        Some("payment_method_unexpected_state")
    );
}
