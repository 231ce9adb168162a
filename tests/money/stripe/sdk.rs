//! Stripe's own libraries. The Python library takes the same steps as our client. The Python library and the
//! Node library create signatures that our code verifies.

use tollkeeper::kernel::secrets::Secret;
use tollkeeper::stripe::signature::{SignatureError, verify};

use super::Account;
use support::process::run_to_end;
use support::stripe::{SECRET_KEY, WEBHOOK_SECRET};
use support::{node, python};

#[tokio::test(flavor = "multi_thread")]
async fn official_library_for_python_makes_the_same_journey() {
    let Some(mut command) = python::python("stripe", "stripe", "Stripe's library for Python") else { return };
    let account = Account::start().await;
    command.args(["tests/stripe/journey.py", &account.stripe.url, SECRET_KEY]);
    let ended = tokio::task::spawn_blocking(move || run_to_end(command)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
    assert_eq!(ended.stdout, "the journey is done\n");
    // The steps paid 25.00 on the page and 10.00 off-session, and refunded 5.00. They also paid 10.00 with
    // 2.00 of tax twice.
    assert_eq!(account.stripe.charges().len(), 4);
    assert_eq!(account.stripe.balance(), 5_400);
    assert_eq!(account.stripe.recorded_taxes().len(), 1);
    let exchanges = account.stripe.exchanges();
    let versions: Vec<_> =
        exchanges.iter().map(|exchange| &exchange.request.headers["stripe-version"]).collect();
    assert!(versions.iter().all(|version| *version == tollkeeper::stripe::API_VERSION), "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn official_library_for_python_takes_our_events_and_we_its_signatures() {
    let Some(mut command) = python::python("stripe", "stripe", "signatures of Stripe's library for Python")
    else {
        return;
    };
    let account = Account::start().await;
    let intent = account.pay(1_000, "pay_1").await;
    let event = account.stripe.undelivered().pop().unwrap();
    let (header, body) = account.stripe.packed(event["id"].as_str().unwrap(), WEBHOOK_SECRET);
    let now = account.clock.now().unix_seconds().to_string();
    command.args(["tests/stripe/events.py", WEBHOOK_SECRET, &now, &header, &body]);
    let ended = tokio::task::spawn_blocking(move || run_to_end(command)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
    let lines: Vec<_> = ended.stdout.lines().collect();
    let [kind, id, signed] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((*kind, *id), ("payment_intent.succeeded", intent.id.as_str()));
    check_signature(&account, signed, body.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn official_library_for_node_signs_what_we_verify() {
    let Some(mut command) = node::node("stripe", "signatures of Stripe's library for Node") else { return };
    let account = Account::start().await;
    let body = "{\"id\": \"evt_1\", \"name\": \"Ada & Söhne\"}";
    command.args([
        "tests/stripe/sign.js",
        WEBHOOK_SECRET,
        &account.clock.now().unix_seconds().to_string(),
        body,
    ]);
    let ended = tokio::task::spawn_blocking(move || run_to_end(command)).await.unwrap();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    check_signature(&account, ended.stdout.trim(), body.as_bytes());
}

/// Checks that a header is valid for a body at this time, and for nothing else.
fn check_signature(account: &Account, header: &str, body: &[u8]) {
    let (secret, now) = (Secret::new(WEBHOOK_SECRET), account.clock.now());
    assert_eq!(verify(header, body, &secret, now), Ok(()), "{header}");
    assert_eq!(verify(header, b"{}", &secret, now), Err(SignatureError::Wrong));
    assert_eq!(verify(header, body, &Secret::new("whsec_other"), now), Err(SignatureError::Wrong));
    account.clock.advance_ms(301_000);
    assert_eq!(verify(header, body, &secret, account.clock.now()), Err(SignatureError::TooOld));
}
