//! Our Stripe client, tested with a fake account in memory. Stripe's own libraries are used to verify the
//! fake.

mod checkout;
mod deliveries;
mod faults;
mod intents;
mod localstripe;
mod refunds;
mod sdk;
mod tls;
mod types;

use tollkeeper::clock::{Clock, Time};
use tollkeeper::stripe::{
    Client, Customer, IdempotencyKey, NewCalculation, NewCustomer, NewPaymentIntent, NewPaymentSession,
    NewSetupSession, PaymentIntent,
};

use support::stripe::FakeStripe;
use support::stripe::cards::Card;

/// The time at which every test starts, in Unix seconds.
const START: i64 = 1_764_000_000;

/// An account with a customer, and our client for it.
struct Account {
    stripe: FakeStripe,
    client: Client,
    clock: Clock,
    customer: Customer,
}

impl Account {
    async fn start() -> Self {
        let clock = Clock::fixed(Time::from_unix_ms(START * 1_000));
        let stripe = FakeStripe::start(&clock).await;
        let client = stripe.client();
        let metadata = [("organization_id".to_owned(), "org_1".to_owned())].into();
        let new = NewCustomer { name: Some("Ada & Söhne"), email: Some("ada@example.com"), metadata };
        let customer = client.create_customer(&new, &key("customer:org_1")).await.unwrap();
        Self { stripe, client, clock, customer }
    }

    /// Returns a session for 25.00 USD that saves the card.
    fn new_session(&self) -> NewPaymentSession<'_> {
        NewPaymentSession {
            customer: &self.customer.id,
            currency: "USD",
            amount: 2_500,
            product: "Credit",
            tax_code: None,
            success_url: "https://a.example/paid?session={CHECKOUT_SESSION_ID}",
            cancel_url: "https://a.example/billing",
            client_reference_id: Some("pay_1"),
            metadata: [("payment_id".to_owned(), "pay_1".to_owned())].into(),
            save_card: true,
            automatic_tax: false,
            tax_id_collection: false,
            invoice: false,
            expires_at: None,
        }
    }

    fn new_setup(&self) -> NewSetupSession<'_> {
        NewSetupSession {
            customer: &self.customer.id,
            success_url: "https://a.example/saved",
            cancel_url: "https://a.example/billing",
            client_reference_id: None,
            metadata: [("organization_id".to_owned(), "org_1".to_owned())].into(),
            collects_address: false,
            expires_at: None,
        }
    }

    /// Saves a card, and returns the id of its payment method.
    async fn save(&self, card: &Card, name: &str) -> String {
        let session = self.client.create_setup_session(&self.new_setup(), &key(name)).await.unwrap();
        self.stripe.visit(&session.id, card).unwrap();
        let session = self.client.checkout_session(&session.id).await.unwrap();
        let intent = session.setup_intent.unwrap().object().unwrap().clone();
        intent.payment_method.unwrap().id().to_owned()
    }

    fn new_charge<'a>(&'a self, payment_method: &'a str, amount: i64) -> NewPaymentIntent<'a> {
        NewPaymentIntent {
            amount,
            currency: "USD",
            customer: &self.customer.id,
            payment_method,
            description: Some("Credit"),
            tax_calculation: None,
            metadata: [("payment_id".to_owned(), "pay_1".to_owned())].into(),
        }
    }

    fn new_calculation(&self, amount: i64) -> NewCalculation<'_> {
        NewCalculation {
            customer: &self.customer.id,
            currency: "USD",
            amount,
            reference: "pay_1",
            tax_code: None,
        }
    }

    /// Pays an amount with a valid card, and returns the payment intent.
    async fn pay(&self, amount: i64, name: &str) -> PaymentIntent {
        let method = self.save(&Card::visa(), &format!("{name}:card")).await;
        self.client.charge_off_session(&self.new_charge(&method, amount), &key(name)).await.unwrap()
    }

    /// Returns the types of the events since the last call.
    fn new_events(&self) -> Vec<String> {
        let events = self.stripe.undelivered();
        self.stripe.drop_events();
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}
