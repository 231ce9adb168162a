//! The SQL of accounts, one file for each family of tables. Every function takes the transaction first.

pub mod addresses_to_fold;
pub mod connections;
pub mod email_changes;
pub mod email_tokens;
pub mod login_guesses;
pub mod login_networks;
pub mod passkeys;
pub mod second_factors;
pub mod sessions;
pub mod signing_keys;
pub mod users;
