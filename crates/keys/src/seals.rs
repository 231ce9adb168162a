//! Resealing of secrets after a change of the master key.

use crate::store;
use accounts::{seeds, signing_keys};
use db::Tx;
use kernel::error::Error;

use trail::{Action, Event, Trail};

use super::Keys;

/// Maximum number of secrets that are read at a time.
const PAGE_SIZE: i64 = 500;

/// The numbers of secrets that were resealed or unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    /// Signing keys that were resealed.
    pub signing_keys: u64,
    /// Secrets of API keys that were resealed.
    pub api_keys: u64,
    /// Seeds of one-time codes that were resealed.
    pub seeds: u64,
    /// Secrets of webhooks that were resealed.
    pub webhooks: u64,
    /// Answers to requests with idempotency keys that were resealed.
    pub answers: u64,
    /// Secrets of all kinds that were already sealed with the current master key.
    pub unchanged: u64,
}

/// Reseals every secret that isn't sealed with the current master key, in one transaction.
///
/// # Errors
/// A secret can't be opened, or the database fails.
pub async fn reseal_all(keys: &Keys, trail: &Trail) -> Result<Resealed, Error> {
    let mut tx = keys.db.write().await?;
    let signing = signing_keys::reseal(&keys.accounts, &mut tx).await?;
    let seeds = seeds::reseal(&keys.accounts, &mut tx).await?;
    let answers = idempotency::reseal(&keys.sealer, &keys.random, &mut tx).await?;
    let webhooks = webhooks::seals::reseal(&keys.sealer, &keys.random, &mut tx).await?;
    let mut resealed = Resealed {
        signing_keys: signing.resealed,
        api_keys: 0,
        seeds: seeds.resealed,
        webhooks: webhooks.resealed,
        answers: answers.resealed,
        unchanged: signing.unchanged + seeds.unchanged + webhooks.unchanged + answers.unchanged,
    };
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
        let page = store::api_keys::fetch_sealed(tx, &after, PAGE_SIZE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after.clone_from(&last.secret_hash);
        for secret in &page {
            let id = secret.api_key_id.to_string();
            let sealed = keys.sealer.reseal(&secret.sealed, &id, &keys.random).map_err(|error| {
                Error::internal(format_args!("the secret of API key {id} can't be opened: {error}"))
            })?;
            match sealed {
                Some(sealed) => {
                    store::api_keys::set_sealed(tx, &secret.secret_hash, &sealed).await?;
                    resealed.api_keys += 1;
                }
                None => resealed.unchanged += 1,
            }
        }
    }
}
