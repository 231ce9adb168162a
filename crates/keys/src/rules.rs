//! Pure rules: no input, no output.

pub mod api_keys;
pub mod permissions;
pub mod rate_pool;
pub mod rotation;
