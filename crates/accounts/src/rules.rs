//! Pure rules: no input, no output.

pub mod password;
pub mod password_changes;
pub mod throttling;
