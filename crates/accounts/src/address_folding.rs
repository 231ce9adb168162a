//! An upgrade step for e-mail addresses that an earlier version folded by different rules: it folds them
//! again. It runs once, at the first start after the upgrade.

use crate::Accounts;
use crate::store::addresses_to_fold::{self, AddressToFold, Owner};
use db::Tx;
use kernel::addresses;
use kernel::error::Error;

/// The maximum number of addresses that one transaction folds.
const ADDRESSES_PER_TRANSACTION: i64 = 500;

/// Folds every address on the list of [`addresses_to_fold`]. If several replicas start together, each may do
/// this; the outcome is the same.
///
/// # Errors
/// The database fails. The batches committed so far stay, and the next start continues.
pub async fn fold_all(accounts: &Accounts) -> Result<(), Error> {
    let is_done = addresses_to_fold::fetch_page(&mut accounts.db.read().await?, 1).await?.is_empty();
    if is_done {
        return Ok(());
    }
    let mut count = 0;
    loop {
        let mut tx = accounts.db.write().await?;
        let page = addresses_to_fold::fetch_page(&mut tx, ADDRESSES_PER_TRANSACTION).await?;
        if page.is_empty() {
            tracing::info!(count, "folded e-mail addresses by the current rules");
            return Ok(());
        }
        for address in &page {
            fold(accounts, &mut tx, address).await?;
        }
        tx.commit().await?;
        count += page.len();
    }
}

async fn fold(accounts: &Accounts, tx: &mut Tx, address: &AddressToFold) -> Result<(), Error> {
    if let Some(email) = &address.email {
        let folded = addresses::fold(email);
        match address.owner {
            Owner::User(user_id) => {
                if !addresses_to_fold::set_user_address(tx, user_id, &folded).await? {
                    tracing::warn!(
                        %user_id,
                        "another account has the same e-mail address, spelled differently: this account \
                         can't log in with its address"
                    );
                }
            }
            Owner::Invitation(id) => {
                addresses_to_fold::set_invitation_address(tx, id, &folded, accounts.clock.now()).await?;
            }
        }
    }
    Ok(addresses_to_fold::remove(tx, address.owner).await?)
}
