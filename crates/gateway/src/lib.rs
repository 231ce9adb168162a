//! The gateway for model calls (docs/contract/gateway.md): a call is admitted, passed to an upstream, counted
//! and settled.
//!
//! * [`Gateway`] is the handle, and [`chat()`] makes a chat call. Each call is a task of its own: `call` reserves
//!   its price and settles it, `opening` chooses and asks an upstream, and `streaming` passes events on.
//! * `transport` holds the connections to upstreams, `routing` chooses among routes, `settlement` captures or
//!   releases what was reserved, and `demo` is an upstream in this process.
//!
//! The protocol is without input and output, bytes in, bytes and decisions out:
//!
//! * [`sse`] cuts a body into server-sent events.
//! * [`json`] edits objects and leaves every other byte as it came.
//! * [`mod@chat`] reads a request and writes it for an upstream.
//! * [`count`] knows how many tokens were used.
//! * [`errors`] makes an upstream's error presentable.

mod body;
mod breaker;
mod call;
pub mod chat;
pub mod count;
mod counters;
mod demo;
pub mod errors;
mod gateway;
pub mod json;
mod lenient;
mod opening;
mod routing;
mod settlement;
pub mod sse;
mod streaming;
mod transport;

pub use call::{Answer, AnswerBody, ChatCall, chat};
pub use gateway::{Gateway, Parts};
pub use settlement::EVENT_SOURCE;
pub use streaming::Events;
