//! Payment methods: cards of customers.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::customers::{Address, CustomerRef};
use crate::error::Error;
use crate::form::{Form, Query};
use crate::values::{IdempotencyKey, Identified, Page};

/// A payment method.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct PaymentMethod {
    pub id: String,
    /// The kind, such as `card`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub livemode: bool,
    /// The customer that it belongs to; `None` after it was detached.
    pub customer: Option<CustomerRef>,
    /// The card's displayed details.
    pub card: Option<Card>,
    pub billing_details: Option<BillingDetails>,
}

/// Billing details entered with a payment method.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct BillingDetails {
    pub address: Option<Address>,
}

/// The displayed details of a card.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Card {
    /// The network, such as `visa`.
    pub brand: String,
    pub last4: String,
    pub exp_month: u8,
    pub exp_year: u16,
}

impl Identified for PaymentMethod {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Client {
    pub async fn payment_method(&self, id: &str) -> Result<PaymentMethod, Error> {
        self.get(&path("payment_methods", id)?, &Query::new()).await
    }

    /// Returns a customer's 100 newest cards.
    pub async fn cards_of(&self, customer_id: &str) -> Result<Page<PaymentMethod>, Error> {
        let mut query = Query::new();
        query.text("type", "card");
        query.number("limit", crate::values::PAGE);
        self.get_page(&format!("{}/payment_methods", path("customers", customer_id)?), &query).await
    }

    /// Detaches a payment method from its customer, so that it can no longer be charged.
    pub async fn detach_payment_method(
        &self,
        id: &str,
        key: &IdempotencyKey,
    ) -> Result<PaymentMethod, Error> {
        self.post(&format!("{}/detach", path("payment_methods", id)?), Form::new(), key).await
    }
}
