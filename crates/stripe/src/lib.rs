//! A client of Stripe's API, and the signatures of its webhooks.
//!
//! It has the operations that payments by card need, and replies with the fields that they need; it knows nothing of
//! what is paid for. Amounts are integers of the currency's minor unit, as Stripe counts it
//! ([`currencies`]); times are Unix seconds.
//!
//! Every POST takes an [`IdempotencyKey`]: Stripe answers a repetition with the same key as it has answered the first
//! request, for at least 24 hours, errors of its own included. What is true is in the objects: if an outcome stays
//! unknown, read them.

mod accounts;
mod checkout;
mod client;
pub mod currencies;
mod customers;
mod disputes;
mod error;
mod events;
mod form;
mod invoices;
mod payment_intents;
mod payment_methods;
mod refunds;
pub mod signature;
mod tax;
mod values;
mod webhook_endpoints;

pub use accounts::Account;
pub use checkout::{
    CheckoutMode, CheckoutPaymentStatus, CheckoutSession, CheckoutStatus, NewPaymentSession, NewSetupSession,
    SetupIntent, SetupIntentStatus, TotalDetails,
};
pub use client::{API_VERSION, Client, Settings};
pub use customers::{Address, Customer, NewCustomer};
pub use disputes::{BalanceTransaction, Dispute, DisputeStatus};
pub use error::{Error, Reason, Refusal};
pub use events::{Event, EventData, EventObject, MAX_EVENT_BYTES};
pub use invoices::Invoice;
pub use payment_intents::{
    Charge, ChargeStatus, LastPaymentError, NewPaymentIntent, PaymentIntent, PaymentIntentStatus,
};
pub use payment_methods::{BillingDetails, Card, PaymentMethod};
pub use refunds::{NewRefund, Refund, RefundStatus};
pub use tax::{Calculation, NewCalculation};
pub use values::{Created, Expandable, IdempotencyKey, Identified, Metadata, Page, Reference};
pub use webhook_endpoints::WebhookEndpoint;
