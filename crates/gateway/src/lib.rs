//! The protocol of the gateway for model calls, without input and output: bytes in, bytes and decisions out.
//!
//! * [`sse`] cuts a body into server-sent events.

pub mod sse;
