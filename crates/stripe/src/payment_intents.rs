//! Payment intents: payments with their attempted charges.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::customers::CustomerRef;
use crate::error::Error;
use crate::form::{Form, Query};
use crate::payment_methods::PaymentMethod;
use crate::values::{Created, Expandable, IdempotencyKey, Identified, Metadata, Page, metadata};

/// The state of a payment intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentIntentStatus {
    /// No payment method is set, or the last one failed.
    RequiresPaymentMethod,
    RequiresConfirmation,
    /// The customer must act, for example authenticate.
    RequiresAction,
    /// In progress.
    Processing,
    RequiresCapture,
    Canceled,
    Succeeded,
    /// A status unknown to this version.
    #[serde(other)]
    Other,
}

/// A payment intent.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct PaymentIntent {
    pub id: String,
    pub status: PaymentIntentStatus,
    /// The amount to pay, in the minor unit.
    pub amount: i64,
    /// The amount paid, in the minor unit.
    pub amount_received: i64,
    /// The currency, in lower case.
    pub currency: String,
    pub livemode: bool,
    /// Creation time, in Unix seconds.
    pub created: i64,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
    pub customer: Option<CustomerRef>,
    pub payment_method: Option<Expandable<PaymentMethod>>,
    /// The last attempted charge; an object if expanded.
    pub latest_charge: Option<Expandable<Charge>>,
    pub last_payment_error: Option<LastPaymentError>,
    pub cancellation_reason: Option<String>,
}

impl Identified for PaymentIntent {
    fn id(&self) -> &str {
        &self.id
    }
}

/// The error of the last attempt.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct LastPaymentError {
    /// The type of the error, such as `card_error`.
    #[serde(rename = "type", default)]
    pub kind: String,
    pub code: Option<String>,
    pub decline_code: Option<String>,
    pub advice_code: Option<String>,
    pub message: Option<String>,
}

/// The state of a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeStatus {
    Succeeded,
    Pending,
    Failed,
    #[serde(other)]
    Other,
}

/// A charge.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Charge {
    pub id: String,
    pub status: ChargeStatus,
    pub paid: bool,
    pub amount: i64,
    /// The sum of its refunds, including pending ones.
    pub amount_refunded: i64,
    /// Whether it was fully refunded.
    pub refunded: bool,
    /// Whether it has a dispute, including a closed one.
    pub disputed: bool,
    pub currency: String,
    pub livemode: bool,
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    /// URL of the customer's receipt.
    pub receipt_url: Option<String>,
}

impl Identified for Charge {
    fn id(&self) -> &str {
        &self.id
    }
}

/// An off-session charge of a saved card.
#[derive(Clone, Debug)]
pub struct NewPaymentIntent<'a> {
    pub amount: i64,
    pub currency: &'a str,
    pub customer: &'a str,
    pub payment_method: &'a str,
    pub description: Option<&'a str>,
    /// The tax calculation whose total is charged. After success, Stripe records the tax, and reverses it for
    /// refunds.
    pub tax_calculation: Option<&'a str>,
    pub metadata: Metadata,
}

/// Objects to include in responses along with the intent.
const EXPAND: &[&str] = &["latest_charge"];

impl Client {
    /// Charges a saved card off-session.
    ///
    /// # Errors
    /// A declined card is [`Error::Refused`] with status 402 and the id of the payment intent. The
    /// same applies if the bank requires the customer to authenticate (`authentication_required`).
    pub async fn charge_off_session(
        &self,
        new: &NewPaymentIntent<'_>,
        key: &IdempotencyKey,
    ) -> Result<PaymentIntent, Error> {
        let mut form = Form::new();
        form.number("amount", new.amount);
        form.currency("currency", new.currency);
        form.text("customer", new.customer);
        form.text("payment_method", new.payment_method);
        form.list("allowed_payment_method_types", &["card"]);
        form.text("confirm", "true");
        form.text("off_session", "true");
        form.optional("description", new.description);
        form.optional("hooks[inputs][tax][calculation]", new.tax_calculation);
        form.metadata("metadata", &new.metadata);
        form.list("expand", EXPAND);
        self.post("payment_intents", form, key).await
    }

    pub async fn payment_intent(&self, id: &str) -> Result<PaymentIntent, Error> {
        let mut query = Query::new();
        query.list("expand", EXPAND);
        self.get(&path("payment_intents", id)?, &query).await
    }

    /// Returns payment intents with their latest charges, newest first.
    pub async fn payment_intents(&self, created: &Created<'_>) -> Result<Page<PaymentIntent>, Error> {
        let mut query = created.query();
        query.text("expand[0]", "data.latest_charge");
        self.get_page("payment_intents", &query).await
    }

    /// Returns a customer's payment intents with their latest charges, newest first.
    pub async fn payment_intents_of(
        &self,
        customer_id: &str,
        created: &Created<'_>,
    ) -> Result<Page<PaymentIntent>, Error> {
        let mut query = created.query();
        query.text("customer", customer_id);
        query.text("expand[0]", "data.latest_charge");
        self.get_page("payment_intents", &query).await
    }

    /// Cancels an unpaid payment intent.
    ///
    /// # Errors
    /// [`Error::Refused`] with `payment_intent_unexpected_state` if it has succeeded or is
    /// processing.
    pub async fn cancel_payment_intent(
        &self,
        id: &str,
        key: &IdempotencyKey,
    ) -> Result<PaymentIntent, Error> {
        let mut form = Form::new();
        form.list("expand", EXPAND);
        self.post(&format!("{}/cancel", path("payment_intents", id)?), form, key).await
    }

    /// Returns a charge.
    pub async fn charge(&self, id: &str) -> Result<Charge, Error> {
        self.get(&path("charges", id)?, &Query::new()).await
    }
}
