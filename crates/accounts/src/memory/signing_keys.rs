//! The keys that sign tokens: sealed in the database, so that every replica has them, open in memory.

use std::sync::{Arc, PoisonError, RwLock};

use quick_cache::sync::Cache;

use crate::Accounts;
use crate::jwt::{Claims, JwtError, Keyset, MAX_TOKEN_BYTES, SigningKey, Term, TokenKind};
use crate::store;
use cluster::epochs::Stamp;
use db::Tx;
use kernel::clock::{HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::Error;
use kernel::secrets::sha256;

use crate::store::signing_keys::SigningKeyRow;
use trail::{Action, Event, Trail};

/// How old the keys in memory may get before they are read again, in milliseconds: so long does a rotated key go on
/// signing on other replicas.
const REFRESH_MS: i64 = 5 * SECOND_MS;

/// The longest life of a token, in milliseconds, and an hour for clocks that differ.
const LONGEST_TOKEN_MS: i64 = TokenKind::Refresh.life_ms() + HOUR_MS;

/// A key that was made more than this after now, in milliseconds, was made by a clock that ran ahead: its age is unknown.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// How many verified tokens are remembered; beyond it the ones least used make room.
const REMEMBERED: usize = 100_000;

/// How often an unknown `kid` may cause a look at the database, in milliseconds.
const RELOAD_MS: i64 = SECOND_MS;

/// The keys as this replica knows them.
pub struct SigningKeys {
    loaded: RwLock<Option<Loaded>>,
    /// Tokens whose signature was good, by the SHA-256 of kind and text: a repeated token costs no signature check.
    verified: Cache<[u8; 32], Verified>,
}

/// A good token, until keys are revoked.
#[derive(Clone)]
struct Verified {
    claims: Arc<Claims>,
    stamp: Stamp,
}

#[derive(Clone)]
struct Loaded {
    keyset: Arc<Keyset>,
    /// It may be used no longer than until keys are revoked.
    stamp: Stamp,
    /// When it was read.
    read_at: Time,
    /// When an unknown `kid` last caused a look at the database; none did since the start. What the start itself read
    /// doesn't count: another replica may have made its key a moment after.
    looked_at: Option<Time>,
}

impl SigningKeys {
    /// Knows none yet.
    pub fn new() -> Self {
        Self { loaded: RwLock::new(None), verified: Cache::new(REMEMBERED) }
    }

    /// Whether there is a key to sign with.
    pub fn is_loaded(&self) -> bool {
        self.current().is_some()
    }

    /// How many verified tokens are remembered.
    pub fn remembered(&self) -> usize {
        self.verified.len()
    }

    /// Loads the keys, making the first one when there is none. Two replicas that start at once may make two: both are
    /// good, and both stand in the JWKS.
    pub async fn ensure(&self, accounts: &Accounts) -> Result<(), Error> {
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

    /// The keys, at most `REFRESH_MS` old; older while the database can't be reached, but never from before a revocation that
    /// has arrived here.
    pub async fn keyset(&self, accounts: &Accounts) -> Result<Arc<Keyset>, Error> {
        let now = accounts.clock.now();
        match self.current() {
            None => self.load(accounts, None).await,
            Some(loaded) if !accounts.feed.epochs.holds_all(loaded.stamp) => {
                self.load(accounts, loaded.looked_at).await
            }
            Some(loaded) if (0..REFRESH_MS).contains(&(now.unix_ms() - loaded.read_at.unix_ms())) => {
                Ok(loaded.keyset)
            }
            Some(loaded) => match self.load(accounts, loaded.looked_at).await {
                Ok(keyset) => Ok(keyset),
                Err(error) => {
                    tracing::warn!("the signing keys could not be read again: {error}");
                    Ok(loaded.keyset)
                }
            },
        }
    }

    /// Makes a new key that signs from now on; the old ones go on verifying. The caller commits.
    pub async fn rotate(accounts: &Accounts, tx: &mut Tx) -> Result<String, Error> {
        let (key, private) = SigningKey::generate(&accounts.random).map_err(Error::internal)?;
        let sealed = accounts.sealer.seal(private.expose(), &associated(key.kid()), &accounts.random)?;
        let now = accounts.clock.now();
        store::signing_keys::retire_all(tx, now).await?;
        store::signing_keys::insert(tx, key.kid(), &key.public_key(), &sealed, now).await?;
        Ok(key.kid().to_owned())
    }

    /// The same, but the old keys stop verifying: how many there were stands beside the new key. The caller ends all
    /// sessions and commits.
    pub async fn rotate_and_revoke(accounts: &Accounts, tx: &mut Tx) -> Result<(String, u64), Error> {
        let revoked = store::signing_keys::remove_all(tx, accounts.clock.now()).await?;
        Ok((Self::rotate(accounts, tx).await?, revoked))
    }

    /// The claims of a good token of this kind; `None` when it isn't one.
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
        let digest = digest(kind, token);
        if let Some(known) = self.verified.get(&digest)
            && accounts.feed.epochs.holds_all(known.stamp)
        {
            // Everything else that was checked stays true; time goes on.
            return Ok(Some(known.claims).filter(|claims| now.unix_seconds() < claims.exp));
        }
        let stamp = accounts.feed.epochs.stamp();
        let keyset = self.keyset(accounts).await?;
        let url = &accounts.settings.public_url;
        let claims = match keyset.verify(token, kind, url, url, now) {
            // Another replica may have made a key since; a flood of made-up kids reads the table once a second.
            Err(JwtError::UnknownKey) if self.may_look(now) => {
                self.load(accounts, Some(now)).await?.verify(token, kind, url, url, now)
            }
            other => other,
        };
        let Ok(claims) = claims.map(Arc::new) else {
            return Ok(None);
        };
        self.verified.insert(digest, Verified { claims: Arc::clone(&claims), stamp });
        Ok(Some(claims))
    }

    fn current(&self) -> Option<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn may_look(&self, now: Time) -> bool {
        let looked_at = self.current().and_then(|loaded| loaded.looked_at);
        looked_at.is_none_or(|at| !(0..RELOAD_MS).contains(&(now.unix_ms() - at.unix_ms())))
    }

    async fn load(&self, accounts: &Accounts, looked_at: Option<Time>) -> Result<Arc<Keyset>, Error> {
        let (now, stamp) = (accounts.clock.now(), accounts.feed.epochs.stamp());
        let mut tx = accounts.db.read().await?;
        let rows = store::signing_keys::all(&mut tx).await?;
        // Newest first: the newest signs, all verify.
        let newest = rows.first().ok_or_else(|| Error::internal("there is no signing key"))?;
        let private = accounts.sealer.open(&newest.sealed_private_key, &associated(&newest.kid)).map_err(|_| {
            Error::internal(format_args!(
                "the master key does not open signing key {}: was the database made with another master key? \
                 While it is changed, the older key has to stand in `master_key_previous_file`",
                newest.kid
            ))
        })?;
        let active = SigningKey::from_private(&newest.kid, &private).map_err(Error::internal)?;
        // A retired key verifies until the last token that it signed has ended.
        let verifies =
            |row: &&SigningKeyRow| row.retired_at.is_none_or(|at| now < at.plus_ms(LONGEST_TOKEN_MS));
        let public: Vec<_> = rows.iter().filter(verifies).map(|row| row.public_key).collect();
        let keyset = Keyset::new(Arc::new(active), &public);
        let keyset = Arc::new(rows.iter().fold(keyset, |set, row| set.with_term(&row.kid, term(row, now))));
        let loaded = Loaded { keyset: Arc::clone(&keyset), stamp, read_at: now, looked_at };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(keyset)
    }
}

impl Default for SigningKeys {
    fn default() -> Self {
        Self::new()
    }
}

/// The time in which this key signs, as far as its row can be believed.
fn term(row: &SigningKeyRow, now: Time) -> Term {
    let since = Some(row.created_at).filter(|at| *at <= now.plus_ms(CLOCK_SKEW_MS));
    Term { since: since.map(Time::unix_seconds), until: row.retired_at.map(Time::unix_seconds) }
}

/// What stands for a token of this kind in memory.
fn digest(kind: TokenKind, token: &str) -> [u8; 32] {
    let kind: &[u8] = match kind {
        TokenKind::Access => b"access.",
        TokenKind::Refresh => b"refresh.",
    };
    sha256(&[kind, token.as_bytes()].concat())
}

/// What a sealed key is bound to, so that one row's secret can't be put into another row.
pub fn associated(kid: &str) -> String {
    format!("signing-key:{kid}")
}
