//! The protocol of the gateway for model calls, without input and output: bytes in, bytes and decisions out.
//!
//! * [`sse`] cuts a body into server-sent events.
//! * [`json`] edits objects and leaves every other byte as it came.

pub mod json;
pub mod sse;
