//! API keys in memory, so that a model call doesn't wait for a query.
//!
//! A key is loaded on first use and trusted for [`TRUST_MS`]; then the next use reads it again. That is the whole
//! protocol between replicas: what changed in the database holds everywhere within that time. Unknown keys are remembered
//! as unknown for the same time, and a burst of one key costs one query.

use std::net::IpAddr;
use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::live::limiter::{self, Who};
use crate::rules::restrictions::{self, Permission};
use crate::secrets::api_key::ApiKeySecret;
use crate::store;
use crate::store::api_keys::LiveKey;

/// How long a snapshot is trusted, in milliseconds.
pub const TRUST_MS: i64 = 1_000;

/// How many keys are held at most; beyond it the ones least used make room.
const CAPACITY: usize = 100_000;

impl LiveKey {
    /// Refuses an address that isn't allowed; an unknown one isn't where there is a list.
    pub fn admit_address(&self, address: Option<IpAddr>) -> Result<(), Error> {
        if restrictions::ip_allowed(self.allowed_ips.as_ref(), address) {
            Ok(())
        } else {
            Err(Code::IpNotAllowed.into())
        }
    }

    /// Counts one request against the key's own rate.
    pub fn admit_rate(&self, app: &App, now: Time) -> Result<(), Error> {
        let Some(per_minute) = self.rate_limit else {
            return Ok(());
        };
        match app.limiter.check(limiter::key_for("api_key", Who::Id(self.id.as_u128())), per_minute, now) {
            Ok(_) => Ok(()),
            Err(limit) => Err(Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) }),
        }
    }

    /// Refuses what the key isn't for.
    pub fn admit_permission(&self, permission: Permission) -> Result<(), Error> {
        if self.permissions.contains(permission) {
            return Ok(());
        }
        let message = format!("This API key lacks the permission `{}`.", permission.as_str());
        Err(Error::new(Code::MissingPermission).message(message))
    }

    /// Refuses a model that the key is not restricted to.
    pub fn admit_model(&self, model: &str) -> Result<(), Error> {
        match &self.models {
            Some(models) if !models.iter().any(|allowed| allowed == model) => {
                Err(Code::ModelNotAllowed.into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses more tokens than the key allows for one request.
    pub fn admit_tokens(&self, tokens: i64) -> Result<(), Error> {
        match self.max_tokens {
            Some(most) if tokens > most => {
                let message = format!("This API key allows at most {most} tokens for one request.");
                Err(Error::new(Code::MaxTokensExceeded).param("max_tokens").message(message))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone)]
struct Snapshot {
    key: Option<Arc<LiveKey>>,
    read_at: Time,
}

/// The keys in memory, by the SHA-256 of their secret.
pub struct Keyring {
    cache: Cache<[u8; 32], Snapshot>,
}

impl Keyring {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self { cache: Cache::new(CAPACITY) }
    }

    /// The live key of this secret.
    ///
    /// # Errors
    /// 401 when there is none, with a code of its own when it has expired; 503 when the database can't say.
    pub async fn authenticate(&self, app: &App, secret: &str, now: Time) -> Result<Arc<LiveKey>, Error> {
        // The checksum refuses a typo, and random garbage, without a look-up.
        let secret = ApiKeySecret::parse(&app.config.api_keys.prefix, secret).ok_or(Code::InvalidApiKey)?;
        let hash = secret.hash();
        // What is too old makes way, so that of a burst one reads it again and the others wait for that.
        self.cache.remove_if(&hash, |snapshot| !is_trusted(snapshot, now));
        let key = match self.cache.get_value_or_guard_async(&hash).await {
            Ok(snapshot) => snapshot.key,
            Err(guard) => {
                // Boxed: what a query needs would make every known key's future large, and futures are moved.
                let key = Box::pin(load(app, hash)).await?;
                // The guard is lost only when somebody inserted meanwhile, which is as good.
                drop(guard.insert(Snapshot { key: key.clone(), read_at: now }));
                key
            }
        };
        let key = key.ok_or(Code::InvalidApiKey)?;
        if key.secret_ends_at.is_some_and(|at| at <= now) {
            return Err(Code::InvalidApiKey.into());
        }
        if key.expires_at.is_some_and(|at| at <= now) {
            return Err(Code::ApiKeyExpired.into());
        }
        Ok(key)
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self::new()
    }
}

fn is_trusted(snapshot: &Snapshot, now: Time) -> bool {
    (0..TRUST_MS).contains(&(now.unix_ms() - snapshot.read_at.unix_ms()))
}

async fn load(app: &App, hash: [u8; 32]) -> Result<Option<Arc<LiveKey>>, Error> {
    let mut tx = app.db.read().await?;
    Ok(store::api_keys::by_secret_hash(&mut tx, hash).await?.map(Arc::new))
}
