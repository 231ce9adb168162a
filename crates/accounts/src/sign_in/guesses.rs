//! Attempts to log in to an account. Each is counted before its outcome is known.

use crate::rules::throttling::{self, FreeAttempts, Wait};
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::{DAY_MS, Time};
use kernel::error::{Code, Error, RateLimit};
use kernel::ids::UserId;
use kernel::networks::Network;
use kernel::secrets::sha256;
use mail::posting::Draft;

use crate::store::users::User;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::Trail;

/// The time for which a network counts as known after a successful login from it, in milliseconds.
pub const KNOWN_NETWORK_MS: i64 = 30 * DAY_MS;

/// A guess at an account's password. The account need not exist.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    account_hash: [u8; 32],
    network: Network,
    last_login_here_at: Option<Time>,
}

impl Guess {
    /// An attempt at the account with this address from this network. `last_login_here_at` is the account's
    /// last successful login from there.
    pub fn new(email_folded: &str, network: Network, last_login_here_at: Option<Time>) -> Self {
        Self { account_hash: sha256(email_folded.as_bytes()), network, last_login_here_at }
    }

    /// Returns the attempt at the codes of the same account, which are counted apart from its passwords.
    #[must_use]
    pub fn at_codes(&self) -> Self {
        Self { account_hash: sha256(&[b"codes".as_slice(), &self.account_hash].concat()), ..*self }
    }

    /// The SHA-256 of the account's folded address; for codes, a hash derived from it.
    pub fn account_hash(&self) -> [u8; 32] {
        self.account_hash
    }

    /// Returns the network of the attempt.
    pub fn network(&self) -> Network {
        self.network
    }

    fn is_known(&self, now: Time) -> bool {
        self.last_login_here_at.is_some_and(|at| at > now.plus_ms(-KNOWN_NETWORK_MS))
    }

    /// Counts the attempt in a transaction of its own, so that it stays counted regardless of later errors.
    /// An address without an account takes the same statements.
    ///
    /// # Errors
    /// 429 with the remaining wait.
    pub async fn count(&self, accounts: &Accounts, now: Time) -> Result<(), Error> {
        let limits = &accounts.settings.limits;
        if !limits.enabled {
            return Ok(());
        }
        let free = FreeAttempts {
            network: limits.login_failures,
            unknown_networks: limits.login_failures_all_networks,
        };
        let mut tx = accounts.db.write().await?;
        let before = store::login_guesses::lock(&mut tx, self.account_hash, self.network, now).await?;
        let counted = throttling::count_login_from(&before, free, self.is_known(now), now)
            .map_err(too_many_attempts)?;
        store::login_guesses::set(&mut tx, self.account_hash, self.network, &counted).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Clears the attempt, and the earlier ones from the same network, because the password was right.
    pub async fn forget(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        if !self.is_known(now) {
            store::login_guesses::take_back(tx, self.account_hash).await?;
        }
        Ok(store::login_guesses::clear_network(tx, self.account_hash, self.network).await?)
    }

    /// Stores the network of a successful login, and mails the owner if it is new while others are known. A
    /// network stored within the last day isn't stored again. Returns `true` if a mail was added to the
    /// outbox.
    pub async fn note_login(
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

/// Ends every wait of an account whose owner has proved to read its mail. From then on their network is
/// known: otherwise an attacker who keeps guessing would lock the owner out again.
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
