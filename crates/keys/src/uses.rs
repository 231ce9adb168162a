//! The use of a key: looks up the key, counts the request against its rate, and stores the use.

use std::sync::Arc;

use crate::store::api_keys::LiveKey;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::limiter::{self, Allowance, Subject};

use super::Keys;

/// The rate of a key, and the remaining part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemainingRate {
    /// Requests per minute.
    pub limit: u32,
    /// The requests that remain after the admitted request.
    pub allowed: Allowance,
}

impl Keys {
    /// Returns the live key of this secret.
    ///
    /// # Errors
    /// 401 if no key has this secret, with a separate code if the key has expired; 503 if the database can't
    /// be read.
    pub fn authenticate(
        &self,
        secret: &str,
        now: Time,
    ) -> impl Future<Output = Result<Arc<LiveKey>, Error>> + Send {
        self.keyring.authenticate(secret, now)
    }

    /// Returns `true` if a credential looks like an API key of this installation.
    pub fn is_key(&self, credential: &str) -> bool {
        credential.starts_with(&self.settings.prefix)
    }

    /// Counts one request against the key's rate, and stores the use of the key.
    ///
    /// # Errors
    /// 429 if the rate is used up. In that case, no use is stored.
    pub async fn admit_rate(&self, key: &Arc<LiveKey>, now: Time) -> Result<(), Error> {
        self.take_rate(key, now).await?;
        self.note_use(key, now);
        Ok(())
    }

    /// Counts one request against the key's rate. Returns the remaining rate; `None` if the key has no rate
    /// limit.
    ///
    /// # Errors
    /// 429 if the rate is used up.
    pub async fn take_rate(&self, key: &LiveKey, now: Time) -> Result<Option<RemainingRate>, Error> {
        let Some(limit) = key.rate_limit else { return Ok(None) };
        let allowed = self
            .rates
            .take(meter(key), limit, now)
            .await
            .map_err(|limit| Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) })?;
        Ok(Some(RemainingRate { limit, allowed }))
    }

    /// Undoes a request that [`Keys::take_rate`] has counted, because the call is refused for another reason.
    pub fn give_rate_back(&self, key: &LiveKey, now: Time) {
        if key.rate_limit.is_some() {
            self.rates.give_back(meter(key), now);
        }
    }

    /// Stores a use of the key, which is written a few seconds later.
    pub fn note_use(&self, key: &Arc<LiveKey>, now: Time) {
        self.last_uses.note(key, now);
    }
}

fn meter(key: &LiveKey) -> u128 {
    limiter::key_for("api_key", Subject::Id(key.id.as_u128()))
}
