//! The one test binary: the tree mirrors `src`.
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

mod access_matrix;
mod addresses;
mod api;
mod attacks;
mod audit;
mod backup;
mod bad_input;
mod billing;
mod bounds;
mod bounds_of_counts;
mod browser;
mod catalog;
mod cli;
mod console;
mod crashes;
mod cut_off;
mod db;
mod docs;
mod documents;
mod email_addresses;
mod exposure;
mod faults;
mod first_credit;
mod gate;
mod gateway;
mod guesses;
mod http_rules;
mod isolation;
mod jobs;
mod keys_never_rise;
mod layout;
mod listeners;
mod live;
mod log;
mod mail;
mod mail_bounds;
mod members_model;
mod metrics;
mod money_model;
mod openapi;
mod operators;
mod packaging;
mod pages;
mod passkeys;
mod passwords;
mod payments;
mod payments_model;
mod plans;
mod postgres;
mod races;
mod readiness;
mod readme;
mod sdk;
mod second_factor;
mod serve;
mod service;
mod sessions_model;
mod sign_on;
mod stripe;
mod support;
mod telemetry;
mod tls;
mod upgrade;
mod ways_in_model;
mod webhooks;
