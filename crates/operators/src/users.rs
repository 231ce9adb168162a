//! Operations on accounts.

use accounts::second_factor::{self, SecondFactor};
use accounts::store::email_tokens::{self, Purpose};
use accounts::store::users::administration;
use accounts::store::users::{NewUser, User};
use accounts::store::{connections, sessions, users};
use db::{Page, Tx};
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::UserId;
use kernel::naming::{self, Name};
use kernel::secrets::token::MailToken;
use tenants::store::organization_members::{self, MembershipOf};
use trail::{Action, Trail};

use crate::{Operators, notices};

pub use accounts::store::users::administration::Filter;

/// The lifetime of the link that sets the first password, in milliseconds.
const LINK_MS: i64 = DAY_MS;
/// The number of accounts that are read at once.
const PAGE_SIZE: i64 = 500;
/// The maximum number of memberships in a [`UserDetail`].
const MAX_MEMBERSHIPS: i64 = 200;
/// The maximum number of suffixes that are tried to make a username unique.
const MAX_TRIES: u32 = 1_000;

/// A page of accounts.
#[derive(Clone, Debug)]
pub struct UserPage {
    /// The accounts, newest first.
    pub rows: Vec<User>,
    /// The number of accounts on all pages.
    pub total: i64,
}

/// Returns one page of accounts, newest first.
///
/// # Errors
/// The database fails.
pub async fn list(operators: &Operators, filter: &Filter, page: Page) -> Result<UserPage, Error> {
    let mut tx = operators.db.read().await?;
    let total = administration::count(&mut tx, filter).await?;
    let rows = administration::list(&mut tx, filter, page).await?;
    Ok(UserPage { rows, total })
}

/// Returns the next accounts after this one, oldest first; empty at the end.
///
/// # Errors
/// The database fails.
pub async fn list_after(
    operators: &Operators,
    filter: &Filter,
    after: Option<UserId>,
) -> Result<Vec<User>, Error> {
    let mut tx = operators.db.read().await?;
    Ok(administration::list_after(&mut tx, filter, after, PAGE_SIZE).await?)
}

/// An account with its second factor, sessions and memberships.
#[derive(Clone, Debug)]
pub struct UserDetail {
    pub user: User,
    pub second_factor: SecondFactor,
    /// The number of live sessions.
    pub sessions: i64,
    /// The organizations that the user belongs to, at most 200.
    pub memberships: Vec<MembershipOf>,
}

/// Returns an account; `None` if it doesn't exist.
///
/// # Errors
/// The database fails.
pub fn read(operators: &Operators, user_id: UserId) -> BoxFuture<'_, Result<Option<UserDetail>, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = operators.db.read().await?;
        let Some(user) = users::by_id(&mut tx, user_id).await? else { return Ok(None) };
        let sessions = administration::count_sessions(&mut tx, user_id, now).await?;
        let memberships = organization_members::memberships(&mut tx, user_id, MAX_MEMBERSHIPS).await?;
        drop(tx);
        let second_factor = second_factor::read(&operators.accounts, user_id).await?;
        Ok(Some(UserDetail { user, second_factor, sessions, memberships }))
    })
}

/// An account that an operator has created, and the link with which its user sets the password.
#[derive(Clone, Debug)]
pub struct CreatedUser {
    pub user: User,
    /// The link. It works once within a day, for anyone who has it.
    pub link: String,
    pub link_expires_at: Time,
}

/// Creates an account. With `is_operator`, its user is an operator. If `username` is `None`, a username is
/// derived from the address.
///
/// # Errors
/// 409 if the address or the username is taken.
pub async fn create(
    operators: &Operators,
    email: &Name,
    username: Option<&Name>,
    is_operator: bool,
    trail: &Trail,
) -> Result<CreatedUser, Error> {
    let now = operators.clock.now();
    let mut tx = operators.db.write().await?;
    let username = match username {
        Some(username) => username.clone(),
        None => free_username(&mut tx, &email.display).await?,
    };
    let id = UserId::new(now, &operators.random);
    let new = NewUser {
        id,
        email: &email.display,
        email_folded: &email.folded,
        username: &username.display,
        username_folded: &username.folded,
        full_name: None,
        phone: None,
        // The user sets the password with the link.
        password_hash: None,
    };
    users::insert(&mut tx, &new, now).await?;
    operators.record(&mut tx, trail, (Action::UserCreated, &id.to_string()), None, now).await?;
    if is_operator {
        administration::set_operator(&mut tx, id, Some(now), now).await?;
        administration::remove_first_account_token(&mut tx).await?;
        operators.record(&mut tx, trail, (Action::OperatorGranted, &id.to_string()), None, now).await?;
    }
    let (token, link_expires_at) = (MailToken::generate(&operators.random), now.plus_ms(LINK_MS));
    email_tokens::replace(&mut tx, id, Purpose::ResetPassword, token.hash(), now, link_expires_at).await?;
    let user = users::by_id(&mut tx, id).await?.ok_or(Code::UserNotFound)?;
    tx.commit().await?;
    let link = format!("{}/reset-password?token={}", operators.public_url, token.expose());
    Ok(CreatedUser { user, link, link_expires_at })
}

/// Derives a username that isn't taken from an address.
pub(crate) async fn free_username(tx: &mut Tx, email: &str) -> Result<Name, Error> {
    let local = email.split('@').next().unwrap_or_default();
    let kept: String =
        local.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '.' }).collect();
    for number in 0..MAX_TRIES {
        let text = if number == 0 { kept.clone() } else { format!("{kept}-{number}") };
        let Ok(name) = naming::username(&text) else {
            // The name is too short, too long or reserved.
            let Ok(name) = naming::username(&format!("user-{number}")) else { continue };
            if !administration::is_username_taken(tx, &name.folded).await? {
                return Ok(name);
            }
            continue;
        };
        if !administration::is_username_taken(tx, &name.folded).await? {
            return Ok(name);
        }
    }
    Err(Code::UsernameTaken.into())
}

/// A change of an account.
#[derive(Clone, Debug)]
pub struct UserChange {
    /// The account after the change.
    pub user: User,
    /// `true` if nothing was changed, because the account was already in this state.
    pub was_unchanged: bool,
    /// The number of sessions that ended.
    pub ended_sessions: u64,
}

/// Disables an account: its user can no longer sign in, and its sessions end. API keys that the user created
/// can still make model calls, but can no longer manage anything.
///
/// # Errors
/// `user_not_found`.
pub fn disable<'a>(
    operators: &'a Operators,
    user_id: UserId,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<UserChange, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = lock(operators, user_id).await?;
        let is_changed = administration::set_disabled(&mut tx, user_id, Some(now), now).await?;
        let ended_sessions = sessions::end_live(&mut tx, Some(user_id), now).await?;
        let user = after(&mut tx, user_id).await?;
        if is_changed {
            operators.record(&mut tx, trail, (Action::UserDisabled, &user_id.to_string()), None, now).await?;
            let change = "It is disabled: no one can sign in to it, and its sessions have ended.";
            notices::notify_person(operators, &mut tx, &user, change, now).await?;
        }
        finish(operators, tx, UserChange { user, was_unchanged: !is_changed, ended_sessions }).await
    })
}

/// Enables a disabled account again.
///
/// # Errors
/// `user_not_found`.
pub fn enable<'a>(
    operators: &'a Operators,
    user_id: UserId,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<UserChange, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = lock(operators, user_id).await?;
        let is_changed = administration::set_disabled(&mut tx, user_id, None, now).await?;
        let user = after(&mut tx, user_id).await?;
        if is_changed {
            operators.record(&mut tx, trail, (Action::UserEnabled, &user_id.to_string()), None, now).await?;
            notices::notify_person(operators, &mut tx, &user, "It is enabled again: you can sign in.", now)
                .await?;
        }
        finish(operators, tx, UserChange { user, was_unchanged: !is_changed, ended_sessions: 0 }).await
    })
}

/// Ends the sessions of a user.
///
/// # Errors
/// `user_not_found`.
pub fn end_sessions<'a>(
    operators: &'a Operators,
    user_id: UserId,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<UserChange, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = lock(operators, user_id).await?;
        let ended_sessions = sessions::end_live(&mut tx, Some(user_id), now).await?;
        let user = after(&mut tx, user_id).await?;
        operators.record(&mut tx, trail, (Action::SessionsEnded, &user_id.to_string()), None, now).await?;
        finish(operators, tx, UserChange { user, was_unchanged: ended_sessions == 0, ended_sessions }).await
    })
}

/// Removes a user's second factor with all passkeys, and ends their sessions. This is for users who have lost
/// their app or passkeys and their recovery codes: the password alone is then enough to log in. A user
/// without a password sets one with an e-mailed link, or signs in with a connected provider.
///
/// # Errors
/// `user_not_found`.
pub fn reset_second_factor<'a>(
    operators: &'a Operators,
    user_id: UserId,
    trail: &'a Trail,
) -> BoxFuture<'a, Result<UserChange, Error>> {
    Box::pin(async move {
        let now = operators.clock.now();
        let mut tx = lock(operators, user_id).await?;
        let is_changed = second_factor::remove_all(&mut tx, user_id).await?;
        let mut ended_sessions = 0;
        let user = after(&mut tx, user_id).await?;
        if is_changed {
            ended_sessions = sessions::end_live(&mut tx, Some(user_id), now).await?;
            operators
                .record(&mut tx, trail, (Action::SecondFactorReset, &user_id.to_string()), None, now)
                .await?;
            let change = format!(
                "Its authenticator app, passkeys and recovery codes are removed, and its sessions have ended. {}",
                way_in(operators, &mut tx, user_id).await?
            );
            notices::notify_person(operators, &mut tx, &user, &change, now).await?;
        }
        finish(operators, tx, UserChange { user, was_unchanged: !is_changed, ended_sessions }).await
    })
}

/// Returns a sentence for the user that explains how to sign in without a second factor.
async fn way_in(operators: &Operators, tx: &mut Tx, user_id: UserId) -> Result<String, Error> {
    if users::has_any_password(tx, user_id).await? {
        return Ok("You can sign in with only the password.".to_owned());
    }
    let connections = connections::of_user(tx, user_id).await?;
    let providers = operators.accounts.providers.all();
    let is_connected = |issuer: &str| connections.iter().any(|connection| connection.issuer == issuer);
    let provider = providers.iter().find(|provider| is_connected(&provider.settings.issuer));
    let set_one = "with \"Forgot your password?\" on the sign-in page";
    Ok(match provider {
        Some(provider) => format!(
            "It has no password: sign in with {}, or choose a new password for it {set_one}.",
            provider.settings.name
        ),
        None => format!("It has no password: choose one {set_one}."),
    })
}

/// Begins a transaction, and locks an account in it.
pub(crate) async fn lock(operators: &Operators, user_id: UserId) -> Result<Tx, Error> {
    let mut tx = operators.db.write().await?;
    users::lock(&mut tx, user_id).await?;
    Ok(tx)
}

pub(crate) async fn after(tx: &mut Tx, user_id: UserId) -> Result<User, Error> {
    Ok(users::by_id(tx, user_id).await?.ok_or(Code::UserNotFound)?)
}

pub(crate) async fn finish(operators: &Operators, tx: Tx, change: UserChange) -> Result<UserChange, Error> {
    tx.commit().await?;
    operators.mail.outbox.notify_one();
    Ok(change)
}
