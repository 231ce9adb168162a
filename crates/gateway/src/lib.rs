//! The protocol of the gateway for model calls, without input and output: bytes in, bytes and decisions out.
//!
//! * [`sse`] cuts a body into server-sent events.
//! * [`json`] edits objects and leaves every other byte as it came.
//! * [`kind`] names the kinds of upstreams.
//! * [`errors`] makes an upstream's error presentable.

pub mod errors;
pub mod json;
pub mod kind;
mod lenient;
pub mod sse;
