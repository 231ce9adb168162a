//! Password resets with an e-mailed link.
//!
//! Anyone can register another person's address, and use the account before the owner of the address does. So
//! if the address is first verified together with a new password, all earlier access to the account ends.

use crate::factors::second_factor;
use crate::hasher::Place;
use crate::rules::password;
use crate::sign_in::attempts;
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Detail, Error};
use kernel::futures::BoxFuture;
use kernel::networks::Network;
use kernel::secrets::token::MailToken;
use mail::posting::Draft;

use crate::store::email_tokens::Purpose;
use crate::store::users::{Credentials, User};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event, Trail};

/// The error detail of a new password that equals the current one.
pub const UNCHANGED: &str = "password_unchanged";

/// The account after a new password was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPassword {
    /// The account's address.
    pub email: String,
    /// The organizations that the account belongs to, one line for each, if another person may have added it
    /// to them.
    pub belongs_to: Vec<String>,
}

/// Queues an e-mail with a link that resets the password. The address doesn't have to belong to an account:
/// the recipient is looked up when the e-mail is sent, so neither the response nor its time reveals whether
/// an account exists.
///
/// # Errors
/// 429 for more e-mails than allowed within an hour.
pub fn request_reset<'a>(
    accounts: &'a Accounts,
    trail: &'a Trail,
    email: &'a str,
) -> BoxFuture<'a, Result<(), Error>> {
    Box::pin(async move {
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let (sender, draft) = (Sender::visitor(trail), Draft::plain(Template::ResetPassword));
        accounts.outbox.post(&mut tx, &sender, &draft, email, now).await?;
        tx.commit().await?;
        accounts.outbox.notify_one();
        Ok(())
    })
}

/// Consumes the token and sets the password. Every session of the account ends, and a pending change of its
/// address is canceled. If the address was never verified before, every other access to the account ends too.
/// A password that breaks a rule doesn't consume the token.
///
/// # Errors
/// `invalid_token`; 400 with each rule that the password breaks; 429 while the password queue is full.
pub async fn reset(
    accounts: &Accounts,
    trail: &Trail,
    token: &str,
    password: &str,
) -> Result<NewPassword, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let network = Network::of(trail.address);
    let mut tx = accounts.db.read().await?;
    let now = accounts.clock.now();
    let owner = store::email_tokens::owner(&mut tx, Purpose::ResetPassword, token.hash(), now).await?;
    let owner = owner.ok_or_else(refused)?;
    let account = store::users::credentials_by_id(&mut tx, owner, network).await?.ok_or_else(refused)?;
    drop(tx);
    let place = accounts.hasher.acquire_place(network)?;
    let password_hash = hash_new("password", password, &account, place).await?;
    let now = accounts.clock.now();
    let mut tx = accounts.db.write().await?;
    // Of two concurrent requests with the same token, only one consumes it.
    store::email_tokens::consume(&mut tx, Purpose::ResetPassword, token.hash(), now)
        .await?
        .ok_or_else(refused)?;
    let trail = trail.by(account.user.id);
    set_and_commit(accounts, tx, &trail, account.user, &password_hash, now).await
}

/// Sets the password of an account whose owner has confirmed the e-mail address, ends its sessions, and
/// commits. If the address wasn't verified before, all access that was created earlier ends as well, and the
/// owner gets a list of the organizations that the account belongs to.
pub(super) async fn set_and_commit(
    accounts: &Accounts,
    mut tx: Tx,
    trail: &Trail,
    user: User,
    password_hash: &str,
    now: Time,
) -> Result<NewPassword, Error> {
    store::users::set_password(&mut tx, user.id, password_hash, now).await?;
    let verified = store::users::set_email_verified(&mut tx, user.id, now).await?;
    store::sessions::end_all(&mut tx, user.id, None, now).await?;
    store::email_changes::remove(&mut tx, user.id).await?;
    let network = Network::of(trail.address);
    attempts::end_all_waits(&mut tx, user.id, &user.email_folded, network, now).await?;
    let mut belongs_to = Vec::new();
    if verified.is_first() {
        store::email_tokens::remove_all(&mut tx, user.id).await?;
        // These second factors belong to earlier users of the account, and would lock the owner out.
        second_factor::remove_all(&mut tx, user.id).await?;
        belongs_to = (accounts.hooks.reclaim)(&mut tx, trail, &user, now).await?;
    }
    (accounts.hooks.give_first_credit)(&mut tx, &verified, now).await?;
    let about = About { belongs_to: belongs_to.clone(), ..About::default() };
    let draft = Draft { template: Template::PasswordChanged, about };
    accounts.outbox.post(&mut tx, &Sender::person(trail, user.id), &draft, &user.email, now).await?;
    let event = Event { action: Action::PasswordReset, target: user.id.to_string(), organization_id: None };
    trail::record(&mut tx, trail, &event, now, &accounts.random).await?;
    tx.commit().await?;
    accounts.outbox.notify_one();
    Ok(NewPassword { email: user.email, belongs_to })
}

/// Checks that a new password follows the rules and differs from the current one, and returns its hash.
///
/// # Errors
/// 400 with each rule that the password breaks.
pub(super) async fn hash_new(
    field: &'static str,
    password: &str,
    account: &Credentials,
    place: Place,
) -> Result<String, Error> {
    check_rules(field, password, &account.user)?;
    if place.verify(password, account.password_hash.as_deref()).await?.matches {
        let message = format!("`{field}` is already the account's password: choose another one.");
        return Err(Error::invalid(vec![Detail { param: field.to_owned(), code: UNCHANGED, message }]));
    }
    place.hash(password).await
}

/// Checks a new password against the rules, with the personal data of its owner.
///
/// # Errors
/// 400 with each rule that the password breaks.
pub(super) fn check_rules(field: &str, password: &str, user: &User) -> Result<(), Error> {
    let personal = password::PersonalData {
        username: &user.username,
        email: &user.email,
        full_name: user.full_name.as_deref(),
        phone: user.phone.as_deref(),
    };
    let problems = password::check(password, &personal).into_iter().map(|problem| Detail {
        param: field.to_owned(),
        code: problem.code,
        message: format!("`{field}` {}.", problem.message),
    });
    let problems: Vec<_> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(Error::invalid(problems)) }
}
