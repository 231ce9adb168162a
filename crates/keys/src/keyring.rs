//! A cache of API keys, so that model calls don't wait for a query.
//!
//! A key is read on first use, and cached until a change of the key, its project or its organization arrives
//! through [`cluster::feed`]. The expiry and the end of the secret are checked at every use. Unknown keys are
//! remembered in a separate cache for [`UNKNOWN_KEY_MS`], so that a flood of them doesn't evict known keys.
//! Many concurrent calls with the same key cost one query.

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
use kernel::futures::BoxFuture;
use tenants::rules::allowed_ips;

use crate::store::api_keys::LiveKey;

/// The time for which an unknown key is remembered as unknown, in milliseconds.
pub const UNKNOWN_KEY_MS: i64 = 1_000;

/// Maximum memory of cached keys, in bytes; beyond it, the least used keys are evicted. A key without
/// restrictions takes about 400 bytes.
const CAPACITY_BYTES: u64 = 512 << 20;
/// The estimated number of cached keys, which determines the size of the cache's record of evicted keys.
const CAPACITY_KEYS: usize = 1_000_000;
/// Maximum number of unknown keys that are remembered, at about 100 bytes each.
pub const MAX_UNKNOWN_KEYS: usize = 16_384;

impl LiveKey {
    /// Refuses an address that isn't allowed. If the key has a list of addresses, an unknown address is
    /// refused, too. Each use of a key begins with this check, because it stores an allowed address as the
    /// origin of the use.
    pub fn admit_address(&self, address: Option<IpAddr>) -> Result<(), Error> {
        if allowed_ips::ip_allowed(self.allowed_ips.as_ref(), address) {
            self.last_use.set_address(address);
            Ok(())
        } else {
            Err(Code::IpNotAllowed.into())
        }
    }

    /// Refuses a permission that the key lacks.
    pub fn admit_permission(&self, permission: Permission) -> Result<(), Error> {
        if self.permissions.contains(permission) {
            return Ok(());
        }
        let message = format!("This API key lacks the permission `{}`.", permission.as_str());
        Err(Error::new(Code::MissingPermission).message(message))
    }

    /// Refuses a model that the key's restrictions don't allow.
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
            Some(max) if tokens > max => {
                let message = format!("This API key allows at most {max} tokens for one request.");
                Err(Error::new(Code::MaxTokensExceeded).param("max_tokens").message(message))
            }
            _ => Ok(()),
        }
    }
}

/// A key, with the stamp that shows whether it is current.
#[derive(Clone)]
struct CachedKey {
    key: Arc<LiveKey>,
    stamp: Stamp,
}

impl CachedKey {
    fn is_current(&self, feed: &Feed) -> bool {
        let key = &self.key;
        feed.epochs.holds_key(self.stamp, key.id, key.project_id, key.organization_id)
    }
}

/// A weighter that measures cached keys in bytes.
#[derive(Clone, Copy)]
struct ByteWeighter;

impl Weighter<[u8; 32], CachedKey> for ByteWeighter {
    fn weight(&self, _: &[u8; 32], cached: &CachedKey) -> u64 {
        // The cache itself takes 21 bytes per entry, in a table that is at most two thirds full.
        let entry = (size_of::<[u8; 32]>() + size_of::<CachedKey>() + 21) * 2;
        let bytes = entry + cached.key.memory_bytes();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The cache of API keys, by the SHA-256 of their secret.
pub struct Keyring {
    db: Db,
    feed: Arc<Feed>,
    /// The prefix of secrets.
    prefix: String,
    cache: Cache<[u8; 32], CachedKey, ByteWeighter>,
    unknown: Cache<[u8; 32], Time>,
}

impl Keyring {
    /// Returns an empty keyring. It reads keys from this database on first use, and caches them until the
    /// feed reports a change.
    pub fn new(db: Db, feed: Arc<Feed>, prefix: String) -> Self {
        Self {
            db,
            feed,
            prefix,
            cache: Cache::with_weighter(CAPACITY_KEYS, CAPACITY_BYTES, ByteWeighter),
            unknown: Cache::new(MAX_UNKNOWN_KEYS),
        }
    }

    /// Returns the live key of this secret.
    ///
    /// # Errors
    /// 401 if no key has this secret, with a separate code if the key has expired; 503 if the database can't
    /// be read.
    pub async fn authenticate(&self, secret: &str, now: Time) -> Result<Arc<LiveKey>, Error> {
        // The checksum detects typos and random text without a lookup.
        let secret = ApiKeySecret::parse(&self.prefix, secret).ok_or(Code::InvalidApiKey)?;
        let hash = secret.hash();
        let key = match self.cached_key(&hash, now) {
            Some(key) => key,
            // `look_up` boxes its future: the state of a query would make this future large, even for cached
            // keys.
            None => self.look_up(hash, now).await?.ok_or(Code::InvalidApiKey)?,
        };
        if key.secret_ends_at.is_some_and(|at| at <= now) {
            return Err(Code::InvalidApiKey.into());
        }
        if key.expires_at.is_some_and(|at| at <= now) {
            return Err(Code::ApiKeyExpired.into());
        }
        Ok(key)
    }

    /// Returns the number of cached keys, and the bytes that they take.
    pub fn size(&self) -> (usize, u64) {
        (self.cache.len(), self.cache.weight())
    }

    /// Returns the number of keys that are remembered as unknown.
    pub fn unknown_count(&self) -> usize {
        self.unknown.len()
    }

    fn cached_key(&self, hash: &[u8; 32], now: Time) -> Option<Arc<LiveKey>> {
        let cached = self.cache.get(hash)?;
        (self.feed.is_trusted(now) && cached.is_current(&self.feed)).then_some(cached.key)
    }

    fn is_unknown(&self, hash: &[u8; 32], now: Time) -> bool {
        let is_recent = |at: Time| (0..UNKNOWN_KEY_MS).contains(&(now.unix_ms() - at.unix_ms()));
        self.unknown.get(hash).is_some_and(is_recent)
    }

    fn look_up(&self, hash: [u8; 32], now: Time) -> BoxFuture<'_, Result<Option<Arc<LiveKey>>, Error>> {
        Box::pin(self.load_once(hash, now))
    }

    /// Reads a key from the database for all concurrent callers.
    async fn load_once(&self, hash: [u8; 32], now: Time) -> Result<Option<Arc<LiveKey>>, Error> {
        while self.feed.is_trusted(now) {
            if self.is_unknown(&hash, now) {
                return Ok(None);
            }
            match self.cache.get_value_or_guard_async(&hash).await {
                Ok(cached) if cached.is_current(&self.feed) => return Ok(Some(cached.key)),
                // Remove the outdated entry, so that one of many concurrent callers rereads the key and the
                // others wait.
                Ok(_) => {
                    self.cache.remove_if(&hash, |cached| !cached.is_current(&self.feed));
                }
                // The previous holder of the guard may have found that no such key exists.
                Err(_) if self.is_unknown(&hash, now) => return Ok(None),
                Err(guard) => {
                    let (stamp, key) = self.feed.epochs.stamped(self.load(hash, now)).await;
                    let key = key?;
                    if let Some(key) = &key {
                        // The insertion fails only if another caller has inserted the key in the meantime.
                        // Then that entry is kept.
                        drop(guard.insert(CachedKey { key: Arc::clone(key), stamp }));
                    }
                    return Ok(key);
                }
            }
        }
        // The cache can't be trusted at the moment, so each caller reads the key.
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
