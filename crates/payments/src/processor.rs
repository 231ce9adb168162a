//! The Stripe client and the handling of its errors.

use kernel::error::{Code, Error};
use kernel::secrets::Secret;
use stripe::{Client, IdempotencyKey};

use crate::Payments;

/// The client of the Stripe account, and the secret that signs its events.
#[derive(Debug)]
pub struct Processor {
    pub(crate) client: Client,
    pub(crate) webhook_secret: Secret,
}

/// Returns the idempotency key of a request to Stripe. Repetitions use the same one.
///
/// # Errors
/// The key is too long, which is impossible.
pub(crate) fn key(text: String) -> Result<IdempotencyKey, Error> {
    IdempotencyKey::new(text).ok_or_else(|| Error::internal("an idempotency key that Stripe rejects"))
}

impl Payments {
    /// Logs a failed request to Stripe, and returns the error for a waiting caller.
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
