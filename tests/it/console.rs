//! The console through HTTP, in process; `tests/it/browser.rs` has it in a browser.

mod access;
mod idle;
mod next;
mod origins;
mod pages;
mod signed_out;
mod signing_in;
mod signing_up;
