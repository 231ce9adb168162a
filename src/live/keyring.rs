//! API keys in memory, so that a model call doesn't wait for a query.
//!
//! A key is read on first use and held until a change of it, its project or its organization is applied (`live::feed`).
//! Expiry and the end of a secret are held against the clock at every use. Unknown keys are remembered apart from the
//! others for [`UNKNOWN_MS`], so that a flood of them pushes no known key out, and a burst of one key costs one query.

use std::net::IpAddr;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::app::App;
use crate::clock::Time;
use crate::error::{Code, Error};
use crate::live::epochs::Stamp;
use crate::live::feed::Feed;
use crate::live::limiter::{self, Allowed, Who};
use crate::live::rates;
use crate::rules::restrictions::{self, Permission};
use crate::secrets::api_key::ApiKeySecret;
use crate::store;
use crate::store::api_keys::LiveKey;

/// How long an unknown key is remembered as unknown, in milliseconds.
pub const UNKNOWN_MS: i64 = 1_000;

/// What the keys in memory may take, in bytes; beyond it the ones least used make room. A key without restrictions
/// takes about 400.
const CAPACITY_BYTES: u64 = 512 << 20;
/// How many keys that is, about: it sizes what the cache remembers of those that it let go.
const CAPACITY_KEYS: usize = 1_000_000;
/// How many unknown keys are remembered at most, at about 100 bytes each.
pub const CAPACITY_UNKNOWN: usize = 16_384;

impl LiveKey {
    /// Refuses an address that isn't allowed; an unknown one isn't where there is a list. The first thing that is asked
    /// about a use: an allowed one is noted as where the key was used from.
    pub fn admit_address(&self, address: Option<IpAddr>) -> Result<(), Error> {
        if restrictions::ip_allowed(self.allowed_ips.as_ref(), address) {
            self.last_use.from(address);
            Ok(())
        } else {
            Err(Code::IpNotAllowed.into())
        }
    }

    /// Counts one request against the key's own rate. What is let through is a use of the key.
    pub async fn admit_rate(self: &Arc<Self>, app: &App, now: Time) -> Result<(), Error> {
        self.take_rate(app, now).await?;
        self.note_use(app, now);
        Ok(())
    }

    /// Counts one request against the key's own rate: what is left of it, where there is one.
    pub async fn take_rate(&self, app: &App, now: Time) -> Result<Option<Left>, Error> {
        let Some(limit) = self.rate_limit else { return Ok(None) };
        let allowed = rates::take(app, self.meter(), limit, now)
            .await
            .map_err(|limit| Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) })?;
        Ok(Some(Left { limit, allowed }))
    }

    /// Takes that request back, when something else refuses it.
    pub fn give_rate_back(&self, app: &App, now: Time) {
        if self.rate_limit.is_some() {
            rates::give_back(app, self.meter(), now);
        }
    }

    /// What is let through is a use of the key.
    pub fn note_use(self: &Arc<Self>, app: &App, now: Time) {
        app.last_uses.note(self, now);
    }

    fn meter(&self) -> u128 {
        limiter::key_for("api_key", Who::Id(self.id.as_u128()))
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

/// A rate, in requests a minute, and what is left of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// Requests a minute.
    pub limit: u32,
    /// After the request that was just let through.
    pub allowed: Allowed,
}

/// A key, and when it was read.
#[derive(Clone)]
struct Held {
    key: Arc<LiveKey>,
    stamp: Stamp,
}

impl Held {
    fn is_current(&self, feed: &Feed) -> bool {
        let key = &self.key;
        feed.epochs.holds_key(self.stamp, key.id, key.project_id, key.organization_id)
    }
}

/// Weighs a key in bytes.
#[derive(Clone, Copy)]
struct Bytes;

impl Weighter<[u8; 32], Held> for Bytes {
    fn weight(&self, _: &[u8; 32], held: &Held) -> u64 {
        // The cache's own share is 21 bytes an entry, of a table that is two thirds full at best.
        let entry = (size_of::<[u8; 32]>() + size_of::<Held>() + 21) * 2;
        let bytes = entry + held.key.memory();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The keys in memory, by the SHA-256 of their secret.
pub struct Keyring {
    held: Cache<[u8; 32], Held, Bytes>,
    unknown: Cache<[u8; 32], Time>,
}

impl Keyring {
    /// Holds nothing yet.
    pub fn new() -> Self {
        Self {
            held: Cache::with_weighter(CAPACITY_KEYS, CAPACITY_BYTES, Bytes),
            unknown: Cache::new(CAPACITY_UNKNOWN),
        }
    }

    /// The live key of this secret.
    ///
    /// # Errors
    /// 401 when there is none, with a code of its own when it has expired; 503 when the database can't say.
    pub async fn authenticate(&self, app: &App, secret: &str, now: Time) -> Result<Arc<LiveKey>, Error> {
        // The checksum refuses a typo, and random garbage, without a look-up.
        let secret = ApiKeySecret::parse(&app.config.api_keys.prefix, secret).ok_or(Code::InvalidApiKey)?;
        let hash = secret.hash();
        let key = match self.known(&app.feed, &hash, now) {
            Some(key) => key,
            // Boxed: what a query needs would make every known key's future large, and futures are moved.
            None => Box::pin(self.look_up(app, hash, now)).await?.ok_or(Code::InvalidApiKey)?,
        };
        if key.secret_ends_at.is_some_and(|at| at <= now) {
            return Err(Code::InvalidApiKey.into());
        }
        if key.expires_at.is_some_and(|at| at <= now) {
            return Err(Code::ApiKeyExpired.into());
        }
        Ok(key)
    }

    /// How many keys are held, and the bytes that they take.
    pub fn size(&self) -> (usize, u64) {
        (self.held.len(), self.held.weight())
    }

    /// How many keys are remembered as unknown.
    pub fn unknown(&self) -> usize {
        self.unknown.len()
    }

    fn known(&self, feed: &Feed, hash: &[u8; 32], now: Time) -> Option<Arc<LiveKey>> {
        let held = self.held.get(hash)?;
        (feed.is_trusted(now) && held.is_current(feed)).then_some(held.key)
    }

    fn is_unknown(&self, hash: &[u8; 32], now: Time) -> bool {
        let fresh = |at: Time| (0..UNKNOWN_MS).contains(&(now.unix_ms() - at.unix_ms()));
        self.unknown.get(hash).is_some_and(fresh)
    }

    async fn look_up(&self, app: &App, hash: [u8; 32], now: Time) -> Result<Option<Arc<LiveKey>>, Error> {
        while app.feed.is_trusted(now) {
            if self.is_unknown(&hash, now) {
                return Ok(None);
            }
            match self.held.get_value_or_guard_async(&hash).await {
                Ok(held) if held.is_current(&app.feed) => return Ok(Some(held.key)),
                // It makes way, so that of a burst one reads it again and the others wait for that.
                Ok(_) => {
                    self.held.remove_if(&hash, |held| !held.is_current(&app.feed));
                }
                // Whoever had the guard before us may have found out that there is no such key.
                Err(_) if self.is_unknown(&hash, now) => return Ok(None),
                Err(guard) => {
                    let (stamp, key) = app.feed.epochs.stamped(self.load(app, hash, now)).await;
                    let key = key?;
                    if let Some(key) = &key {
                        // The guard is lost only when somebody inserted meanwhile, which is as good.
                        drop(guard.insert(Held { key: Arc::clone(key), stamp }));
                    }
                    return Ok(key);
                }
            }
        }
        // What is held can't be trusted now, so each asks for itself.
        if self.is_unknown(&hash, now) {
            return Ok(None);
        }
        self.load(app, hash, now).await
    }

    async fn load(&self, app: &App, hash: [u8; 32], now: Time) -> Result<Option<Arc<LiveKey>>, Error> {
        let key = store::api_keys::by_secret_hash(&mut app.db.read().await?, hash).await?;
        if key.is_none() {
            self.unknown.insert(hash, now);
        }
        Ok(key.map(Arc::new))
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self::new()
    }
}
