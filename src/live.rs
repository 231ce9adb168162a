//! What this replica holds in memory. Nothing here is the truth: all of it is read from the database and can be again.

pub use kernel::limiter;

pub mod body_budget;
