//! SQL only, one file a family of tables. Every function takes a transaction first.

pub mod api_keys;
pub mod rate_meters;
