//! Checkout sessions: Stripe-hosted pages on which a customer pays or saves a card.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::customers::CustomerRef;
use crate::error::Error;
use crate::form::{Form, Query};
use crate::payment_intents::PaymentIntent;
use crate::payment_methods::PaymentMethod;
use crate::values::{Expandable, IdempotencyKey, Identified, Metadata, Page, Reference, metadata};

/// The purpose of a session.
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
    /// The customer has finished; a payment may still be in progress.
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
    /// The page's URL, while the session is open.
    pub url: Option<String>,
    /// Expiry, in Unix seconds.
    pub expires_at: i64,
    /// Creation time, in Unix seconds.
    pub created: i64,
    pub livemode: bool,
    pub currency: Option<String>,
    /// The amount before taxes, in the minor unit.
    pub amount_subtotal: Option<i64>,
    /// The amount to pay, in the minor unit.
    pub amount_total: Option<i64>,
    pub total_details: Option<TotalDetails>,
    pub client_reference_id: Option<String>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
    pub customer: Option<CustomerRef>,
    /// The payment. May not exist before the customer pays.
    pub payment_intent: Option<Expandable<PaymentIntent>>,
    /// The setup intent that saves the card, in `setup` mode.
    pub setup_intent: Option<Expandable<SetupIntent>>,
    /// The id of Stripe's invoice for the payment.
    pub invoice: Option<Expandable<Reference>>,
}

/// The components of a session's total, in the minor unit.
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

/// A setup intent, which saves a card.
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

/// A session for a card payment.
#[derive(Clone, Debug)]
pub struct NewPaymentSession<'a> {
    pub customer: &'a str,
    pub currency: &'a str,
    /// The amount before taxes, in the minor unit.
    pub amount: i64,
    /// The product's name, shown to the customer.
    pub product: &'a str,
    /// Stripe's tax code of the product; `None` means the account's default.
    pub tax_code: Option<&'a str>,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    pub client_reference_id: Option<&'a str>,
    /// Metadata of the session, the payment intent, and the invoice.
    pub metadata: Metadata,
    /// Whether to save the card for off-session charges.
    pub save_card: bool,
    /// Whether Stripe calculates and adds taxes.
    pub automatic_tax: bool,
    /// Whether the customer can enter a business tax id.
    pub tax_id_collection: bool,
    /// Whether Stripe creates an invoice for the payment.
    pub invoice: bool,
    /// Expiry, in Unix seconds: 30 minutes to 24 hours from now. Defaults to 24 hours.
    pub expires_at: Option<i64>,
}

/// A session for saving a card.
#[derive(Clone, Debug)]
pub struct NewSetupSession<'a> {
    pub customer: &'a str,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    pub client_reference_id: Option<&'a str>,
    /// Metadata of the session and the setup intent.
    pub metadata: Metadata,
    /// Whether the customer must enter the card's address.
    pub collects_address: bool,
    /// Expiry, as in [`NewPaymentSession`].
    pub expires_at: Option<i64>,
}

/// Objects to include in responses along with the session.
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
            // Stripe requires permission to save the address that the tax depends on.
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
    /// Creates a session for a payment.
    pub async fn create_payment_session(
        &self,
        new: &NewPaymentSession<'_>,
        key: &IdempotencyKey,
    ) -> Result<CheckoutSession, Error> {
        self.post("checkout/sessions", new.form(), key).await
    }

    /// Creates a session for saving a card.
    pub async fn create_setup_session(
        &self,
        new: &NewSetupSession<'_>,
        key: &IdempotencyKey,
    ) -> Result<CheckoutSession, Error> {
        self.post("checkout/sessions", new.form(), key).await
    }

    /// Returns a session, including its payment or setup intent.
    pub async fn checkout_session(&self, id: &str) -> Result<CheckoutSession, Error> {
        let mut query = Query::new();
        query.list("expand", EXPAND);
        self.get(&path("checkout/sessions", id)?, &query).await
    }

    /// Returns the session that a payment intent belongs to; `None` if it wasn't created by a session.
    pub async fn checkout_session_of(&self, payment_intent: &str) -> Result<Option<CheckoutSession>, Error> {
        let mut query = Query::new();
        query.text("payment_intent", payment_intent);
        query.number("limit", 1);
        let page: Page<CheckoutSession> = self.get_page("checkout/sessions", &query).await?;
        Ok(page.data.into_iter().next())
    }

    /// Expires an open session, so that the customer can no longer use it.
    ///
    /// # Errors
    /// [`Error::Refused`] if it isn't open.
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
