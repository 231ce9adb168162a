//! The console through HTTP, in process; `tests/it/browser.rs` has it in a browser.

mod access;
mod account;
mod api_keys;
mod budgets;
mod conflicts;
mod database_away;
mod hostile;
mod idle;
mod installation;
mod members;
mod models;
mod money;
mod next;
mod organization;
mod origins;
mod pages;
mod panics;
pub(crate) mod passkeys;
mod playground;
mod project_members;
mod projects;
mod second_factor;
mod sent_at_once;
mod signed_out;
mod signing_in;
mod signing_up;
mod usage;
