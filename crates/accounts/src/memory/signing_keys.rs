//! The keys that sign tokens: stored sealed in the database, so that every replica has them, and unsealed in
//! memory.

use std::sync::{Arc, PoisonError, RwLock};

use quick_cache::sync::Cache;

use crate::jwt::{Claims, JwtError, Keyset, MAX_TOKEN_BYTES, SigningKey, SigningPeriod, TokenKind};
use crate::{Accounts, store};
use cluster::epochs::Stamp;
use db::Tx;
use kernel::clock::{HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::Error;
use kernel::secrets::sha256;

use crate::store::signing_keys::SigningKeyRow;
use trail::{Action, Event, Trail};

/// The maximum age of the keys in memory before they are read again, in milliseconds. After a rotation, other
/// replicas may sign with the old key for this long.
const MAX_KEY_AGE_MS: i64 = 5 * SECOND_MS;

/// The longest lifetime of a token, in milliseconds, plus an hour for differences between clocks.
const MAX_TOKEN_LIFETIME_MS: i64 = TokenKind::Refresh.lifetime_ms() + HOUR_MS;

/// The maximum time by which a key's creation can be in the future, in milliseconds. If it is later, the
/// clock of the replica that created the key was wrong, so the key's age is unknown.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// The maximum number of cached verified tokens. If more tokens are in use, the least used ones are evicted.
const MAX_VERIFIED_TOKENS: usize = 100_000;

/// The minimum time between two reads of the keys that are caused by an unknown `kid`, in milliseconds.
const UNKNOWN_KID_RELOAD_MS: i64 = SECOND_MS;

/// The signing keys in memory, and a cache of verified tokens.
pub struct SigningKeys {
    loaded: RwLock<Option<LoadedKeys>>,
    /// Verified tokens, by the SHA-256 hash of their kind and text, so that the signature of a token is
    /// checked only once.
    verified: Cache<[u8; 32], VerifiedToken>,
}

/// A verified token. The entry is valid until keys are revoked.
#[derive(Clone)]
struct VerifiedToken {
    claims: Arc<Claims>,
    stamp: Stamp,
}

#[derive(Clone)]
struct LoadedKeys {
    keyset: Arc<Keyset>,
    /// The stamp that becomes invalid when keys are revoked.
    stamp: Stamp,
    /// The time at which the keys were read.
    read_at: Time,
    /// The time at which an unknown `kid` last caused a read of the keys; `None` if none has. Other reads
    /// don't count, because another replica may have created a key right after them.
    reloaded_at: Option<Time>,
}

impl SigningKeys {
    /// Creates an empty set of keys; they are loaded later.
    pub fn new() -> Self {
        Self { loaded: RwLock::new(None), verified: Cache::new(MAX_VERIFIED_TOKENS) }
    }

    /// Returns `true` if the keys are loaded.
    pub fn is_loaded(&self) -> bool {
        self.current().is_some()
    }

    /// Returns the number of verified tokens in memory.
    pub fn verified_count(&self) -> usize {
        self.verified.len()
    }

    /// Loads the keys, and creates the first one if none exists. Two replicas that start at the same time may
    /// create one key each: both keys are valid, and both are in the JWKS.
    pub async fn load_or_create(&self, accounts: &Accounts) -> Result<(), Error> {
        let mut tx = accounts.db.write().await?;
        if store::signing_keys::all(&mut tx).await?.is_empty() {
            let target = Self::rotate(accounts, &mut tx).await?;
            let event = Event { action: Action::SigningKeyCreated, target, organization_id: None };
            let now = accounts.clock.now();
            trail::record(&mut tx, &Trail::system(), &event, now, &accounts.random).await?;
        }
        tx.commit().await?;
        self.load(accounts, None).await?;
        Ok(())
    }

    /// Returns the keys, at most `MAX_KEY_AGE_MS` old. They may be older while the database can't be reached,
    /// but never older than a revocation that this replica has received.
    pub async fn keyset(&self, accounts: &Accounts) -> Result<Arc<Keyset>, Error> {
        let now = accounts.clock.now();
        match self.current() {
            None => self.load(accounts, None).await,
            Some(loaded) if !accounts.feed.epochs.holds_all(loaded.stamp) => {
                self.load(accounts, loaded.reloaded_at).await
            }
            Some(loaded) if (0..MAX_KEY_AGE_MS).contains(&(now.unix_ms() - loaded.read_at.unix_ms())) => {
                Ok(loaded.keyset)
            }
            Some(loaded) => match self.load(accounts, loaded.reloaded_at).await {
                Ok(keyset) => Ok(keyset),
                Err(error) => {
                    tracing::warn!("reloading the signing keys failed, the loaded ones stay in use: {error}");
                    Ok(loaded.keyset)
                }
            },
        }
    }

    /// Creates a key that signs from now on, and returns its id. The old keys still verify tokens. The caller
    /// commits.
    pub async fn rotate(accounts: &Accounts, tx: &mut Tx) -> Result<String, Error> {
        let (key, private) = SigningKey::generate(&accounts.random).map_err(Error::internal)?;
        let sealed = accounts.sealer.seal(private.expose(), &associated_data(key.kid()), &accounts.random)?;
        let now = accounts.clock.now();
        store::signing_keys::retire_all(tx, now).await?;
        store::signing_keys::insert(tx, key.kid(), &key.public_key(), &sealed, now).await?;
        Ok(key.kid().to_owned())
    }

    /// Creates a key that signs from now on, and removes the old keys. Returns the new key's id and the
    /// number of removed keys. The caller ends all sessions and commits.
    pub async fn rotate_and_revoke(accounts: &Accounts, tx: &mut Tx) -> Result<(String, u64), Error> {
        let revoked = store::signing_keys::remove_all(tx, accounts.clock.now()).await?;
        Ok((Self::rotate(accounts, tx).await?, revoked))
    }

    /// Returns the claims of a valid token of this kind; `None` for any other text.
    pub async fn verify(
        &self,
        accounts: &Accounts,
        token: &str,
        kind: TokenKind,
        now: Time,
    ) -> Result<Option<Arc<Claims>>, Error> {
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let cache_key = cache_key(kind, token);
        if let Some(known) = self.verified.get(&cache_key)
            && accounts.feed.epochs.holds_all(known.stamp)
        {
            // Only the expiry has to be checked again.
            return Ok(Some(known.claims).filter(|claims| now.unix_seconds() < claims.exp));
        }
        let stamp = accounts.feed.epochs.stamp();
        let keyset = self.keyset(accounts).await?;
        let url = &accounts.settings.public_url;
        let claims = match keyset.verify(token, kind, url, url, now) {
            // Another replica may have created a key in the meantime. Made-up key ids cause at most one read
            // per second.
            Err(JwtError::UnknownKey) if self.may_reload(now) => {
                self.load(accounts, Some(now)).await?.verify(token, kind, url, url, now)
            }
            other => other,
        };
        let Ok(claims) = claims.map(Arc::new) else {
            return Ok(None);
        };
        self.verified.insert(cache_key, VerifiedToken { claims: Arc::clone(&claims), stamp });
        Ok(Some(claims))
    }

    fn current(&self) -> Option<LoadedKeys> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn may_reload(&self, now: Time) -> bool {
        let reloaded_at = self.current().and_then(|loaded| loaded.reloaded_at);
        reloaded_at.is_none_or(|at| !(0..UNKNOWN_KID_RELOAD_MS).contains(&(now.unix_ms() - at.unix_ms())))
    }

    async fn load(&self, accounts: &Accounts, reloaded_at: Option<Time>) -> Result<Arc<Keyset>, Error> {
        let (now, stamp) = (accounts.clock.now(), accounts.feed.epochs.stamp());
        let mut tx = accounts.db.read().await?;
        let rows = store::signing_keys::all(&mut tx).await?;
        // The rows are sorted by age, newest first. The newest key signs, and all of them verify.
        let newest = rows.first().ok_or_else(|| Error::internal("no signing key exists"))?;
        let private = accounts
            .sealer
            .open(&newest.sealed_private_key, &associated_data(&newest.kid))
            .map_err(|_| {
                Error::internal(format_args!(
                    "the master key does not open signing key {}: was the database created with a different \
                     master key? While the master key is being changed, the older one must be in \
                     `master_key_previous_file`",
                    newest.kid
                ))
            })?;
        let active = SigningKey::from_private(&newest.kid, &private).map_err(Error::internal)?;
        // A retired key verifies until the last token that it signed has expired.
        let verifies =
            |row: &&SigningKeyRow| row.retired_at.is_none_or(|at| now < at.plus_ms(MAX_TOKEN_LIFETIME_MS));
        let public: Vec<_> = rows.iter().filter(verifies).map(|row| row.public_key).collect();
        let keyset = Keyset::new(Arc::new(active), &public);
        let keyset = Arc::new(
            rows.iter().fold(keyset, |set, row| set.with_signing_period(&row.kid, signing_period(row, now))),
        );
        let loaded = LoadedKeys { keyset: Arc::clone(&keyset), stamp, read_at: now, reloaded_at };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(keyset)
    }
}

impl Default for SigningKeys {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the period in which this key signs. Its start is unknown if the row's creation time is in the
/// future.
fn signing_period(row: &SigningKeyRow, now: Time) -> SigningPeriod {
    let since = Some(row.created_at).filter(|at| *at <= now.plus_ms(CLOCK_SKEW_MS));
    SigningPeriod { since: since.map(Time::unix_seconds), until: row.retired_at.map(Time::unix_seconds) }
}

/// Returns the cache key of a token of this kind.
fn cache_key(kind: TokenKind, token: &str) -> [u8; 32] {
    let kind: &[u8] = match kind {
        TokenKind::Access => b"access.",
        TokenKind::Refresh => b"refresh.",
        TokenKind::Browser => b"browser.",
    };
    sha256(&[kind, token.as_bytes()].concat())
}

/// Returns the associated data of a sealed key, so that one row's secret can't be moved to another row.
pub fn associated_data(kid: &str) -> String {
    format!("signing-key:{kid}")
}
