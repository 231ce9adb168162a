//! What this replica holds in memory; all of it can be read from the database again.

pub mod sessions;
pub mod signing_keys;
