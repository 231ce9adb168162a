//! Limits on the size of a request and on the time for its body.

use std::time::Duration;

/// The maximum number of bytes of an HTML form.
pub const MAX_FORM_BYTES: usize = 16 * 1024;
/// The maximum time for the body of a call on the public listener, regardless of the configuration. It is
/// short because the credential is checked before the body is read.
const PUBLIC_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimit {
    pub max_bytes: usize,
    /// The maximum time until the body has arrived. The configuration may set a shorter time.
    pub timeout: Duration,
    /// `true` for bodies from inference servers, which may take the whole budget for unfinished bodies.
    pub is_trusted: bool,
}

impl BodyLimit {
    /// Returns the limit of a body from an inference server: the whole budget, and the configured timeout.
    pub const fn service(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: Duration::MAX, is_trusted: true }
    }

    /// Returns the limit of a body on the public listener.
    pub const fn public(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: PUBLIC_BODY_TIMEOUT, is_trusted: false }
    }

    /// Returns the limit of a model call's body on the public listener. Large prompts may take the whole
    /// configured timeout.
    pub const fn model_call(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: Duration::MAX, is_trusted: false }
    }

    /// Returns the limit of an HTML form.
    pub const fn form() -> Self {
        Self::public(MAX_FORM_BYTES)
    }
}
