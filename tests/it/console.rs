//! The console through HTTP, in process; `tests/it/browser.rs` has it in a browser.

mod signing_in;
