//! Tollkeeper: a self-hosted control plane for AI model platforms.
//!
//! The crates in `crates/` contain the subjects and the handlers (docs/architecture.md). This package
//! assembles them:
//!
//! - [`app`] builds the handles and starts the database, [`serve`] runs the listeners, and [`jobs`] runs in
//!   the background.
//! - [`config`] and [`cli`] are for the operator.
//!
//! The crates are re-exported for the tests, the load program, and the fuzz targets.

pub use kernel::{clock, error, ids, money, patch, random};
pub use {
    accounts, api, billing, call_log, catalog, cluster, console, db, events, gateway, idempotency, input,
    kernel, keys, logging, mail, metrics, monitor, operators, payments, sign_on, stripe, telemetry, tenants,
    trail, web, webhooks,
};

pub mod app;
pub mod cli;
pub mod config;
pub mod jobs;
pub mod serve;
