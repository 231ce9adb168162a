//! Pure rules of webhooks.

pub mod schedule;
pub mod signing;
pub mod urls;
