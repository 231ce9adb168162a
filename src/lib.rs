//! Tollkeeper: a self-hosted control plane for AI model platforms.
//!
//! To read it in the order of a request:
//!
//! 1. [`routes`] is the table of endpoints, each with its access and its handler.
//! 2. [`server`] brings a request from the socket to its route and logs one line about it.
//! 3. [`gate`] reads who calls what; [`access`] judges it: it turns a caller into a scope, or refuses. [`roles`] is its table.
//! 4. [`input`] reads bodies and query parameters; [`reply`] and [`error`] write answers.
//! 5. [`api`] and [`service`] hold the handlers, laid out like the URLs; [`pages`] what people meet behind mail links,
//!    [`invoice_page`] what they print.
//! 6. [`rules`] decide, without input or output; [`store`] holds the SQL; [`db`] the two drivers.
//! 7. [`live`] is what one replica keeps in memory; [`secrets`] is everything that must not leak.
//! 8. [`jobs`] go on without a request; [`mail`] leaves through an outbox; [`audit`] checks the books.
//! 9. [`app`] ties these together; [`config`], [`cli`] and [`log`] are for the operator.

pub use db;
pub use kernel::{clock, error, html, ids, money, patch, random};
pub use telemetry;
pub use {
    accounts, billing, catalog, cluster, document, input as inputs, kernel, keys, logging, mail, metrics,
    tenants, trail,
};

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod gate;
pub mod input;
pub mod invoice_page;
pub mod jobs;
pub mod live;
pub mod openapi;
pub mod pages;
pub mod reply;
pub mod routes;
pub mod server;
pub mod service;
