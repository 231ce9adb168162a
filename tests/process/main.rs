//! The program as operators use it: commands, files, signals, kills, full disks, clock jumps, failing
//! databases, proxies, and the documents and examples for operators.
//!
//! `repository` compares documents and examples with the code. A test belongs here if it starts a process, or
//! tests the database itself.
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

mod backup;
mod bounds;
mod commands;
mod crashes;
mod database;
mod emergency;
mod faults;
mod listeners;
mod log;
mod mail;
mod plans;
mod postgres;
mod receipts;
mod replicas;
mod repository;
mod sdk;
mod starts;
mod telemetry;
mod tls;
mod unsafe_settings;
mod upgrade;
