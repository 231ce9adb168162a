//! The endpoints of both listeners: HTTP only.
//!
//! * [`routes`] is the table of endpoints, each with its access and its handler.
//! * [`gate`] reads who calls what; the judgement is of `tenants::access` and `keys::access`.
//! * The handlers of the public listener are laid out like the URLs: drop `/v1` and every `{…}` of a URL, and the words
//!   left are the handler's path; a verb follows where the URL ends in a noun.
//! * [`service`] holds the handlers of the service listener, [`pages`] the pages behind the links of mails, and
//!   [`invoice_page`] invoices as pages.
//! * [`openapi`] describes all of it.
//!
//! A handler reads its input, calls one operation of a subject and maps the result. It holds no SQL and no
//! transaction: this crate doesn't depend on `db`.

pub mod auth;
pub mod billing;
pub mod gate;
pub mod invoice_page;
pub mod models;
pub mod openapi;
pub mod organizations;
pub mod pages;
pub mod paging;
pub mod routes;
pub mod service;
pub mod state;
pub mod well_known;

pub use state::Api;
