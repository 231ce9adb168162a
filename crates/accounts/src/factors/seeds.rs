//! Resealing of the seeds of one-time codes after a change of the master key.

use crate::factors::second_factor::associated_data;
use crate::signing_keys::Resealed;
use crate::store::second_factors::SeedTable;
use crate::{Accounts, store};
use db::Tx;
use kernel::error::Error;

/// The maximum number of seeds that are read at once.
const PAGE_SIZE: i64 = 500;

/// Reseals every seed that isn't sealed with the current master key. The caller commits.
///
/// # Errors
/// A seed can't be opened, or the database fails.
pub async fn reseal(accounts: &Accounts, tx: &mut Tx) -> Result<Resealed, Error> {
    let mut counts = Resealed::default();
    for table in SeedTable::ALL {
        let mut after = String::new();
        loop {
            let page = store::second_factors::fetch_sealed(tx, table, &after, PAGE_SIZE).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.to_string();
            for (user_id, sealed) in page {
                let resealed = accounts
                    .sealer
                    .reseal(&sealed, &associated_data(user_id), &accounts.random)
                    .map_err(|error| {
                    Error::internal(format_args!(
                        "the seed of {user_id}'s one-time codes can't be opened: {error}"
                    ))
                })?;
                match resealed {
                    Some(sealed) => {
                        store::second_factors::set_sealed(tx, table, user_id, &sealed).await?;
                        counts.resealed += 1;
                    }
                    None => counts.unchanged += 1,
                }
            }
        }
    }
    Ok(counts)
}
