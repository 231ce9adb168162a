//! The use of a key: it is found, its rate is counted, and the use is noted.

use std::sync::Arc;

use crate::store::api_keys::LiveKey;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::limiter;
use kernel::limiter::{Allowance, Subject};

use super::Keys;

/// A rate, in requests a minute, and what is left of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Requests a minute.
    pub limit: u32,
    /// After the request that was just let through.
    pub allowed: Allowance,
}

impl Keys {
    /// Returns the live key of this secret.
    ///
    /// # Errors
    /// 401 when there is none, with a code of its own when it has expired; 503 when the database can't say.
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

    /// Counts one request against the key's own rate, and notes the use of the key.
    ///
    /// # Errors
    /// 429 when the rate is used up; that is no use of the key.
    pub async fn admit_rate(&self, key: &Arc<LiveKey>, now: Time) -> Result<(), Error> {
        self.take_rate(key, now).await?;
        self.note_use(key, now);
        Ok(())
    }

    /// Counts one request against the key's own rate. Returns what is left of it; `None` when the key has no rate.
    ///
    /// # Errors
    /// 429 when the rate is used up.
    pub async fn take_rate(&self, key: &LiveKey, now: Time) -> Result<Option<Left>, Error> {
        let Some(limit) = key.rate_limit else { return Ok(None) };
        let allowed = self
            .rates
            .take(meter(key), limit, now)
            .await
            .map_err(|limit| Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) })?;
        Ok(Some(Left { limit, allowed }))
    }

    /// Takes back a request that [`Keys::take_rate`] has counted, because something else refuses it.
    pub fn give_rate_back(&self, key: &LiveKey, now: Time) {
        if key.rate_limit.is_some() {
            self.rates.give_back(meter(key), now);
        }
    }

    /// Notes a use of the key; it is written a few seconds later.
    pub fn note_use(&self, key: &Arc<LiveKey>, now: Time) {
        self.last_uses.note(key, now);
    }
}

fn meter(key: &LiveKey) -> u128 {
    limiter::key_for("api_key", Subject::Id(key.id.as_u128()))
}
