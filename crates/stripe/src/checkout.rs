//! Checkout sessions: Stripe's own pages on which a customer pays or saves a card.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::customers::CustomerRef;
use crate::error::Error;
use crate::form::{Form, Query};
use crate::payment_intents::PaymentIntent;
use crate::payment_methods::PaymentMethod;
use crate::values::{Expandable, IdempotencyKey, Identified, Metadata, Page, Reference, metadata};

/// What a session is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutMode {
    Payment,
    Setup,
    #[serde(other)]
    Other,
}

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutStatus {
    /// The customer can still use it.
    Open,
    /// The customer is through; a payment may still be on its way.
    Complete,
    Expired,
    #[serde(other)]
    Other,
}

/// The state of a session's payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutPaymentStatus {
    Paid,
    Unpaid,
    NoPaymentRequired,
    #[serde(other)]
    Other,
}

/// A checkout session.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct CheckoutSession {
    pub id: String,
    pub mode: CheckoutMode,
    pub status: Option<CheckoutStatus>,
    pub payment_status: CheckoutPaymentStatus,
    /// Where the customer pays, while it is open.
    pub url: Option<String>,
    /// When it expires, in Unix seconds.
    pub expires_at: i64,
    /// The time of its creation, in Unix seconds.
    pub created: i64,
    pub livemode: bool,
    pub currency: Option<String>,
    /// The amount before taxes, in the minor unit.
    pub amount_subtotal: Option<i64>,
    /// The amount to be paid, in the minor unit.
    pub amount_total: Option<i64>,
    pub total_details: Option<TotalDetails>,
    pub client_reference_id: Option<String>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
    pub customer: Option<CustomerRef>,
    /// The payment; it may not exist before the customer pays.
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    /// What saves the card, in the mode `setup`.
    pub setup_intent: Option<Expandable<SetupIntent>>,
    /// Stripe's invoice for the payment, by its id.
    pub invoice: Option<Expandable<Reference>>,
}

/// What the total of a session contains, in the minor unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct TotalDetails {
    pub amount_tax: i64,
    pub amount_discount: i64,
}

/// The state of a setup intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetupIntentStatus {
    RequiresPaymentMethod,
    RequiresConfirmation,
    RequiresAction,
    Processing,
    Canceled,
    Succeeded,
    #[serde(other)]
    Other,
}

/// A setup intent: what saves a card.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct SetupIntent {
    pub id: String,
    pub status: SetupIntentStatus,
    pub livemode: bool,
    pub customer: Option<CustomerRef>,
    /// The saved card.
    pub payment_method: Option<Expandable<PaymentMethod>>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

impl Identified for SetupIntent {
    fn id(&self) -> &str {
        &self.id
    }
}

/// A session in which a customer pays an amount by card.
#[derive(Clone, Debug)]
pub struct NewPaymentSession<'a> {
    pub customer: &'a str,
    pub currency: &'a str,
    /// The amount before taxes, in the minor unit.
    pub amount: i64,
    /// What is bought, as the customer reads it.
    pub product: &'a str,
    /// The tax code of the product at Stripe; its account has a default.
    pub tax_code: Option<&'a str>,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    pub client_reference_id: Option<&'a str>,
    /// Put on the session, the payment intent, and the invoice.
    pub metadata: Metadata,
    /// Whether the card is saved for charges while the customer is away.
    pub save_card: bool,
    /// Whether Stripe computes taxes, and adds them.
    pub automatic_tax: bool,
    /// Whether the customer can give the tax id of a business.
    pub tax_id_collection: bool,
    /// Whether Stripe makes an invoice of its own for the payment.
    pub invoice: bool,
    /// When it expires, in Unix seconds: 30 minutes to 24 hours from now; by default 24 hours.
    pub expires_at: Option<i64>,
}

/// A session in which a customer saves a card.
#[derive(Clone, Debug)]
pub struct NewSetupSession<'a> {
    pub customer: &'a str,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    pub client_reference_id: Option<&'a str>,
    /// Put on the session and the setup intent.
    pub metadata: Metadata,
    /// Whether the customer has to give the address of the card.
    pub collects_address: bool,
    /// When it expires, as in [`NewPaymentSession`].
    pub expires_at: Option<i64>,
}

/// What replies contain besides the session itself.
const EXPAND: &[&str] =
    &["payment_intent.latest_charge", "payment_intent.payment_method", "setup_intent.payment_method"];

impl NewPaymentSession<'_> {
    fn form(&self) -> Form {
        let mut form = Form::new();
        form.text("mode", "payment");
        form.text("customer", self.customer);
        form.text("line_items[0][quantity]", "1");
        form.currency("line_items[0][price_data][currency]", self.currency);
        form.number("line_items[0][price_data][unit_amount]", self.amount);
        form.text("line_items[0][price_data][product_data][name]", self.product);
        form.optional("line_items[0][price_data][product_data][tax_code]", self.tax_code);
        form.list("allowed_payment_method_types", &["card"]);
        form.text("success_url", self.success_url);
        form.text("cancel_url", self.cancel_url);
        form.optional("client_reference_id", self.client_reference_id);
        form.metadata("metadata", &self.metadata);
        form.metadata("payment_intent_data[metadata]", &self.metadata);
        if self.save_card {
            form.text("payment_intent_data[setup_future_usage]", "off_session");
        }
        if self.automatic_tax {
            form.text("automatic_tax[enabled]", "true");
            form.text("line_items[0][price_data][tax_behavior]", "exclusive");
            // Stripe wants to keep the address that the tax depends on.
            form.text("customer_update[address]", "auto");
        }
        if self.tax_id_collection {
            form.text("tax_id_collection[enabled]", "true");
            form.text("customer_update[name]", "auto");
        }
        if self.invoice {
            form.text("invoice_creation[enabled]", "true");
            form.metadata("invoice_creation[invoice_data][metadata]", &self.metadata);
        }
        form.optional_number("expires_at", self.expires_at);
        form.list("expand", EXPAND);
        form
    }
}

impl NewSetupSession<'_> {
    fn form(&self) -> Form {
        let mut form = Form::new();
        form.text("mode", "setup");
        form.text("customer", self.customer);
        form.list("allowed_payment_method_types", &["card"]);
        form.text("success_url", self.success_url);
        form.text("cancel_url", self.cancel_url);
        form.optional("client_reference_id", self.client_reference_id);
        form.metadata("metadata", &self.metadata);
        form.metadata("setup_intent_data[metadata]", &self.metadata);
        if self.collects_address {
            form.text("billing_address_collection", "required");
        }
        form.optional_number("expires_at", self.expires_at);
        form.list("expand", EXPAND);
        form
    }
}

impl Client {
    /// Makes a session in which a customer pays.
    pub async fn create_payment_session(
        &self,
        new: &NewPaymentSession<'_>,
        key: &IdempotencyKey,
    ) -> Result<CheckoutSession, Error> {
        self.post("checkout/sessions", new.form(), key).await
    }

    /// Makes a session in which a customer saves a card.
    pub async fn create_setup_session(
        &self,
        new: &NewSetupSession<'_>,
        key: &IdempotencyKey,
    ) -> Result<CheckoutSession, Error> {
        self.post("checkout/sessions", new.form(), key).await
    }

    /// Returns a session with its payment, or with what has saved the card.
    pub async fn checkout_session(&self, id: &str) -> Result<CheckoutSession, Error> {
        let mut query = Query::new();
        query.list("expand", EXPAND);
        self.get(&path("checkout/sessions", id)?, &query).await
    }

    /// Returns the session whose payment this is; `None` if it wasn't paid by one.
    pub async fn checkout_session_of(&self, payment_intent: &str) -> Result<Option<CheckoutSession>, Error> {
        let mut query = Query::new();
        query.text("payment_intent", payment_intent);
        query.number("limit", 1);
        let page: Page<CheckoutSession> = self.get_page("checkout/sessions", &query).await?;
        Ok(page.data.into_iter().next())
    }

    /// Ends an open session: the customer can't use it any more.
    ///
    /// # Errors
    /// One that isn't open is [`Error::Refused`].
    pub async fn expire_checkout_session(
        &self,
        id: &str,
        key: &IdempotencyKey,
    ) -> Result<CheckoutSession, Error> {
        let mut form = Form::new();
        form.list("expand", EXPAND);
        self.post(&format!("{}/expire", path("checkout/sessions", id)?), form, key).await
    }
}
