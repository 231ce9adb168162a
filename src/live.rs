//! What this replica holds in memory. Nothing here is the truth: all of it is read from the database and can be again.

pub use kernel::limiter;

pub mod body_budget;
pub mod books;
pub mod catalog;
pub mod keyring;
pub mod last_uses;
pub mod rates;
pub mod sessions;
pub mod signing_keys;
pub mod totals;
