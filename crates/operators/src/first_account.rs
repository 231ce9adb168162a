//! The first account: a user with the first-account token, which is in a file in the data folder, creates an
//! operator's account.
//!
//! A new installation has no operator, and no one may become an operator just by opening a page first. So the
//! first start without an account creates a token, and stores its hash in the database. If several servers
//! share a database, only one of them stores a token. If several users send the token at the same time, only
//! one of them creates an account.

use accounts::registration::NewAccount;
use accounts::store::users::administration;
use accounts::store::users::{self, NewUser, User};
use kernel::error::{Code, Error};
use kernel::ids::UserId;
use kernel::networks::Network;
use kernel::secrets::files::{load_or_create_first_account_token, read_first_account_token};
use kernel::secrets::token::MailToken;
use trail::{Action, Trail};

use crate::Operators;

/// Creates the token at the first start without an account. Logs the link if the token is valid and in this
/// server's data folder. Removes the file if no token is valid anymore.
///
/// # Errors
/// The database or the data folder fails.
pub async fn prepare(operators: &Operators) -> Result<(), Error> {
    let mut tx = operators.db.read().await?;
    let stored = administration::first_account_token(&mut tx).await?;
    let is_new = stored.is_none() && !administration::has_any(&mut tx).await?;
    drop(tx);
    if is_new {
        match make_token(operators).await {
            Ok(Some(token)) => announce(operators, &token),
            Ok(None) => {}
            Err(Failure::File(what)) => tracing::warn!(
                "no link for the first account: {what}; `tollkeeper user create --operator` creates an operator"
            ),
            Err(Failure::Database(error)) => return Err(error),
        }
        return Ok(());
    }
    match (read(operators)?, stored) {
        (Some(token), Some(hash)) if token.hash() == hash => announce(operators, &token),
        (Some(_), None) => remove_file(operators),
        _ => {}
    }
    Ok(())
}

/// The reason why the token couldn't be created.
enum Failure {
    /// The file can't be written. Contains a sentence for the operator.
    File(String),
    Database(Error),
}

fn announce(operators: &Operators, token: &MailToken) {
    if operators.has_console {
        let link = link(operators, token);
        tracing::info!(
            link,
            "this installation has no operator yet: this link creates the first account, once"
        );
    }
}

/// Returns the link that creates the first account. If this server's data folder doesn't contain the valid
/// token, creates a new token. Returns `None` if an operator exists.
///
/// # Errors
/// The database or the data folder fails.
pub async fn renew_link(operators: &Operators) -> Result<Option<String>, Error> {
    let mut tx = operators.db.read().await?;
    if administration::has_operator(&mut tx).await? {
        return Ok(None);
    }
    let stored = administration::first_account_token(&mut tx).await?;
    drop(tx);
    let token = match read(operators)? {
        Some(token) if stored == Some(token.hash()) => token,
        _ => {
            let mut tx = operators.db.write().await?;
            administration::remove_first_account_token(&mut tx).await?;
            tx.commit().await?;
            remove_file(operators);
            match make_token(operators).await {
                Ok(token) => token.ok_or(Code::PreconditionFailed)?,
                Err(Failure::File(what)) => return Err(Error::internal(what)),
                Err(Failure::Database(error)) => return Err(error),
            }
        }
    };
    Ok(Some(link(operators, &token)))
}

fn link(operators: &Operators, token: &MailToken) -> String {
    format!("{}/console/first-account?token={}", operators.public_url, token.expose())
}

/// Writes a new token to the file and its hash to the database. Returns `None` if another server has already
/// stored a token.
async fn make_token(operators: &Operators) -> Result<Option<MailToken>, Failure> {
    let token = load_or_create_first_account_token(&operators.first_account_file, &operators.random);
    let token = token.map_err(Failure::File)?;
    let stored = async {
        let mut tx = operators.db.write().await?;
        let now = operators.clock.now();
        administration::insert_first_account_token(&mut tx, token.hash(), now).await?;
        let stored = administration::first_account_token(&mut tx).await?;
        tx.commit().await?;
        Ok::<_, Error>(stored)
    };
    if stored.await.map_err(Failure::Database)? == Some(token.hash()) {
        return Ok(Some(token));
    }
    remove_file(operators);
    Ok(None)
}

fn read(operators: &Operators) -> Result<Option<MailToken>, Error> {
    read_first_account_token(&operators.first_account_file).map_err(Error::internal)
}

fn remove_file(operators: &Operators) {
    let file = &operators.first_account_file;
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), "the file of a used token can't be removed: {error}");
        }
        _ => {}
    }
}

/// Returns `true` if this is the valid token for the first account.
///
/// # Errors
/// The database fails.
pub async fn is_good(operators: &Operators, token: &str) -> Result<bool, Error> {
    let Some(token) = MailToken::parse(token) else { return Ok(false) };
    let stored = administration::first_account_token(&mut operators.db.read().await?).await?;
    Ok(stored == Some(token.hash()))
}

/// Creates the first operator's account, with a verified address, and consumes the token.
///
/// # Errors
/// `invalid_token`; 409 if the address or the username is taken; 429 while the password queue is full. After
/// 409 and 429, the token is still valid.
pub async fn create(
    operators: &Operators,
    token: &str,
    new: &NewAccount<'_>,
    trail: &Trail,
) -> Result<User, Error> {
    let refused = || Error::new(Code::InvalidToken).param("token");
    // Check the token before hashing the password, which is slow.
    if !is_good(operators, token).await? {
        return Err(refused());
    }
    let token = MailToken::parse(token).ok_or_else(refused)?;
    let place = operators.accounts.hasher.acquire_place(Network::of(trail.address))?;
    let password_hash = place.hash(new.password).await?;
    let now = operators.clock.now();
    let id = UserId::new(now, &operators.random);
    let mut tx = operators.db.write().await?;
    if !administration::consume_first_account_token(&mut tx, token.hash()).await? {
        return Err(refused());
    }
    let row = NewUser {
        id,
        email: new.email,
        email_folded: new.email_folded,
        username: new.username,
        username_folded: new.username_folded,
        full_name: new.full_name,
        phone: new.phone,
        password_hash: Some(&password_hash),
    };
    users::insert(&mut tx, &row, now).await?;
    // The user has access to the data folder or the log, so they run the installation, and their address
    // doesn't have to be verified.
    let verified = users::set_email_verified(&mut tx, id, now).await?;
    (operators.accounts.hooks.give_first_credit)(&mut tx, &verified, now).await?;
    administration::set_operator(&mut tx, id, Some(now), now).await?;
    let trail = trail.by(id);
    for action in [Action::UserRegistered, Action::OperatorGranted] {
        operators.record(&mut tx, &trail, (action, &id.to_string()), None, now).await?;
    }
    let user = users::by_id(&mut tx, id).await?.ok_or(Code::UserNotFound)?;
    tx.commit().await?;
    remove_file(operators);
    Ok(user)
}
