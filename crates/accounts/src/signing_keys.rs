//! Operations on the keys that sign tokens, for operators.

use crate::memory::signing_keys::{SigningKeys, associated_data};
use crate::{Accounts, sessions, store};
use db::Tx;
use kernel::error::Error;

use trail::{Action, Event, Trail};

/// The outcome of a revocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The key that signs from now on.
    pub kid: String,
    /// The number of older keys, which no longer verify tokens.
    pub keys: u64,
    /// The number of sessions that ended.
    pub sessions: u64,
}

/// The numbers of keys that were resealed and left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Keys that were resealed.
    pub resealed: u64,
    /// Keys that were already sealed with the current master key.
    pub unchanged: u64,
}

/// Creates a key that signs new tokens, and returns its `kid`. Tokens of older keys stay valid until they
/// expire.
///
/// # Errors
/// The database fails.
pub async fn rotate(accounts: &Accounts) -> Result<String, Error> {
    let mut tx = accounts.db.write().await?;
    let kid = SigningKeys::rotate(accounts, &mut tx).await?;
    let event = Event { action: Action::SigningKeyRotated, target: kid.clone(), organization_id: None };
    let now = accounts.clock.now();
    trail::record(&mut tx, &Trail::operator(), &event, now, &accounts.random).await?;
    tx.commit().await?;
    Ok(kid)
}

/// Creates a key that signs new tokens, and removes all older keys. All sessions end as well: a stolen key
/// could have signed a token for any of them, and a token of an old key can't be exchanged for a new one.
///
/// # Errors
/// The database fails.
pub async fn revoke(accounts: &Accounts) -> Result<Revoked, Error> {
    let mut tx = accounts.db.write().await?;
    let (kid, keys) = SigningKeys::rotate_and_revoke(accounts, &mut tx).await?;
    let event = Event { action: Action::SigningKeysRevoked, target: kid.clone(), organization_id: None };
    let now = accounts.clock.now();
    trail::record(&mut tx, &Trail::operator(), &event, now, &accounts.random).await?;
    let sessions = sessions::end_all_in(accounts, &mut tx, None).await?;
    tx.commit().await?;
    Ok(Revoked { kid, keys, sessions })
}

/// Reseals every signing key that isn't sealed with the current master key. The caller commits.
///
/// # Errors
/// A key can't be opened, or the database fails.
pub async fn reseal(accounts: &Accounts, tx: &mut Tx) -> Result<Resealed, Error> {
    let mut counts = Resealed::default();
    for row in store::signing_keys::all(tx).await? {
        let (sealed, associated) = (&row.sealed_private_key, associated_data(&row.kid));
        let resealed = accounts.sealer.reseal(sealed, &associated, &accounts.random).map_err(|error| {
            Error::internal(format_args!("the secret of signing key {} can't be opened: {error}", row.kid))
        })?;
        match resealed {
            Some(sealed) => {
                store::signing_keys::set_sealed(tx, &row.kid, &sealed).await?;
                counts.resealed += 1;
            }
            None => counts.unchanged += 1,
        }
    }
    Ok(counts)
}
