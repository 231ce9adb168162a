//! A user's account: its registration, profile, e-mail address, password, and connections to providers.

pub mod connections;
pub mod email_changes;
pub(crate) mod entries;
pub mod password_changes;
pub mod passwords;
pub mod profiles;
pub mod registration;
pub mod verification;
