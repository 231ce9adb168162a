//! Stripe, and what its errors mean here.

use kernel::error::{Code, Error};
use kernel::secrets::Secret;
use stripe::{Client, IdempotencyKey};

use crate::Payments;

/// Stripe: the client of the account, and the secret by which its events are signed.
#[derive(Debug)]
pub struct Processor {
    pub(crate) client: Client,
    pub(crate) webhook_secret: Secret,
}

/// Returns the key of a request to Stripe: the same for each repetition.
///
/// # Errors
/// It is too long, which none is.
pub(crate) fn key(text: String) -> Result<IdempotencyKey, Error> {
    IdempotencyKey::new(text).ok_or_else(|| Error::internal("an idempotency key that Stripe doesn't take"))
}

impl Payments {
    /// Logs a request that Stripe hasn't answered as hoped, and returns the error for a caller who waits for it.
    pub(crate) fn failed(&self, what: &str, error: &stripe::Error) -> Error {
        match error {
            stripe::Error::Refused(_) => tracing::error!("{what}: {error}"),
            stripe::Error::Misconfigured(_) => {
                self.counters.unreachable.inc();
                tracing::error!("{what}: {error}: check `payments.stripe_secret_key_file`");
            }
            stripe::Error::Unknown { .. } | stripe::Error::Unreadable { .. } => {
                self.counters.unreachable.inc();
                tracing::warn!("{what}: {error}");
            }
        }
        Error { internal: Some(error.to_string()), ..Error::new(Code::ProcessorUnavailable) }
    }
}
