//! API keys in memory, so that a model call doesn't wait for a query.
//!
//! A key is read on first use and held until a change of it, its project or its organization is applied (`live::feed`).
//! Expiry and the end of a secret are held against the clock at every use. Unknown keys are remembered apart from the
//! others for [`UNKNOWN_MS`], so that a flood of them pushes no known key out, and a burst of one key costs one query.

use std::net::IpAddr;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::rules::permissions::Permission;
use crate::secret::ApiKeySecret;
use crate::store;
use cluster::epochs::Stamp;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use tenants::rules::allowed_ips;

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
        if allowed_ips::ip_allowed(self.allowed_ips.as_ref(), address) {
            self.last_use.from(address);
            Ok(())
        } else {
            Err(Code::IpNotAllowed.into())
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
    db: Db,
    feed: Arc<Feed>,
    /// The prefix of secrets.
    prefix: String,
    held: Cache<[u8; 32], Held, Bytes>,
    unknown: Cache<[u8; 32], Time>,
}

impl Keyring {
    /// An empty keyring: it reads keys from this database when they are first used, and holds them as long as the feed says
    /// that they haven't changed.
    pub fn new(db: Db, feed: Arc<Feed>, prefix: String) -> Self {
        Self {
            db,
            feed,
            prefix,
            held: Cache::with_weighter(CAPACITY_KEYS, CAPACITY_BYTES, Bytes),
            unknown: Cache::new(CAPACITY_UNKNOWN),
        }
    }

    /// The live key of this secret.
    ///
    /// # Errors
    /// 401 when there is none, with a code of its own when it has expired; 503 when the database can't say.
    pub async fn authenticate(&self, secret: &str, now: Time) -> Result<Arc<LiveKey>, Error> {
        // The checksum refuses a typo, and random garbage, without a look-up.
        let secret = ApiKeySecret::parse(&self.prefix, secret).ok_or(Code::InvalidApiKey)?;
        let hash = secret.hash();
        let key = match self.known(&hash, now) {
            Some(key) => key,
            // Boxed: what a query needs would make every known key's future large, and futures are moved.
            None => Box::pin(self.look_up(hash, now)).await?.ok_or(Code::InvalidApiKey)?,
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

    fn known(&self, hash: &[u8; 32], now: Time) -> Option<Arc<LiveKey>> {
        let held = self.held.get(hash)?;
        (self.feed.is_trusted(now) && held.is_current(&self.feed)).then_some(held.key)
    }

    fn is_unknown(&self, hash: &[u8; 32], now: Time) -> bool {
        let fresh = |at: Time| (0..UNKNOWN_MS).contains(&(now.unix_ms() - at.unix_ms()));
        self.unknown.get(hash).is_some_and(fresh)
    }

    async fn look_up(&self, hash: [u8; 32], now: Time) -> Result<Option<Arc<LiveKey>>, Error> {
        while self.feed.is_trusted(now) {
            if self.is_unknown(&hash, now) {
                return Ok(None);
            }
            match self.held.get_value_or_guard_async(&hash).await {
                Ok(held) if held.is_current(&self.feed) => return Ok(Some(held.key)),
                // It makes way, so that of a burst one reads it again and the others wait for that.
                Ok(_) => {
                    self.held.remove_if(&hash, |held| !held.is_current(&self.feed));
                }
                // Whoever had the guard before us may have found out that there is no such key.
                Err(_) if self.is_unknown(&hash, now) => return Ok(None),
                Err(guard) => {
                    let (stamp, key) = self.feed.epochs.stamped(self.load(hash, now)).await;
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
        self.load(hash, now).await
    }

    async fn load(&self, hash: [u8; 32], now: Time) -> Result<Option<Arc<LiveKey>>, Error> {
        let key = store::api_keys::by_secret_hash(&mut self.db.read().await?, hash).await?;
        if key.is_none() {
            self.unknown.insert(hash, now);
        }
        Ok(key.map(Arc::new))
    }
}
