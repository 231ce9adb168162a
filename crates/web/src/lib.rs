//! The HTTP frame: from a socket to a handler and back. It knows no subject.
//!
//! * [`server`] accepts connections, reads requests, and sees to it that each gets exactly one answer, one line of log
//!   and its place in the metrics.
//! * [`route`] is one row of the table of endpoints: method, path, access and handler. Its types hold them together: a
//!   handler takes the scope that its [`Access`](route::Access) makes, so it can't run unchecked.
//! * [`call`] is a request on its way to a handler; [`input`] reads its body and its query, within [`body_budget`].
//! * [`reply`] writes answers and errors, and describes them for the OpenAPI document.
//! * [`frame`] holds what both listeners share, and [`settings`] what an operator can set.
//!
//! A program gives its routes a state: [`route::State`].

pub mod body_budget;
pub mod call;
pub mod frame;
pub mod input;
pub mod reply;
pub mod route;
pub mod server;
pub mod settings;

pub use call::Call;
pub use frame::Frame;
