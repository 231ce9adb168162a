//! The SQL of webhooks.

pub mod deliveries;
pub mod endpoints;
