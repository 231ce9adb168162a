//! The protocol of the gateway for model calls, without input and output: bytes in, bytes and decisions out.
//!
//! * [`sse`] cuts a body into server-sent events.
//! * [`json`] edits objects and leaves every other byte as it came.
//! * [`chat`] reads a request and writes it for an upstream of some [`kind`].
//! * [`count`] knows how many tokens were used.
//! * [`errors`] makes an upstream's error presentable.

pub mod chat;
pub mod count;
pub mod errors;
pub mod json;
pub mod kind;
mod lenient;
pub mod sse;
