//! Everything that must not be known: passwords, keys, tokens, and how each is kept.

pub use kernel::secrets::*;

pub mod api_key;
pub mod jwt;
pub mod password;
