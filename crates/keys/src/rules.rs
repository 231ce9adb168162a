//! Pure rules, without I/O: expiry, permissions, rotation, and the pool of a shared rate.

pub mod api_keys;
pub mod permissions;
pub mod rate_pool;
pub mod rotation;
