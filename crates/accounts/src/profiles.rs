//! Reads of accounts.

use crate::{Accounts, store};
use kernel::addresses;
use kernel::error::Error;
use kernel::ids::UserId;

use crate::store::users::User;

/// Returns the account with this id.
///
/// # Errors
/// The database fails.
pub async fn read(accounts: &Accounts, user_id: UserId) -> Result<Option<User>, Error> {
    Ok(store::users::by_id(&mut accounts.db.read().await?, user_id).await?)
}

/// Returns the account with this id or e-mail address.
///
/// # Errors
/// The database fails.
pub async fn find(accounts: &Accounts, id_or_email: &str) -> Result<Option<User>, Error> {
    let Some(user_id) = UserId::parse(id_or_email) else {
        let mut tx = accounts.db.read().await?;
        return Ok(store::users::by_email(&mut tx, &addresses::fold(id_or_email)).await?);
    };
    read(accounts, user_id).await
}
