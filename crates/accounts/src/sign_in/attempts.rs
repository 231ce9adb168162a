//! Attempts to sign in or to confirm one's identity. Each attempt is counted before its outcome is known, and
//! recorded if it is refused ([`Attempt::refuse`]).
//!
//! Guesses at an account's password and guesses at its codes are counted separately, so that a correct
//! password doesn't reset the count of wrong codes (RFC 4226, section 7.3).

use crate::rules::throttling::{self, FreeAttempts, Wait};
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error, RateLimit};
use kernel::ids::UserId;
use kernel::networks::Network;
use kernel::secrets::sha256;
use mail::posting::Draft;

use crate::store::users::{Credentials, User};
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::Trail;

/// The time for which a network counts as known after a successful login from it, in milliseconds.
pub const KNOWN_NETWORK_MS: i64 = 30 * DAY_MS;

/// An attempt to sign in to an account, which may not exist.
#[derive(Clone)]
pub(crate) struct Attempt {
    /// The folded address of the account, or the address that was entered.
    pub(super) email_folded: String,
    /// The account, if one exists.
    pub(super) user_id: Option<UserId>,
    pub(super) network: Network,
    /// The time of the account's last successful login from this network.
    last_login_here_at: Option<Time>,
}

impl Attempt {
    /// Creates an attempt to sign in to the account with this address, if it exists.
    pub(crate) fn at_address(email_folded: String, account: Option<&Credentials>, network: Network) -> Self {
        let user_id = account.map(|account| account.user.id);
        let last_login_here_at = account.and_then(|account| account.last_login_here_at);
        Self { email_folded, user_id, network, last_login_here_at }
    }

    /// Creates an attempt to sign in to this account.
    pub(crate) fn at(user: &User, last_login_here_at: Option<Time>, network: Network) -> Self {
        Self { email_folded: user.email_folded.clone(), user_id: Some(user.id), network, last_login_here_at }
    }

    /// Returns the SHA-256 hash of the folded address.
    pub(super) fn account_hash(&self) -> [u8; 32] {
        sha256(self.email_folded.as_bytes())
    }

    /// Returns the hash under which guesses at the account's codes are counted.
    fn codes_hash(&self) -> [u8; 32] {
        sha256(&[b"codes".as_slice(), &self.account_hash()].concat())
    }

    fn is_known(&self, now: Time) -> bool {
        self.last_login_here_at.is_some_and(|at| at > now.plus_ms(-KNOWN_NETWORK_MS))
    }

    /// Counts a guess at the password.
    ///
    /// # Errors
    /// 429 with the remaining wait.
    pub(crate) async fn count_password(&self, accounts: &Accounts) -> Result<(), Error> {
        self.count(accounts, self.account_hash()).await
    }

    /// Clears the counted guesses from this network, because the password was right.
    pub(crate) async fn forget_password(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        self.forget(tx, self.account_hash(), now).await
    }

    /// Counts a guess in a separate transaction, so that it stays counted regardless of later errors. An
    /// address without an account needs the same statements, so the response time doesn't reveal whether the
    /// account exists.
    async fn count(&self, accounts: &Accounts, hash: [u8; 32]) -> Result<(), Error> {
        let limits = &accounts.settings.limits;
        if !limits.enabled {
            return Ok(());
        }
        let free = FreeAttempts {
            network: limits.login_failures,
            unknown_networks: limits.login_failures_all_networks,
        };
        let now = accounts.clock.now();
        let mut tx = accounts.db.write().await?;
        let before = store::login_guesses::lock(&mut tx, hash, self.network, now).await?;
        let counted = throttling::count_login_from(&before, free, self.is_known(now), now)
            .map_err(too_many_attempts)?;
        store::login_guesses::set(&mut tx, hash, self.network, &counted).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn forget(&self, tx: &mut Tx, hash: [u8; 32], now: Time) -> Result<(), Error> {
        if !self.is_known(now) {
            store::login_guesses::take_back(tx, hash).await?;
        }
        Ok(store::login_guesses::clear_network(tx, hash, self.network).await?)
    }

    /// Stores the network of a successful login, and e-mails the owner if the network is new and others are
    /// known. A network that was stored within the last day isn't stored again. Returns `true` if an e-mail
    /// was added to the outbox.
    pub(crate) async fn note_login(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        user: &User,
        trail: &Trail,
        now: Time,
    ) -> Result<bool, Error> {
        if self.last_login_here_at.is_some_and(|at| at > now.plus_ms(-DAY_MS)) {
            return Ok(false);
        }
        let since = now.plus_ms(-KNOWN_NETWORK_MS);
        let is_new = user.email_verified_at.is_some()
            && !self.is_known(now)
            && store::login_networks::has_others(tx, user.id, self.network, since).await?;
        if is_new {
            let about =
                About { address: trail.address.map(|address| address.to_string()), ..About::default() };
            let draft = Draft { template: Template::NewLogin, about };
            accounts.outbox.post(tx, &Sender::person(trail, user.id), &draft, &user.email, now).await?;
        }
        store::login_networks::note(tx, user.id, self.network, now).await?;
        Ok(is_new)
    }
}

/// A code that a user has typed, counted as a guess at the account's codes.
pub(crate) struct CountedCode<'a> {
    typed: Option<&'a str>,
    attempt: Attempt,
}

impl<'a> CountedCode<'a> {
    /// Counts a code, if one was sent.
    ///
    /// # Errors
    /// 429 with the remaining wait.
    pub(crate) async fn count(
        accounts: &Accounts,
        attempt: &Attempt,
        typed: Option<&'a str>,
    ) -> Result<Self, Error> {
        if typed.is_some() {
            attempt.count(accounts, attempt.codes_hash()).await?;
        }
        Ok(Self { typed, attempt: attempt.clone() })
    }

    /// Returns the code as the user typed it.
    pub(crate) fn typed(&self) -> Option<&'a str> {
        self.typed
    }

    /// Clears the counted guesses, because the code was right or no code was required.
    pub(crate) async fn forget(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        match self.typed {
            Some(_) => self.attempt.forget(tx, self.attempt.codes_hash(), now).await,
            None => Ok(()),
        }
    }
}

/// Ends every wait of an account whose owner has confirmed the e-mail address. The owner's network counts as
/// known from then on. Otherwise an attacker who keeps guessing would lock the owner out again.
pub async fn end_all_waits(
    tx: &mut Tx,
    user_id: UserId,
    email_folded: &str,
    network: Network,
    now: Time,
) -> Result<(), Error> {
    store::login_guesses::clear_account(tx, sha256(email_folded.as_bytes())).await?;
    Ok(store::login_networks::note(tx, user_id, network, now).await?)
}

/// Returns 429 with the remaining wait.
pub fn too_many_attempts(wait: Wait) -> Error {
    let limit =
        RateLimit { limit: wait.limit, retry_after_ms: wait.retry_after_ms, reset_ms: wait.retry_after_ms };
    Error { rate_limit: Some(limit), ..Error::new(Code::TooManyAttempts) }
}
