//! SQL only, one file a table family. Every function takes a transaction (or a read handle) first; the tenant comes from
//! a scope, never from a path.

pub mod addresses_to_fold;
pub mod api_keys;
pub mod audit;
pub mod audit_state;
pub mod credit_notes;
pub mod credits;
pub mod email_tokens;
pub mod invitations;
pub mod invoices;
pub mod ledger;
pub mod login_guesses;
pub mod login_networks;
pub mod members;
pub mod months;
pub mod organization_members;
pub mod organizations;
pub mod prices;
pub mod project_members;
pub mod projects;
pub mod rate_meters;
pub mod reservations;
pub mod sessions;
pub mod signing_keys;
pub mod standings;
pub mod usage;
pub mod users;
pub mod wallets;

pub use db::{Page, contains_pattern, sized, window};
