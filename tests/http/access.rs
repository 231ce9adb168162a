//! Who may call what, and what a credential is worth.

pub mod matrix;

mod client_addresses;
mod gate;
mod guesses;
mod invalid_tokens;
mod key_rights;
