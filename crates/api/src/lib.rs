//! The endpoints of both listeners: HTTP only.
//!
//! * [`routes`] is the table of endpoints, each with its access and its handler. [`row`] builds a row, and
//!   [`paths`] has the rules that also apply to paths without a route.
//! * [`gate`] reads the credential and the path; `tenants::access` and `keys::access` decide.
//! * The modules of the public listener's handlers follow the URLs, without `/v1` and the parameters in
//!   braces. If a URL ends in a noun, the name of the function is a verb.
//! * [`service`] contains the handlers of the service listener, [`pages`] the pages behind links in e-mails,
//!   and [`invoice_page`] the printable invoice.
//! * Several handlers share [`members`], for members of organizations and of projects; [`paging`], [`dates`],
//!   [`csv`] and [`accept`], for lists and reports; and [`refusals`], groups of error codes.
//! * [`creation`] commits operations that create something, and stores their responses for idempotency keys.
//! * [`openapi`] generates the OpenAPI document. [`settings`] contains the settings of the console; its pages
//!   and routes are in the crate `console`.
//!
//! A handler reads its input, calls one operation of a subject and maps the result. It contains no SQL and
//! starts no transaction: this crate doesn't depend on `db`.

pub mod accept;
pub mod api;
pub mod auth;
pub mod billing;
pub mod chat;
pub mod completions;
pub mod creation;
pub mod csv;
pub mod dates;
pub mod embeddings;
mod frame;
pub mod gate;
pub mod invoice_page;
pub mod members;
pub mod messages;
pub mod model_calls;
pub mod models;
pub mod openapi;
pub mod organizations;
pub mod pages;
pub mod paging;
pub mod paths;
pub mod prices;
pub mod refusals;
pub mod responses;
pub mod routes;
pub mod row;
pub mod service;
pub mod settings;
pub mod state;
pub mod well_known;

pub use state::Api;
