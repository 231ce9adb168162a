//! The gateway for model calls (docs/contract/gateway.md): a call is admitted, forwarded to an upstream,
//! counted and settled.
//!
//! * [`Gateway`] is the handle, and [`call()`] makes a model call. Each call runs in its own task:
//!   `admission` checks it, `call` reserves its price and settles it, `opening` chooses and calls an
//!   upstream, and `streaming` forwards events.
//! * `transport` has the connections to upstreams, `queue` limits the calls at an upstream, and `routing`
//!   chooses among routes. `record` writes a call's line in the log. `settlement` captures or releases the
//!   reservation, and `progress` extends it in the meantime. `demo` is an upstream in this process, and
//!   [`Dialect`] describes the differences between kinds of upstreams. [`count_tokens`] counts a prompt
//!   without a call. [`health`] checks whether upstreams work, `learning` checks which fields they accept,
//!   and [`probe`] checks how they count.
//!
//! The protocol modules do no I/O: they convert bytes to other bytes and to decisions.
//!
//! * [`sse`] splits a body into server-sent events.
//! * [`json`] edits objects and leaves every other byte unchanged.
//! * [`request`] parses a client's request and writes the request for an upstream.
//! * [`answer`] cleans the upstream's answer for the client.
//! * [`count`] counts the tokens used.
//! * [`errors`] removes addresses and secrets from an upstream's error.
//!
//! [`media`] loads the remote media of a request, and inlines them for the upstream.

mod admission;
pub mod answer;
mod anthropic_headers;
mod backlog;
mod balances;
mod body;
mod breaker;
mod call;
pub mod count;
mod counters;
mod demo;
mod dialect;
pub mod errors;
mod gateway;
pub mod health;
pub mod json;
mod learning;
mod lenient;
pub mod media;
mod memory;
mod names;
mod opening;
mod operation;
mod prefix_cache;
pub mod probe;
mod probe_outcomes;
mod progress;
mod queue;
mod record;
pub mod request;
mod revealing_names;
mod routing;
mod settlement;
pub mod sse;
mod streaming;
mod token_counts;
mod transport;

pub use ::call_log::rules::clients::UserAgent;
pub use admission::{Credential, ModelCall};
pub use anthropic_headers::AnthropicHeaders;
pub use call::{Answer, AnswerBody, call};
pub use dialect::Dialect;
pub use gateway::{Gateway, Parts, Settings};
pub use media::MediaLoader;
pub use operation::Operation;
pub use streaming::Events;
pub use token_counts::{TokenCount, count_tokens};
