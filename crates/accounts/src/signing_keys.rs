//! Changes of the keys that sign tokens, by an operator.

use crate::memory::signing_keys::{SigningKeys, associated};
use crate::store;
use crate::{Accounts, sessions};
use db::Tx;
use kernel::error::Error;

use trail::{Action, Event, Trail};

/// The outcome of a revocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revoked {
    /// The key that signs from now on.
    pub kid: String,
    /// Counts the older keys, none of which verifies any more.
    pub keys: u64,
    /// Counts the sessions that ended.
    pub sessions: u64,
}

/// Counts of keys by their seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Keys that were sealed anew.
    pub anew: u64,
    /// Keys that were under today's master key before.
    pub already: u64,
}

/// Makes a key that signs new tokens; those of older keys stay good until they end. Returns its `kid`.
///
/// # Errors
/// The database's.
pub async fn rotate(accounts: &Accounts) -> Result<String, Error> {
    let mut tx = accounts.db.write().await?;
    let kid = SigningKeys::rotate(accounts, &mut tx).await?;
    let event = Event { action: Action::SigningKeyRotated, target: kid.clone(), organization_id: None };
    let now = accounts.clock.now();
    trail::record(&mut tx, &Trail::operator(), &event, now, &accounts.random).await?;
    tx.commit().await?;
    Ok(kid)
}

/// Makes a key that signs new tokens, and no older key verifies any more. Sessions end as well: who has the
/// old key can make a token for any of them, and by a token of the old key nobody gets one of the new.
///
/// # Errors
/// The database's.
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

/// Seals every signing key anew that isn't under today's master key. The caller commits.
///
/// # Errors
/// A key can't be opened, or the database's.
pub async fn reseal(accounts: &Accounts, tx: &mut Tx) -> Result<Resealed, Error> {
    let mut resealed = Resealed::default();
    for row in store::signing_keys::all(tx).await? {
        let (sealed, place) = (&row.sealed_private_key, associated(&row.kid));
        let anew = accounts.sealer.reseal(sealed, &place, &accounts.random).map_err(|error| {
            Error::internal(format_args!("the secret of signing key {} can't be opened: {error}", row.kid))
        })?;
        match anew {
            Some(sealed) => {
                store::signing_keys::set_sealed(tx, &row.kid, &sealed).await?;
                resealed.anew += 1;
            }
            None => resealed.already += 1,
        }
    }
    Ok(resealed)
}
