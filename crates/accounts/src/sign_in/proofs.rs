//! Counts and checks the credentials of an account: its password, and the code of its second factor.
//!
//! Guesses at both are counted before they are checked, apart from each other: a right password doesn't
//! forget wrong codes (RFC 4226, section 7.3). Refusals are recorded here, so that no way of guessing leaves
//! no trace.

use crate::factors::second_factor;
use crate::hasher::Place;
use crate::sign_in::guesses::Guess;
use crate::sign_in::refusals::{Reason, Refusal};
use crate::store::users::Credentials;
use crate::{Accounts, Session};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::networks::Network;
use trail::Trail;

/// The right password of an account.
pub(crate) struct RightPassword {
    /// The stored hash that it was checked against.
    pub hash: String,
    pub guess: Guess,
    /// The place in the password queue, for further hashes.
    pub place: Place,
}

/// Counts a guess at the password of an account, and checks it.
///
/// # Errors
/// `no_password`; `wrong_password` for the field `field`; 429 while the caller has to wait or the password
/// queue is full.
pub(crate) async fn check_password(
    accounts: &Accounts,
    trail: &Trail,
    account: &Credentials,
    (field, password): (&'static str, &str),
) -> Result<RightPassword, Error> {
    let network = Network::of(trail.address);
    let hash = account.password_hash.clone().ok_or(Code::NoPassword)?;
    // Take the place first: a refusal because of the full queue doesn't count as a guess.
    let place = accounts.hasher.acquire_place(network)?;
    let guess = Guess::new(&account.user.email_folded, network, account.last_login_here_at);
    let now = accounts.clock.now();
    if let Err(error) = guess.count(accounts, now).await {
        drop(place);
        record_refusal(accounts, trail, account, &guess, &error).await?;
        return Err(error);
    }
    if place.verify(password, Some(&hash)).await?.matches {
        return Ok(RightPassword { hash, guess, place });
    }
    drop(place);
    let error = Error::new(Code::WrongPassword).param(field);
    record_refusal(accounts, trail, account, &guess, &error).await?;
    Err(error)
}

/// Records a failed attempt outside of a login.
pub(crate) async fn record_refusal(
    accounts: &Accounts,
    trail: &Trail,
    account: &Credentials,
    guess: &Guess,
    error: &Error,
) -> Result<(), Error> {
    let reason = match error.code {
        Code::WrongPassword => Reason::InvalidCredentials,
        Code::InvalidOneTimeCode => Reason::InvalidOneTimeCode,
        Code::TooManyAttempts => Reason::TooManyAttempts,
        _ => return Ok(()),
    };
    let user = &account.user;
    let refusal = Refusal { guess, email_folded: &user.email_folded, user_id: Some(user.id), reason };
    refusal.record(accounts, &trail.by(user.id), accounts.clock.now()).await
}

/// A code as typed, counted as a guess at the codes of an account.
pub(crate) struct CountedCode<'a> {
    typed: Option<&'a str>,
    guess: Guess,
}

impl<'a> CountedCode<'a> {
    /// Counts a code, if one was sent. `guess` is the guess at the account.
    ///
    /// # Errors
    /// 429 while the caller has to wait.
    pub(crate) async fn count(
        accounts: &Accounts,
        guess: &Guess,
        typed: Option<&'a str>,
    ) -> Result<Self, Error> {
        let guess = guess.at_codes();
        if typed.is_some() {
            guess.count(accounts, accounts.clock.now()).await?;
        }
        Ok(Self { typed, guess })
    }

    /// Returns the code as typed.
    pub(crate) fn typed(&self) -> Option<&'a str> {
        self.typed
    }

    /// Clears the wrong ones: this one was right, or none was required.
    pub(crate) async fn forget(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        match self.typed {
            Some(_) => self.guess.forget(tx, now).await,
            None => Ok(()),
        }
    }
}

/// Requires recent reauthentication if the account has a second factor: the password alone isn't enough then.
///
/// # Errors
/// `reauthentication_required`.
pub(crate) async fn require_fresh_where_factor_is(
    accounts: &Accounts,
    session: Session,
) -> Result<(), Error> {
    let has_factor = second_factor::is_there(&mut accounts.db.read().await?, session.user_id).await?;
    if has_factor && !accounts.is_fresh(session).await? {
        return Err(Code::ReauthenticationRequired.into());
    }
    Ok(())
}
