//! Folds the e-mail addresses that an earlier version has folded in another way: once, at the first start after the upgrade.

use crate::Accounts;
use crate::store::addresses_to_fold::{self, Owner, Waiting};
use db::Tx;
use kernel::addresses;
use kernel::error::Error;

/// Addresses that one transaction folds.
const AT_ONCE: i64 = 500;

/// Folds every address that waits for it. Replicas that start at once may both do it: the outcome is the same.
///
/// # Errors
/// The database fails. What was folded until then stays folded, and the next start goes on.
pub async fn fold_all(accounts: &Accounts) -> Result<(), Error> {
    let none = addresses_to_fold::first(&mut accounts.db.read().await?, 1).await?.is_empty();
    if none {
        return Ok(());
    }
    let mut count = 0;
    loop {
        let mut tx = accounts.db.write().await?;
        let page = addresses_to_fold::first(&mut tx, AT_ONCE).await?;
        if page.is_empty() {
            tracing::info!(count, "e-mail addresses were folded anew");
            return Ok(());
        }
        for waiting in &page {
            fold(accounts, &mut tx, waiting).await?;
        }
        tx.commit().await?;
        count += page.len();
    }
}

async fn fold(accounts: &Accounts, tx: &mut Tx, waiting: &Waiting) -> Result<(), Error> {
    if let Some(email) = &waiting.email {
        let folded = addresses::fold(email);
        match waiting.owner {
            Owner::User(user_id) => {
                if !addresses_to_fold::set_of_user(tx, user_id, &folded).await? {
                    tracing::warn!(
                        %user_id,
                        "another account has the same e-mail address, written in another way: this one can't log in by it"
                    );
                }
            }
            Owner::Invitation(id) => {
                addresses_to_fold::set_of_invitation(tx, id, &folded, accounts.clock.now()).await?;
            }
        }
    }
    Ok(addresses_to_fold::remove(tx, waiting.owner).await?)
}
