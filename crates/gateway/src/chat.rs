//! Chat completions, `POST /v1/chat/completions`.
//!
//! * [`ChatRequest`] reads what matters of a client's body, and
//!   [`rewrite`](ChatRequest::rewrite) makes of it the body for an upstream.
//! * [`StreamCleaner`] and [`PlainAnswer`] count the upstream's answer, and make it the client's.

pub(crate) mod chunk;
mod cleaning;
mod messages;
mod request;
mod rewriting;

pub use cleaning::{Cleaned, PlainAnswer, PlainError, StreamCleaner};
pub use messages::{Messages, Parts};
pub use request::{ChatRequest, IMAGE_TOKENS, MEDIA_TOKENS, MESSAGE_TEMPLATE_TOKENS, TEMPLATE_TOKENS};
pub use rewriting::{InjectedField, Injection, Upstreaming, refused_field};
