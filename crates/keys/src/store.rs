//! The SQL of API keys, one file per group of tables. The transaction is the first parameter of every
//! function.

pub mod api_keys;
pub mod rate_meters;
