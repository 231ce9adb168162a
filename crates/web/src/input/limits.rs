//! How large a request may be and how long its body may take to come.

use std::time::Duration;

use crate::body_budget::BudgetShare;

/// The most bytes of an HTML form.
pub const MAX_FORM_BYTES: usize = 16 * 1024;
/// The most parameters of a query string, and fields of an HTML form.
pub const MAX_PARAMETERS: usize = 256;
/// The longest that the body of a call outside of the service listener may take to come, whatever the configuration
/// allows: a credential is looked at before the body.
const PUBLIC_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits for the body of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimit {
    /// The most bytes.
    pub max_bytes: usize,
    /// The longest that it may take to come; the configuration may say less.
    pub timeout: Duration,
    /// How much of the budget for unfinished bodies it may find taken.
    share: BudgetShare,
}

impl BodyLimit {
    /// The limit of a body from an inference server: within the whole budget, as slowly as the configuration allows.
    pub const fn service(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: Duration::MAX, share: BudgetShare::All }
    }

    /// The limit of a body from the public.
    pub const fn public(max_bytes: usize) -> Self {
        Self { max_bytes, timeout: PUBLIC_BODY_TIMEOUT, share: BudgetShare::ThreeQuarters }
    }

    /// How much of the budget may be taken for a body of this size to find room. Inference servers come before the public,
    /// and logins before the large bodies that anybody with an account can send.
    pub fn share(&self, bytes: usize) -> BudgetShare {
        match self.share {
            BudgetShare::ThreeQuarters if bytes > MAX_FORM_BYTES => BudgetShare::Half,
            share => share,
        }
    }

    /// The limit of an HTML form.
    pub const fn form() -> Self {
        Self::public(MAX_FORM_BYTES)
    }
}
