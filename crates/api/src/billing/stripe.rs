//! `/v1/billing/stripe/…`: what Stripe calls.

pub mod events;
