//! SQL only, one file a family of tables. Every function takes a transaction first.

pub mod addresses_to_fold;
pub mod email_tokens;
pub mod login_guesses;
pub mod login_networks;
pub mod sessions;
pub mod signing_keys;
pub mod users;
