//! Reads and changes of accounts by their owners, and reads by operators.

use crate::{Accounts, Session, sessions, store};
use db::Lock;
use kernel::addresses;
use kernel::error::Error;
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::naming::Name;
use kernel::patch::Patch;

use trail::{Action, Event, Trail};

pub use crate::store::users::User;

/// Returns the account with this id.
///
/// # Errors
/// The database fails.
pub fn read(accounts: &Accounts, user_id: UserId) -> BoxFuture<'_, Result<Option<User>, Error>> {
    Box::pin(async move { Ok(store::users::by_id(&mut accounts.db.read().await?, user_id).await?) })
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

/// A change of an account. Its values follow the rules of [`kernel::naming`] and [`kernel::phones`].
#[derive(Clone, Debug)]
pub struct Update {
    /// `None` keeps the username.
    pub username: Option<Name>,
    pub full_name: Patch<String>,
    /// A number in E.164 form.
    pub phone: Patch<String>,
}

/// Changes the caller's account, and returns the changed account. A new phone number counts as not verified.
///
/// # Errors
/// 409 if the username is taken; 401 if the session has ended.
pub fn update<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    session: Session,
    update: Update,
) -> BoxFuture<'a, Result<User, Error>> {
    Box::pin(async move {
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let lock = if update.username.is_some() { Lock::Removal } else { Lock::Change };
        let before = sessions::lock_account(&mut tx, session, lock, now).await?;
        let mut user = before.clone();
        if let Some(username) = &update.username {
            user.username.clone_from(&username.display);
        }
        user.full_name = update.full_name.onto(user.full_name);
        user.phone = update.phone.onto(user.phone);
        if user.phone != before.phone {
            user.phone_verified_at = None;
        }
        if user != before {
            let username_folded = update.username.as_ref().map(|username| username.folded.as_str());
            store::users::update_profile(&mut tx, &user, username_folded).await?;
            let event =
                Event { action: Action::UserChanged, target: user.id.to_string(), organization_id: None };
            trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
        }
        tx.commit().await?;
        Ok(user)
    })
}
