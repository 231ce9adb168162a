//! The endpoints of both listeners: HTTP only.
//!
//! * [`routes`] is the table of endpoints, each with its access and its handler; [`row`] is a row of it, [`paths`] has
//!   what also holds for paths without a route.
//! * [`gate`] reads the credential and the path; `tenants::access` and `keys::access` decide.
//! * The handlers of the public listener are laid out like the URLs: without `/v1` and every `{…}`, the words
//!   of a URL are the handler's path; a verb follows if the URL ends in a noun.
//! * [`service`] holds the handlers of the service listener, [`pages`] the pages behind mail links, and
//!   [`invoice_page`] the printable invoice; [`members`] has what members of organizations and of projects
//!   share, [`paging`], [`dates`], [`csv`] and [`accept`] what lists and reports do, [`refusals`] the error codes
//!   of several operations.
//! * [`creation`] commits what operations have made, and stores the answers to idempotency keys.
//! * [`openapi`] describes all of it. [`settings`] are those of the console, whose pages and routes are in the
//!   crate `console`.
//!
//! A handler reads its input, calls one operation of a subject and maps the result. It has no SQL and begins
//! no transaction: this crate doesn't depend on `db`.

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
