//! A client of Stripe's API, and verification of webhook signatures.
//!
//! Contains the operations and response fields needed for card payments, independent of the purchased
//! product. Amounts are integers in Stripe's minor unit of the currency ([`currencies`]); times are Unix
//! seconds.
//!
//! Every POST takes an [`IdempotencyKey`]. For at least 24 hours, Stripe answers a request with the same key
//! with its first response, including internal errors. The objects are authoritative: if an outcome stays
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
