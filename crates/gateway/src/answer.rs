//! Answers of upstreams, prepared for the client, and their usage.
//!
//! * [`StreamCleaner`] counts the events of a stream, and removes data that the client didn't request.
//! * [`PlainAnswer`] does the same for an answer that isn't a stream.

pub(crate) mod chunk;
mod messages;
mod plain;
mod responses;
mod stream;

pub use plain::{PlainAnswer, PlainError};
pub(crate) use plain::{tier_at_the_end, usage_at_the_end};
pub(crate) use stream::is_error;
pub use stream::{Cleaned, StreamCleaner};
