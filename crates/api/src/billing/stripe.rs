//! `/v1/billing/stripe/…`: the endpoint that Stripe calls.

pub mod events;
