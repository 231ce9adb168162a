//! Resealing of secrets after a master key rotation.

use db::Tx;
use kernel::error::Error;
use kernel::ids::WebhookId;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;

use crate::store;

/// Maximum number of webhooks read at a time.
const PAGE_SIZE: i64 = 500;

/// Numbers of secrets that were and weren't resealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resealed {
    pub resealed: u64,
    pub unchanged: u64,
}

/// Reseals every secret that isn't sealed with the current master key. The caller commits.
///
/// # Errors
/// A secret can't be opened, or the database fails.
pub async fn reseal(sealer: &Sealer, random: &Random, tx: &mut Tx) -> Result<Resealed, Error> {
    let mut counts = Resealed::default();
    let mut after = String::new();
    loop {
        let page = store::endpoints::fetch_sealed(tx, &after, PAGE_SIZE).await?;
        let Some(last) = page.last() else { return Ok(counts) };
        after = last.id.to_string();
        for sealed in page {
            let mut renewed = sealed.clone();
            let before = counts.resealed;
            if let Some(secret) = reseal_one(sealer, random, sealed.id, &sealed.sealed_secret, &mut counts)? {
                renewed.sealed_secret = secret;
            }
            if let Some(previous) = &sealed.previous_sealed_secret
                && let Some(secret) = reseal_one(sealer, random, sealed.id, previous, &mut counts)?
            {
                renewed.previous_sealed_secret = Some(secret);
            }
            if counts.resealed > before {
                store::endpoints::set_sealed(tx, &renewed).await?;
            }
        }
    }
}

fn reseal_one(
    sealer: &Sealer,
    random: &Random,
    id: WebhookId,
    sealed: &[u8],
    counts: &mut Resealed,
) -> Result<Option<Vec<u8>>, Error> {
    let resealed = sealer.reseal(sealed, &id.to_string(), random);
    let resealed = resealed
        .map_err(|error| Error::internal(format_args!("the secret of {id} can't be opened: {error}")))?;
    match resealed {
        Some(_) => counts.resealed += 1,
        None => counts.unchanged += 1,
    }
    Ok(resealed)
}
