//! Checks the requests of our client, and the objects of the fake account in all of their states, against the
//! types of Stripe's library for Node.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollkeeper::stripe::{
    API_VERSION, Created, NewCalculation, NewPaymentIntent, NewRefund, NewSetupSession,
};

use super::{Account, START, key};
use support::node;
use support::process::run_to_end;
use support::stripe::Exchange;
use support::stripe::cards::{Card, NO_FUNDS, Outcome, STOLEN};
use support::stripe::params::Params;
use support::stripe::refunds::RefundOutcome;
use support::world::Folder;

/// The states that the objects must go through.
const STATES: [&str; 25] = [
    "charge failed",
    "charge pending",
    "charge succeeded",
    "checkout.session complete",
    "checkout.session expired",
    "checkout.session open",
    "dispute lost",
    "dispute needs_response",
    "dispute warning_closed",
    "dispute warning_needs_response",
    "dispute won",
    "payment_intent canceled",
    "payment_intent processing",
    "payment_intent requires_payment_method",
    "payment_intent succeeded",
    "refund failed",
    "refund pending",
    "refund succeeded",
    "setup_intent requires_payment_method",
    "setup_intent succeeded",
    "error 400",
    "error 401",
    "error 402",
    "error 404",
    "error 500",
];

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_objects_have_the_types_of_the_official_library() {
    let Some(mut command) = node::node("typescript", "types of Stripe's library for Node") else { return };
    if node::node("stripe", "types of Stripe's library for Node").is_none() {
        return;
    }
    let account = Account::start().await;
    go_through_all_states(&account).await;
    let exchanges: Vec<_> = account.stripe.exchanges().iter().map(exchange).collect();
    let kinds = [
        "customer",
        "checkout.session",
        "payment_intent",
        "charge",
        "setup_intent",
        "payment_method",
        "refund",
        "dispute",
        "balance_transaction",
        "event",
        "invoice",
        "tax.calculation",
    ];
    let objects: Vec<_> = kinds.iter().flat_map(|kind| account.stripe.all(kind)).collect();
    let states = states(&exchanges, &account.stripe.events());
    let missing: Vec<_> = STATES.iter().filter(|state| !states.contains(**state)).collect();
    assert!(missing.is_empty(), "{missing:?} of {states:?}");

    let folder = Folder::new();
    let file = folder.0.join("held.json");
    let input = json!({"exchanges": exchanges, "objects": objects, "wrong": wrong(&account)});
    std::fs::write(&file, input.to_string()).unwrap();
    command.arg("tests/stripe/types.js").arg(&file);
    let ended = tokio::task::spawn_blocking(move || run_to_end(command)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
    // The types belong to our version of the API, or to a version that only adds to it.
    let major = |version: &str| version.split_once('.').unwrap().1.to_owned();
    assert_eq!(major(ended.stdout.trim()), major(API_VERSION));
}

async fn go_through_all_states(account: &Account) {
    let (client, stripe) = (&account.client, &account.stripe);
    let mut new = account.new_session();
    (new.automatic_tax, new.tax_id_collection, new.invoice) = (true, true, true);
    (new.tax_code, new.expires_at) = (Some("txcd_10000000"), Some(START + 3_600));
    let paid = client.create_payment_session(&new, &key("pay_1")).await.unwrap();
    stripe.visit(&paid.id, &Card { now: STOLEN, ..Card::visa() }).unwrap_err();
    client.checkout_session(&paid.id).await.unwrap();
    stripe.visit(&paid.id, &Card::visa()).unwrap();
    let paid = client.checkout_session(&paid.id).await.unwrap();
    let intent = paid.payment_intent.unwrap().id().to_owned();
    for (name, succeeds) in [("pay_2", true), ("pay_3", false)] {
        let session = client.create_payment_session(&account.new_session(), &key(name)).await.unwrap();
        stripe.visit(&session.id, &Card { now: Outcome::Processing, ..Card::visa() }).unwrap();
        let session = client.checkout_session(&session.id).await.unwrap();
        stripe.settle(session.payment_intent.unwrap().id(), succeeds);
        client.checkout_session(&session.id).await.unwrap();
    }
    for name in ["pay_4", "pay_5"] {
        let session = client.create_payment_session(&account.new_session(), &key(name)).await.unwrap();
        if name == "pay_5" {
            stripe.visit(&session.id, &Card { now: NO_FUNDS, ..Card::visa() }).unwrap_err();
        }
        client.expire_checkout_session(&session.id, &key(&format!("{name}:expire"))).await.unwrap();
    }
    let setup = client.create_setup_session(&account.new_setup(), &key("setup_1")).await.unwrap();
    stripe.visit(&setup.id, &Card { now: STOLEN, ..Card::visa() }).unwrap_err();
    client.checkout_session(&setup.id).await.unwrap();
    let method = account.save(&Card::numbered("5555555555554444"), "setup_2").await;
    let outcomes = [Outcome::Succeeds, STOLEN, Outcome::AuthenticationRequired, Outcome::Processing];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        stripe.set_outcome(&method, outcome);
        let name = format!("away_{index}");
        let charged = client.charge_off_session(&account.new_charge(&method, 1_000), &key(&name)).await;
        if let Err(error) = charged {
            let id = error.refusal().unwrap().payment_intent.clone().unwrap();
            client.payment_intent(&id).await.unwrap();
            client.cancel_payment_intent(&id, &key(&format!("{name}:cancel"))).await.unwrap();
        }
    }
    charge_with_tax(account, &method, &intent).await;
    refund_and_dispute(account, &intent).await;
    for error in [
        client.charge_off_session(&account.new_charge(&method, 10), &key("small")).await.unwrap_err(),
        client.charge_off_session(&account.new_charge(&method, 999), &key("away_0")).await.unwrap_err(),
        client.expire_checkout_session(&paid.id, &key("late")).await.unwrap_err(),
        client.payment_intent("pi_none").await.unwrap_err(),
    ] {
        error.refusal().unwrap();
    }
    stripe.fail_next("GET", "/v1/refunds", support::stripe::faults::Fault::ErrorBefore);
    client.refunds(None, &Created::default()).await.unwrap_err();
    let wrong = tollkeeper::kernel::secrets::Secret::new("sk_test_wrong");
    let url = tollkeeper::kernel::urls::BaseUrl::parse(&stripe.url);
    let settings = tollkeeper::stripe::Settings::new(wrong, url).unwrap();
    tollkeeper::stripe::Client::new(settings).unwrap().payment_intent(&intent).await.unwrap_err();
    read_everything(account, &method).await;
}

/// Charges a card with a tax, and requests a tax calculation that fails.
async fn charge_with_tax(account: &Account, method: &str, paid: &str) {
    let (client, stripe) = (&account.client, &account.stripe);
    stripe.set_outcome(method, Outcome::Succeeds);
    let new_tax = account.new_calculation(1_000);
    let coded = NewCalculation { tax_code: Some("txcd_10000000"), ..new_tax };
    let calculation = client.calculate_tax(&coded, &key("tax_1")).await.unwrap();
    let charge = account.new_charge(method, calculation.amount_total);
    let charge = NewPaymentIntent { tax_calculation: calculation.id.as_deref(), ..charge };
    client.charge_off_session(&charge, &key("with_tax")).await.unwrap();
    let session = client.checkout_session_of(paid).await.unwrap().unwrap();
    client.invoice(session.invoice.unwrap().id()).await.unwrap();
    stripe.forget_address(&account.customer.id);
    client.calculate_tax(&new_tax, &key("tax_2")).await.unwrap_err();
    let new = NewSetupSession { collects_address: true, ..account.new_setup() };
    let setup = client.create_setup_session(&new, &key("setup_3")).await.unwrap();
    stripe.visit(&setup.id, &Card::visa()).unwrap();
    let setup = client.checkout_session(&setup.id).await.unwrap();
    let intent = setup.setup_intent.unwrap().object().unwrap().clone();
    let saved = intent.payment_method.unwrap().object().unwrap().clone();
    let address = saved.billing_details.unwrap().address.unwrap();
    client.set_customer_address(&account.customer.id, &address, &key("address")).await.unwrap();
    assert_eq!(client.customer(&account.customer.id).await.unwrap().address, Some(address));
    client.calculate_tax(&new_tax, &key("tax_3")).await.unwrap();
}

async fn refund_and_dispute(account: &Account, intent: &str) {
    let (client, stripe) = (&account.client, &account.stripe);
    let refund = |reason| NewRefund {
        payment_intent: intent,
        amount: Some(100),
        reason,
        metadata: [("refund_id".to_owned(), "ref_1".to_owned())].into(),
    };
    for (index, outcome) in
        [RefundOutcome::Succeeds, RefundOutcome::Pending, RefundOutcome::Fails].into_iter().enumerate()
    {
        stripe.set_refunds(outcome);
        let reason = ["duplicate", "fraudulent", "requested_by_customer"][index];
        let made = client.create_refund(&refund(Some(reason)), &key(&format!("ref_{index}"))).await.unwrap();
        client.refund(&made.id).await.unwrap();
    }
    stripe.settle_refund(stripe.all("refund")[1]["id"].as_str().unwrap(), true);
    for (name, is_inquiry, is_won) in [("dis_1", false, true), ("dis_2", false, false), ("dis_3", true, true)]
    {
        let paid = account.pay(1_000, name).await;
        let id = if is_inquiry { stripe.inquire(&paid.id, 1_000) } else { stripe.dispute(&paid.id, 1_000) };
        client.dispute(&id).await.unwrap();
        stripe.close_dispute(&id, is_won);
        client.dispute(&id).await.unwrap();
    }
}

async fn read_everything(account: &Account, method: &str) {
    let (client, customer) = (&account.client, &account.customer.id);
    let created = Created { from: Some(1), until: Some(START + 1), after: None };
    client.customer(customer).await.unwrap();
    client.payment_method(method).await.unwrap();
    client.cards_of(customer).await.unwrap();
    let intents = client.payment_intents(&created).await.unwrap();
    client.payment_intents_of(customer, &created).await.unwrap();
    let intent = intents.data.last().unwrap();
    client.charge(intent.latest_charge.as_ref().unwrap().id()).await.unwrap();
    client.refunds(Some(&intent.id), &created).await.unwrap();
    client.disputes(Some(&intent.id), &created).await.unwrap();
    client.disputes(None, &created).await.unwrap();
    let events = client.events(&["charge.succeeded"], &created).await.unwrap();
    client.events(&[], &Created { after: Some(&events.data[0].id), ..created }).await.unwrap();
    client.event(&events.data[0].id).await.unwrap();
    client.detach_payment_method(method, &key("detach")).await.unwrap();
}

fn exchange(exchange: &Exchange) -> Value {
    let (request, answer) = (&exchange.request, exchange.answer.as_ref().unwrap());
    let fields = Params::parse(&request.fields).fields().to_vec();
    json!({
        "method": request.method, "path": request.path, "fields": fields,
        "status": answer.status, "body": answer.body,
    })
}

/// Returns the states of the objects in answers and events.
fn states(exchanges: &[Value], events: &[Value]) -> BTreeSet<String> {
    let mut states = BTreeSet::new();
    for exchange in exchanges.iter().filter(|exchange| exchange["status"] != 200) {
        states.insert(format!("error {}", exchange["status"]));
    }
    let bodies = exchanges.iter().map(|exchange| &exchange["body"]);
    for object in bodies.chain(events.iter().map(|event| &event["data"]["object"])) {
        if let (Some(kind), Some(status)) = (object["object"].as_str(), object["status"].as_str()) {
            states.insert(format!("{kind} {status}"));
        }
    }
    states
}

/// Returns invalid objects and requests, which the types must refuse.
fn wrong(account: &Account) -> Value {
    let intent = account.stripe.all("payment_intent")[0].clone();
    let changed = |name: &str, value: Value| {
        let mut changed = intent.clone();
        changed[name] = value;
        json!({"like": "payment_intent", "object": changed})
    };
    let mut shorter = intent.clone();
    shorter.as_object_mut().unwrap().remove("latest_charge");
    let charge = json!({"amount": 100, "currency": "usd", "payment_method_types": ["card"]});
    json!([
        changed("status", "paid".into()),
        changed("amount", "100".into()),
        changed("amount", Value::Null),
        changed("amount_paid", 100.into()),
        changed("last_payment_error", json!({"type": "card_error", "code": "no_such_code"})),
        {"like": "payment_intent", "object": shorter},
        {"like": "PaymentIntentCreateParams", "object": charge},
        {"like": "PaymentIntentCreateParams", "object": {"currency": "usd"}},
        {"like": "RefundCreateParams", "object": {"payment_intent": "pi_1", "reason": "bad"}},
        {"like": "Tax.CalculationCreateParams", "object": {"currency": "usd", "line_items": [{"tax_behavior": "exclusive"}]}},
        {"like": "tax.calculation", "object": {"id": "taxcalc_1", "object": "tax.calculation", "amount_total": 100}},
    ])
}
