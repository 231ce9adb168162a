//! Usage, balances, budgets, invoices and payments: sums that must be right to the last digit.
//!
//! `billing` has months from usage to invoices, with sums that were written by hand; `payments` has payments at a fake of
//! Stripe (`support::stripe`), which `stripe` compares with Stripe's own libraries; `audit` the audit of the books. `books_model`
//! and `payments_model` play random histories.
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
mod stripe;
