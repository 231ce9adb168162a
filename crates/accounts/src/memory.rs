//! Caches of this replica; all of their content can be read from the database again.

pub mod sessions;
pub mod signing_keys;
