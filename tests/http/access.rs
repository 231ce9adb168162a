//! Access: which callers may use which routes, and which credentials are valid.

pub mod matrix;

mod client_addresses;
mod gate;
mod guesses;
mod invalid_tokens;
mod key_rights;
