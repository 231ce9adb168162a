//! The HTTP frame, from a socket to a handler and back. It depends on no subject.
//!
//! * [`server`] accepts connections, reads requests, and ensures that each request gets exactly one response,
//!   one log line and one count in the metrics.
//! * [`route`] defines a row of the table of endpoints: method, path, access and handler. A handler takes the
//!   scope that the row's [`Access`](route::Access) returns, so it can't run without the check.
//! * [`call`] is a request that is passed to a handler. [`input`] reads its body and query, within
//!   [`body_budget`] and [`body_limit`], and [`content_coding`] decodes the body. [`forms`] reads an HTML
//!   form as the equivalent JSON body. [`entity_tags`] reads the versions that a change expects.
//! * [`detached`] runs work that continues if its client disconnects.
//! * [`reply`] writes responses and errors, and describes them for the OpenAPI document.
//! * [`frame`] contains the state shared by both listeners, and [`settings`] the configuration.
//!
//! A program implements [`state::State`] for its own state.

pub mod body_budget;
pub mod body_limit;
pub mod call;
pub mod content_coding;
pub mod detached;
pub mod entity_tags;
pub mod forms;
pub mod frame;
pub mod input;
pub mod reply;
pub mod request_body;
pub mod route;
pub mod server;
pub mod settings;
pub mod state;

pub use call::Call;
pub use frame::Frame;
