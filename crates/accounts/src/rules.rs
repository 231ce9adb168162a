//! Pure rules, without I/O: passwords and throttling.

pub mod password;
pub mod password_changes;
pub mod throttling;
