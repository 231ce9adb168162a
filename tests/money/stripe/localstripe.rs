//! Our client, tested with the third-party project localstripe: charges, refusals and refunds.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use tollkeeper::kernel::secrets::Secret;
use tollkeeper::kernel::urls::BaseUrl;
use tollkeeper::stripe::{
    Client, Error, NewCustomer, NewPaymentIntent, NewRefund, PaymentIntentStatus, RefundStatus, Settings,
};

use super::key;
use support::process::run_to_end;
use support::python;

/// A running localstripe. Dropping the value stops it.
struct LocalStripe {
    process: Child,
    url: String,
}

impl LocalStripe {
    /// Starts localstripe. Returns `None` and prints a message if it isn't installed.
    fn start() -> Option<Self> {
        let mut command =
            python::python("localstripe", "localstripe==1.15.10", "our client against localstripe")?;
        command.arg("tests/stripe/local.py").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Some(Self { process, url: format!("http://127.0.0.1:{}", port.trim()) })
    }

    fn client(&self) -> Client {
        let url = BaseUrl::parse(&self.url).unwrap();
        Client::new(Settings::new(Secret::new("sk_test_local"), Some(url)).unwrap()).unwrap()
    }

    /// Adds a card to a customer, as pages in a browser do. Returns the id of its payment method.
    fn add_card(&self, customer: &str, number: &str) -> String {
        let mut command = python::python("stripe", "stripe", "cards of localstripe").unwrap();
        command.args(["tests/stripe/card.py", &self.url, customer, number]);
        let ended = run_to_end(command);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        ended.stdout.trim().to_owned()
    }
}

impl Drop for LocalStripe {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_works_with_localstripe() {
    let Some(local) = LocalStripe::start() else { return };
    let client = local.client();
    let metadata = [("organization_id".to_owned(), "org_1".to_owned())].into();
    let new = NewCustomer { name: Some("Ada"), email: Some("ada@example.com"), metadata };
    let customer = client.create_customer(&new, &key("customer")).await.unwrap();
    assert_eq!(client.customer(&customer.id).await.unwrap().metadata["organization_id"], "org_1");
    let good = local.add_card(&customer.id, "4242424242424242");
    let card = client.payment_method(&good).await.unwrap().card.unwrap();
    assert_eq!((card.brand.as_str(), card.last4.as_str(), card.exp_year), ("visa", "4242", 2031));

    let charge = |method| NewPaymentIntent {
        amount: 2_500,
        currency: "USD",
        customer: &customer.id,
        payment_method: method,
        description: Some("Credit"),
        tax_calculation: None,
        metadata: [("payment_id".to_owned(), "pay_1".to_owned())].into(),
    };
    let paid = client.charge_off_session(&charge(&good), &key("pay_1")).await.unwrap();
    assert_eq!((paid.status, paid.amount_received), (PaymentIntentStatus::Succeeded, 2_500));
    assert_eq!((paid.currency.as_str(), paid.metadata["payment_id"].as_str()), ("usd", "pay_1"));
    let read = client.payment_intent(&paid.id).await.unwrap();
    assert_eq!(read.latest_charge.as_ref().unwrap().object().unwrap().amount_refunded, 0);

    let refund = NewRefund {
        payment_intent: &paid.id,
        amount: Some(1_000),
        reason: None,
        metadata: [("refund_id".to_owned(), "ref_1".to_owned())].into(),
    };
    let refund = client.create_refund(&refund, &key("ref_1")).await.unwrap();
    assert_eq!((refund.status, refund.amount), (Some(RefundStatus::Succeeded), 1_000));
    assert_eq!(client.refund(&refund.id).await.unwrap().metadata["refund_id"], "ref_1");
    let read = client.payment_intent(&paid.id).await.unwrap();
    let charged = read.latest_charge.as_ref().unwrap().object().unwrap();
    assert_eq!((charged.amount_refunded, charged.refunded, charged.paid), (1_000, false, true));

    let bad = local.add_card(&customer.id, "4000000000000341");
    let error = client.charge_off_session(&charge(&bad), &key("pay_2")).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    let refusal = error.refusal().unwrap();
    assert_eq!((refusal.status, refusal.code.as_deref()), (402, Some("card_declined")));
    assert!(refusal.charge.is_some());
    assert!(client.payment_intent("pi_none").await.unwrap_err().is_missing());
    let wrong = Settings::new(Secret::new("wrong"), BaseUrl::parse(&local.url)).unwrap();
    let error = Client::new(wrong).unwrap().payment_intent(&paid.id).await.unwrap_err();
    assert!(matches!(error, Error::Misconfigured(_)), "{error:?}");
}
