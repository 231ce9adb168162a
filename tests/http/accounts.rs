//! Accounts: sign-in methods, and rules that span several endpoints.

mod email_addresses;
mod mail_limits;
mod passkeys;
mod passwords;
mod second_factor;
mod sessions_model;
mod sign_in_model;
mod sign_on;
