//! The SQL of API keys, one file for each family of tables. Every function takes the transaction first.

pub mod api_keys;
pub mod rate_meters;
