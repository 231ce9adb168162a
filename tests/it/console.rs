//! The console through HTTP, in process; `tests/it/browser.rs` has it in a browser.

mod access;
mod idle;
mod members;
mod next;
mod organization;
mod origins;
mod pages;
mod project_members;
mod signed_out;
mod signing_in;
mod signing_up;
