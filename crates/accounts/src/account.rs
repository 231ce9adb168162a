//! The account of a person: how it is made, its address, its password, and its connections with providers.

pub mod connections;
pub mod email_changes;
pub(crate) mod entries;
pub mod password_changes;
pub mod passwords;
pub mod profiles;
pub mod registration;
pub mod verification;
