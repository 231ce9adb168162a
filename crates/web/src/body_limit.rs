//! Limits on the size of a request and on the time for its body.

use std::time::Duration;

use crate::body_budget::BudgetShare;

/// The most bytes of an HTML form.
pub const MAX_FORM_BYTES: usize = 16 * 1024;
/// The longest time for the body of a call outside of the service listener, regardless of the configuration:
/// the credential was checked before the body.
const PUBLIC_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimit {
    pub max_bytes: usize,
    /// The longest time until the body has arrived; the configuration may set less.
    pub timeout: Duration,
    /// The share of the budget for unfinished bodies.
    share: BudgetShare,
}

impl BodyLimit {
    /// Returns the limit of a body from an inference server: the whole budget, and the configured timeout.
    pub const fn service(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: Duration::MAX, share: BudgetShare::All }
    }

    /// Returns the limit of a body on the public listener.
    pub const fn public(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: PUBLIC_BODY_TIMEOUT, share: BudgetShare::ThreeQuarters }
    }

    /// Returns the limit of a model call's body on the public listener: large prompts may take as long as the
    /// configuration says.
    pub const fn model_call(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: Duration::MAX, share: BudgetShare::ThreeQuarters }
    }

    /// Returns the share of the budget in which a body of this size may find room. Inference servers come
    /// before the public listener, and logins before the large bodies that every account can send.
    pub fn share(&self, bytes: usize) -> BudgetShare {
        match self.share {
            BudgetShare::ThreeQuarters if bytes > MAX_FORM_BYTES => BudgetShare::Half,
            share => share,
        }
    }

    /// Returns the limit of an HTML form.
    pub const fn form() -> Self {
        Self::public(MAX_FORM_BYTES)
    }
}
