//! The table `users`.

pub mod administration;
pub mod unused;

use std::sync::LazyLock;

use cluster::changes::{self, Change};
use db::{Lock, Tx, sql};
use kernel::clock::Time;
use kernel::ids::UserId;
use kernel::networks::Network;

/// A row of `users` without the password hash, which is only in [`Credentials`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub id: UserId,
    /// The e-mail address, as entered.
    pub email: String,
    /// The folded e-mail address, for comparisons.
    pub email_folded: String,
    pub username: String,
    pub full_name: Option<String>,
    /// The phone number in E.164 form.
    pub phone: Option<String>,
    pub created_at: Time,
    pub email_verified_at: Option<Time>,
    pub phone_verified_at: Option<Time>,
    pub last_login_at: Option<Time>,
    /// The time at which an operator disabled the account.
    pub disabled_at: Option<Time>,
    /// The time at which the user became an operator of the installation.
    pub operator_since: Option<Time>,
}

db::row!(User {
    id,
    email,
    email_folded,
    username,
    full_name,
    phone,
    created_at,
    email_verified_at,
    phone_verified_at,
    last_login_at,
    disabled_at,
    operator_since
});

/// The recipients of an e-mail about a user's action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audience {
    /// The username of the acting user.
    pub by: String,
    /// The e-mail addresses of the other users.
    pub others: Vec<String>,
}

impl Audience {
    /// Splits users, given by id, address and username, into the acting user and the others; `None` if the
    /// acting user isn't among them.
    pub fn of(people: Vec<(UserId, String, String)>, by: UserId) -> Option<Self> {
        let mut name = None;
        let mut others = Vec::with_capacity(people.len());
        for (id, email, username) in people {
            if id == by {
                name = Some(username);
            } else {
                others.push(email);
            }
        }
        name.map(|by| Self { by, others })
    }
}

/// An account with its password hash, which must never be shown.
#[derive(Clone)]
pub struct Credentials {
    pub user: User,
    /// A PHC string; `None` if the account has no password.
    pub password_hash: Option<String>,
    /// The time of the last successful login from the network that was passed to the query.
    pub last_login_here_at: Option<Time>,
}

db::row!(Credentials { user: User::from_row, password_hash, last_login_here_at });

/// The columns of a [`User`].
pub(crate) const COLUMNS: &str =
    "id, email, email_folded, username, full_name, phone, created_at, email_verified_at, phone_verified_at,
     last_login_at, disabled_at, operator_since";

/// The columns of [`Credentials`] in addition to those of [`User`]. The second parameter is the network.
const CREDENTIAL_COLUMNS: &str =
    "password_hash, (SELECT n.last_login_at FROM login_networks n WHERE n.user_id = users.id AND n.network = $2)
         AS last_login_here_at";

/// The values of a new account.
pub struct NewUser<'a> {
    pub id: UserId,
    pub email: &'a str,
    /// Unique.
    pub email_folded: &'a str,
    pub username: &'a str,
    /// Unique.
    pub username_folded: &'a str,
    pub full_name: Option<&'a str>,
    /// The phone number in E.164 form.
    pub phone: Option<&'a str>,
    /// A PHC string; `None` if the account has no password.
    pub password_hash: Option<&'a str>,
}

/// Adds an account.
///
/// # Errors
/// `Unique` with `UserEmail` or `UserUsername` if the address or the username is taken. The constraints
/// decide races.
pub async fn insert(tx: &mut Tx, user: &NewUser<'_>, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO users (id, email, email_folded, username, username_folded, full_name, phone, password_hash, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(user.id)
    .bind(user.email)
    .bind(user.email_folded)
    .bind(user.username)
    .bind(user.username_folded)
    .bind(user.full_name)
    .bind(user.phone)
    .bind(user.password_hash)
    .bind(now)
    .defer(tx)
    .await
}

static BY_ID: LazyLock<String> = LazyLock::new(|| format!("SELECT {COLUMNS} FROM users WHERE id = $1"));

static BY_EMAIL: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS} FROM users WHERE email_folded = $1"));

static CREDENTIALS_BY_ID: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS}, {CREDENTIAL_COLUMNS} FROM users WHERE id = $1"));

static CREDENTIALS_BY_EMAIL: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {COLUMNS}, {CREDENTIAL_COLUMNS} FROM users WHERE email_folded = $1"));

/// Returns the account with this id.
pub async fn by_id(tx: &mut Tx, user_id: UserId) -> Result<Option<User>, db::Error> {
    sql(BY_ID.as_str()).bind(user_id).optional(tx).await
}

/// Returns the account with this folded address.
pub async fn by_email(tx: &mut Tx, email_folded: &str) -> Result<Option<User>, db::Error> {
    sql(BY_EMAIL.as_str()).bind(email_folded).optional(tx).await
}

/// Returns the account with this id, its password hash, and its last login from this network.
pub async fn credentials_by_id(
    tx: &mut Tx,
    user_id: UserId,
    network: Network,
) -> Result<Option<Credentials>, db::Error> {
    sql(CREDENTIALS_BY_ID.as_str()).bind(user_id).bind(network.to_string()).optional(tx).await
}

/// Returns the account with this folded address, its password hash, and its last login from this network.
pub async fn credentials_by_email(
    tx: &mut Tx,
    email_folded: &str,
    network: Network,
) -> Result<Option<Credentials>, db::Error> {
    sql(CREDENTIALS_BY_EMAIL.as_str()).bind(email_folded).bind(network.to_string()).optional(tx).await
}

/// Stores a login and the hash `kept`, if the stored hash is still `checked` and the account isn't disabled.
/// Returns `true` if it was stored. No other transaction can change the account until this one ends.
pub async fn note_login(
    tx: &mut Tx,
    user_id: UserId,
    checked: &str,
    kept: &str,
    now: Time,
) -> Result<bool, db::Error> {
    let changed = sql("UPDATE users SET last_login_at = $4, password_hash = $3, awaits_login = 0
         WHERE id = $1 AND password_hash = $2 AND disabled_at IS NULL")
    .bind(user_id)
    .bind(checked)
    .bind(kept)
    .bind(now)
    .execute(tx)
    .await?;
    Ok(changed == 1)
}

/// Stores a login without a password. Returns `false` if the account doesn't exist or is disabled. No other
/// transaction can change the account until this one ends.
pub async fn note_login_without_password(tx: &mut Tx, user_id: UserId, now: Time) -> Result<bool, db::Error> {
    let changed =
        sql("UPDATE users SET last_login_at = $2, awaits_login = 0 WHERE id = $1 AND disabled_at IS NULL")
            .bind(user_id)
            .bind(now)
            .execute(tx)
            .await?;
    Ok(changed == 1)
}

/// Returns `true` if the account has a password. The result is reliable only under the account's lock.
pub async fn has_any_password(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> = sql("SELECT id FROM users WHERE id = $1 AND password_hash IS NOT NULL")
        .bind(user_id)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Returns `true` if an account has this folded username.
pub async fn has_username(tx: &mut Tx, username_folded: &str) -> Result<bool, db::Error> {
    let text = "SELECT id FROM users WHERE username_folded = $1";
    let found: Option<(UserId,)> = sql(text).bind(username_folded).optional(tx).await?;
    Ok(found.is_some())
}

/// Stores another hash of the same password, if the stored hash is still `checked`.
pub async fn set_hash(tx: &mut Tx, user_id: UserId, checked: &str, kept: &str) -> Result<(), db::Error> {
    sql("UPDATE users SET password_hash = $3 WHERE id = $1 AND password_hash = $2")
        .bind(user_id)
        .bind(checked)
        .bind(kept)
        .defer(tx)
        .await
}

/// Sets a new password, regardless of the current one, and notifies every replica. The user must have
/// confirmed the account's e-mail address.
pub async fn set_password(
    tx: &mut Tx,
    user_id: UserId,
    password_hash: &str,
    now: Time,
) -> Result<(), db::Error> {
    changes::record(tx, Change::User(user_id), now).await?;
    sql("UPDATE users SET password_hash = $2, password_changed_at = $3, awaits_login = 0 WHERE id = $1")
        .bind(user_id)
        .bind(password_hash)
        .bind(now)
        .defer(tx)
        .await
}

/// Sets a new password if the stored hash is still `checked`, and notifies every replica. Returns `true` if
/// it was set.
pub async fn replace_password(
    tx: &mut Tx,
    user_id: UserId,
    checked: &str,
    password_hash: &str,
    now: Time,
) -> Result<bool, db::Error> {
    let changed = sql("UPDATE users SET password_hash = $3, password_changed_at = $4
         WHERE id = $1 AND password_hash = $2")
    .bind(user_id)
    .bind(checked)
    .bind(password_hash)
    .bind(now)
    .execute(tx)
    .await?;
    if changed == 1 {
        changes::record(tx, Change::User(user_id), now).await?;
    }
    Ok(changed == 1)
}

/// Locks the account: no other transaction can change its password until this one ends.
pub async fn lock(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("SELECT id FROM users WHERE id = $1").bind(user_id).lock(tx, Lock::Change).await
}

/// Locks the account like [`lock`], but for a change of the username or the address. PostgreSQL takes this
/// stronger lock for such a change. If two transactions first held the weaker lock, they could deadlock.
pub async fn lock_for_new_name(tx: &mut Tx, user_id: UserId) -> Result<(), db::Error> {
    sql("SELECT id FROM users WHERE id = $1").bind(user_id).lock(tx, Lock::Removal).await
}

/// Returns `true` if the account has this folded address. The result is reliable only under the account's
/// lock.
pub async fn has_address(tx: &mut Tx, user_id: UserId, email_folded: &str) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> = sql("SELECT id FROM users WHERE id = $1 AND email_folded = $2")
        .bind(user_id)
        .bind(email_folded)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Returns `true` if this is the stored hash of the account's password. The result is reliable only under the
/// account's lock.
pub async fn has_password(tx: &mut Tx, user_id: UserId, password_hash: &str) -> Result<bool, db::Error> {
    let found: Option<(UserId,)> = sql("SELECT id FROM users WHERE id = $1 AND password_hash = $2")
        .bind(user_id)
        .bind(password_hash)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Stores the username, the full name and the phone number of a changed account. `username_folded` is the new
/// folded username, or `None` if the username hasn't changed.
///
/// # Errors
/// `Unique` with `UserUsername` if the username is taken.
pub async fn update_profile(
    tx: &mut Tx,
    user: &User,
    username_folded: Option<&str>,
) -> Result<(), db::Error> {
    sql("UPDATE users SET username = $2, username_folded = COALESCE($3, username_folded), full_name = $4,
                phone = $5, phone_verified_at = $6
         WHERE id = $1")
    .bind(user.id)
    .bind(user.username.as_str())
    .bind(username_folded)
    .bind(user.full_name.as_deref())
    .bind(user.phone.as_deref())
    .bind(user.phone_verified_at)
    .defer(tx)
    .await
}

/// Returns `true` if the password was replaced after `then`. The result is reliable only under the account's
/// lock. A time after `latest` is ignored, because it was written before the clock was set back.
pub async fn password_changed_since(
    tx: &mut Tx,
    user_id: UserId,
    then: Time,
    latest: Time,
) -> Result<bool, db::Error> {
    let changed: Option<(UserId,)> =
        sql("SELECT id FROM users WHERE id = $1 AND password_changed_at > $2 AND password_changed_at <= $3")
            .bind(user_id)
            .bind(then)
            .bind(latest)
            .optional(tx)
            .await?;
    Ok(changed.is_some())
}

/// An address that was just verified. The caller must also give the user the benefits of a verified address.
#[must_use = "call `billing::first_credit::give`, because a newly verified user may get credit"]
#[derive(PartialEq, Eq, Debug)]
pub struct EmailVerified {
    user_id: UserId,
    is_first: bool,
}

impl EmailVerified {
    /// Returns the account that has the address.
    pub const fn user_id(&self) -> UserId {
        self.user_id
    }

    /// Returns `true` if the address wasn't verified before.
    pub const fn is_first(&self) -> bool {
        self.is_first
    }
}

/// Marks the address as verified. If it already is, the time of the first verification is kept.
pub async fn set_email_verified(tx: &mut Tx, user_id: UserId, now: Time) -> Result<EmailVerified, db::Error> {
    let text = "UPDATE users SET email_verified_at = $2 WHERE id = $1 AND email_verified_at IS NULL";
    set_verified(tx, text, user_id, now).await
}

/// Marks the address as verified by a token without a password. Invitations are then accepted only at the
/// next login.
pub async fn set_email_verified_by_token(
    tx: &mut Tx,
    user_id: UserId,
    now: Time,
) -> Result<EmailVerified, db::Error> {
    let text = "UPDATE users SET email_verified_at = $2, awaits_login = 1
                WHERE id = $1 AND email_verified_at IS NULL";
    set_verified(tx, text, user_id, now).await
}

async fn set_verified(
    tx: &mut Tx,
    text: &'static str,
    user_id: UserId,
    now: Time,
) -> Result<EmailVerified, db::Error> {
    let changed = sql(text).bind(user_id).bind(now).execute(tx).await?;
    Ok(EmailVerified { user_id, is_first: changed == 1 })
}

/// Marks the address as verified if the stored hash is still `checked`. Returns `None` otherwise.
pub async fn set_email_verified_with(
    tx: &mut Tx,
    user_id: UserId,
    checked: &str,
    now: Time,
) -> Result<Option<EmailVerified>, db::Error> {
    let changed =
        sql("UPDATE users SET email_verified_at = COALESCE(email_verified_at, $3), awaits_login = 0
         WHERE id = $1 AND password_hash = $2")
        .bind(user_id)
        .bind(checked)
        .bind(now)
        .execute(tx)
        .await?;
    // The caller has proved that the account is theirs, so nothing depends on whether this is the first time.
    Ok((changed == 1).then_some(EmailVerified { user_id, is_first: false }))
}

/// A new address, as entered and folded.
#[derive(Clone, Copy, Debug)]
pub struct NewAddress<'a> {
    pub email: &'a str,
    /// Unique.
    pub email_folded: &'a str,
}

/// Sets a new address, which its owner has just confirmed, if the stored hash is still `checked`. Returns
/// `None` otherwise.
///
/// # Errors
/// `Unique` with `UserEmail` if the address is taken.
pub async fn set_address_with(
    tx: &mut Tx,
    user_id: UserId,
    checked: &str,
    address: &NewAddress<'_>,
    now: Time,
) -> Result<Option<EmailVerified>, db::Error> {
    let changed =
        sql("UPDATE users SET email = $3, email_folded = $4, email_verified_at = $5, awaits_login = 0
         WHERE id = $1 AND password_hash = $2")
        .bind(user_id)
        .bind(checked)
        .bind(address.email)
        .bind(address.email_folded)
        .bind(now)
        .execute(tx)
        .await?;
    // The caller has proved that the account is theirs, so nothing depends on whether this is the first time.
    Ok((changed == 1).then_some(EmailVerified { user_id, is_first: false }))
}

/// Returns `true` if the account exists and its address is verified.
pub async fn is_verified(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    let verified: Option<(String,)> =
        sql("SELECT id FROM users WHERE id = $1 AND email_verified_at IS NOT NULL")
            .bind(user_id)
            .optional(tx)
            .await?;
    Ok(verified.is_some())
}

/// Stores that an organization of this user received the first credit.
pub async fn set_credit_granted(tx: &mut Tx, user_id: UserId, now: Time) -> Result<(), db::Error> {
    sql("UPDATE users SET credit_granted_at = $2 WHERE id = $1").bind(user_id).bind(now).defer(tx).await
}

/// Returns `true` if the address was verified with a token alone, and the user hasn't logged in since then.
pub async fn awaits_login(tx: &mut Tx, user_id: UserId) -> Result<bool, db::Error> {
    let waiting: Option<(UserId,)> =
        sql("SELECT id FROM users WHERE id = $1 AND awaits_login = 1").bind(user_id).optional(tx).await?;
    Ok(waiting.is_some())
}
