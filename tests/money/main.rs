//! Usage, balances, budgets, invoices and payments: sums that must be exact to the last digit.
//!
//! `billing` tests months from usage to invoices, with sums that are calculated by hand. `payments` tests
//! payments at a fake of Stripe (`support::stripe`), and `stripe` compares the fake with Stripe's own
//! libraries. `audit` tests the audit of the books. `books_model` and `payments_model` run random histories.
//!
//! A test belongs here if it would find a wrong amount.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::let_underscore_must_use,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a test that can't go on panics; it reads the machine's clock and the drivers directly to check on us"
)]

mod audit;
mod billing;
mod books_model;
mod first_credit;
mod payments;
mod payments_model;
mod pooler;
mod stripe;
