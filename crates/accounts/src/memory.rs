//! In-memory caches of this replica. Everything in them can be read from the database again.

pub mod sessions;
pub mod signing_keys;
