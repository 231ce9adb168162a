//! The console through HTTP, in process; `tests/it/browser.rs` has it in a browser.

mod access;
mod api_keys;
mod conflicts;
mod idle;
mod next;
mod origins;
mod pages;
mod projects;
mod signed_out;
mod signing_in;
mod signing_up;
