//! The HTTP interface as clients see it: calls, answers, and HTML pages. Most tests run the server in their
//! own process.
//!
//! `api` contains the endpoints by subject, `service` the other listener, and `console` the pages. `access`
//! has the rights of callers; `accounts` and `tenants` have rules that span several endpoints.
//!
//! A test belongs here if it checks the answers that a caller gets, but not sums of money.
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

mod access;
mod accounts;
mod api;
mod bad_input;
mod caches;
mod catalog;
mod compressed_bodies;
mod console;
mod docs;
mod gateway;
mod http_rules;
mod jobs;
mod metrics;
mod openapi;
mod operators;
mod pages;
mod pooler;
mod races;
mod readiness;
mod service;
mod tenants;
mod webhooks;
