//! Refunds: money returned to the customer.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::{Form, Query};
use crate::payment_intents::{Charge, PaymentIntent};
use crate::values::{Created, Expandable, IdempotencyKey, Metadata, Page, metadata};

/// The state of a refund.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundStatus {
    Pending,
    RequiresAction,
    Succeeded,
    /// The money was returned to Stripe, possibly days after the refund succeeded.
    Failed,
    Canceled,
    #[serde(other)]
    Other,
}

/// A refund.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Refund {
    pub id: String,
    pub status: Option<RefundStatus>,
    /// The amount, in the minor unit.
    pub amount: i64,
    pub currency: String,
    /// Creation time, in Unix seconds.
    pub created: i64,
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    pub charge: Option<Expandable<Charge>>,
    pub failure_reason: Option<String>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

/// A refund to create.
#[derive(Clone, Debug)]
pub struct NewRefund<'a> {
    pub payment_intent: &'a str,
    /// The amount, in the minor unit; defaults to the remainder of the payment.
    pub amount: Option<i64>,
    /// `duplicate`, `fraudulent`, or `requested_by_customer`.
    pub reason: Option<&'a str>,
    pub metadata: Metadata,
}

impl Client {
    /// Refunds a payment in full or in part.
    ///
    /// # Errors
    /// [`Error::Refused`] if the amount exceeds the remainder, or if the payment was already
    /// refunded (`charge_already_refunded`).
    pub async fn create_refund(&self, new: &NewRefund<'_>, key: &IdempotencyKey) -> Result<Refund, Error> {
        let mut form = Form::new();
        form.text("payment_intent", new.payment_intent);
        form.optional_number("amount", new.amount);
        form.optional("reason", new.reason);
        form.metadata("metadata", &new.metadata);
        self.post("refunds", form, key).await
    }

    pub async fn refund(&self, id: &str) -> Result<Refund, Error> {
        self.get(&path("refunds", id)?, &Query::new()).await
    }

    /// Returns refunds, newest first; only those of a payment if one is given.
    pub async fn refunds(
        &self,
        payment_intent: Option<&str>,
        created: &Created<'_>,
    ) -> Result<Page<Refund>, Error> {
        let mut query = created.query();
        query.optional("payment_intent", payment_intent);
        self.get_page("refunds", &query).await
    }
}
