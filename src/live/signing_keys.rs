//! The keys that sign tokens: sealed in the database, so that every replica has them, open in memory.

use std::sync::{Arc, PoisonError, RwLock};

use crate::app::App;
use crate::clock::{SECOND_MS, Time};
use crate::error::Error;
use crate::secrets::jwt::{Claims, JwtError, Keyset, SigningKey, TokenKind};
use crate::store;

/// How often an unknown `kid` may cause a look at the database, in milliseconds.
const RELOAD_MS: i64 = SECOND_MS;

/// The keys as this replica knows them.
pub struct SigningKeys {
    loaded: RwLock<Option<Loaded>>,
}

#[derive(Clone)]
struct Loaded {
    keyset: Arc<Keyset>,
    /// When an unknown `kid` last caused a look at the database; none did since the start. What the start itself read
    /// doesn't count: another replica may have made its key a moment after.
    looked_at: Option<Time>,
}

impl SigningKeys {
    /// Knows none yet.
    pub const fn new() -> Self {
        Self { loaded: RwLock::new(None) }
    }

    /// Loads the keys, making the first one when there is none. Two replicas that start at once may make two: both are
    /// good, and both stand in the JWKS.
    pub async fn ensure(&self, app: &App) -> Result<(), Error> {
        let now = app.clock.now();
        let mut tx = app.db.write().await?;
        if store::signing_keys::all(&mut tx).await?.is_empty() {
            let (key, private) = SigningKey::generate(&app.random).map_err(Error::internal)?;
            let sealed = app.sealer.seal(private.expose(), &associated(key.kid()), &app.random)?;
            store::signing_keys::insert(&mut tx, key.kid(), &key.public_key(), &sealed, now).await?;
        }
        tx.commit().await?;
        self.load(app, None).await?;
        Ok(())
    }

    /// The keys.
    pub async fn keyset(&self, app: &App) -> Result<Arc<Keyset>, Error> {
        match self.current() {
            Some(loaded) => Ok(loaded.keyset),
            None => self.load(app, None).await,
        }
    }

    /// The claims of a good token of this kind; `None` when it isn't one.
    pub async fn verify(
        &self,
        app: &App,
        token: &str,
        kind: TokenKind,
        now: Time,
    ) -> Result<Option<Claims>, Error> {
        let keyset = self.keyset(app).await?;
        let url = &app.public_url;
        match keyset.verify(token, kind, url, url, now) {
            Ok(claims) => Ok(Some(claims)),
            // Another replica may have made a key since; a flood of made-up kids reads the table once a second.
            Err(JwtError::UnknownKey) if self.may_look(now) => {
                Ok(self.load(app, Some(now)).await?.verify(token, kind, url, url, now).ok())
            }
            Err(_) => Ok(None),
        }
    }

    fn current(&self) -> Option<Loaded> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn may_look(&self, now: Time) -> bool {
        let looked_at = self.current().and_then(|loaded| loaded.looked_at);
        looked_at.is_none_or(|at| now.unix_ms() - at.unix_ms() >= RELOAD_MS)
    }

    async fn load(&self, app: &App, looked_at: Option<Time>) -> Result<Arc<Keyset>, Error> {
        let mut tx = app.db.read().await?;
        let rows = store::signing_keys::all(&mut tx).await?;
        // Newest first: the newest signs, all verify.
        let newest = rows.first().ok_or_else(|| Error::internal("there is no signing key"))?;
        let private = app.sealer.open(&newest.sealed_private_key, &associated(&newest.kid)).map_err(|_| {
            Error::internal(format_args!(
                "the master key does not open signing key {}: was the database made with another master key?",
                newest.kid
            ))
        })?;
        let active = SigningKey::from_private(&newest.kid, &private).map_err(Error::internal)?;
        let public: Vec<_> = rows.iter().map(|row| row.public_key).collect();
        let keyset = Arc::new(Keyset::new(Arc::new(active), &public));
        let loaded = Loaded { keyset: Arc::clone(&keyset), looked_at };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(keyset)
    }
}

impl Default for SigningKeys {
    fn default() -> Self {
        Self::new()
    }
}

/// What a sealed key is bound to, so that one row's secret can't be put into another row.
fn associated(kid: &str) -> String {
    format!("signing-key:{kid}")
}
