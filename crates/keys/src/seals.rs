//! The master key, under which secrets of API keys and of signing keys are sealed.

use crate::store;
use accounts::signing_keys;
use db::Tx;
use kernel::error::Error;

use trail::Trail;
use trail::{Action, Event};

use super::Keys;

/// Secrets that are read at a time.
const AT_ONCE: i64 = 500;

/// Counts of secrets by their seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Signing keys that were sealed anew.
    pub signing_keys: u64,
    /// Secrets of API keys that were sealed anew.
    pub api_keys: u64,
    /// Those of both that were under today's master key before.
    pub already: u64,
}

/// Seals every secret anew that isn't under today's master key: all of them or none.
///
/// # Errors
/// A secret can't be opened, or the database's.
pub async fn renew(keys: &Keys, trail: &Trail) -> Result<Resealed, Error> {
    let mut tx = keys.db.write().await?;
    let of_tokens = signing_keys::reseal(&keys.accounts, &mut tx).await?;
    let mut resealed = Resealed { signing_keys: of_tokens.anew, api_keys: 0, already: of_tokens.already };
    reseal_api_keys(keys, &mut tx, &mut resealed).await?;
    let event =
        Event { action: Action::MasterKeyRotated, target: "master-key".to_owned(), organization_id: None };
    trail::record(&mut tx, trail, &event, keys.clock.now(), &keys.random).await?;
    tx.commit().await?;
    Ok(resealed)
}

async fn reseal_api_keys(keys: &Keys, tx: &mut Tx, resealed: &mut Resealed) -> Result<(), Error> {
    let mut after = Vec::new();
    loop {
        let page = store::api_keys::sealed_after(tx, &after, AT_ONCE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after.clone_from(&last.secret_hash);
        for secret in &page {
            let place = secret.api_key_id.to_string();
            let sealed = keys.sealer.reseal(&secret.sealed, &place, &keys.random).map_err(|error| {
                Error::internal(format_args!("the secret of API key {place} can't be opened: {error}"))
            })?;
            match sealed {
                Some(sealed) => {
                    store::api_keys::set_sealed(tx, &secret.secret_hash, &sealed).await?;
                    resealed.api_keys += 1;
                }
                None => resealed.already += 1,
            }
        }
    }
}
