//! Guesses at an account's password: each is counted before anything is known of its outcome.

use crate::Accounts;
use crate::rules::throttling::{self, FreeAttempts, Wait};
use crate::store;
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

/// How long the network of a good login is known, in milliseconds.
pub const NETWORK_KNOWN_MS: i64 = 30 * DAY_MS;

/// A try at an account's password, whether or not there is such an account.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    account_hash: [u8; 32],
    network: Network,
    last_login_here_at: Option<Time>,
}

impl Guess {
    /// A try at the account with this address, from this network; with the account's last good login from
    /// there.
    pub fn new(email_folded: &str, network: Network, last_login_here_at: Option<Time>) -> Self {
        Self { account_hash: sha256(email_folded.as_bytes()), network, last_login_here_at }
    }

    /// The SHA-256 of the account's folded address.
    pub fn account_hash(&self) -> [u8; 32] {
        self.account_hash
    }

    /// The network that it comes from.
    pub fn network(&self) -> Network {
        self.network
    }

    fn is_known(&self, now: Time) -> bool {
        self.last_login_here_at.is_some_and(|at| at > now.plus_ms(-NETWORK_KNOWN_MS))
    }

    /// Counts it, in a transaction of its own: it stays counted whatever follows. An address without an
    /// account costs the same statements.
    ///
    /// # Errors
    /// 429 with the true wait.
    pub async fn count(&self, accounts: &Accounts, now: Time) -> Result<(), Error> {
        let limits = &accounts.settings.limits;
        if !limits.enabled {
            return Ok(());
        }
        let free =
            FreeAttempts { network: limits.login_failures, strangers: limits.login_failures_all_networks };
        let mut tx = accounts.db.write().await?;
        let before = store::login_guesses::lock(&mut tx, self.account_hash, self.network, now).await?;
        let counted = throttling::login_from(&before, free, self.is_known(now), now).map_err(too_many)?;
        store::login_guesses::set(&mut tx, self.account_hash, self.network, &counted).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Takes it back, with those before it from the same network: the password was right.
    pub async fn forget(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        if !self.is_known(now) {
            store::login_guesses::give_back(tx, self.account_hash).await?;
        }
        Ok(store::login_guesses::clear_network(tx, self.account_hash, self.network).await?)
    }

    /// Notes the network of a good login, and tells the owner of one that is new beside others. What has been
    /// noted within a day isn't noted again. Returns `true` if there is a mail in the outbox now.
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
        let since = now.plus_ms(-NETWORK_KNOWN_MS);
        let is_new = user.email_verified_at.is_some()
            && !self.is_known(now)
            && store::login_networks::has_others(tx, user.id, self.network, since).await?;
        if is_new {
            let about = About { address: trail.address.map(|it| it.to_string()), ..About::default() };
            let draft = Draft { template: Template::NewLogin, about };
            accounts.outbox.post(tx, &Sender::person(trail, user.id), &draft, &user.email, now).await?;
        }
        store::login_networks::note(tx, user.id, self.network, now).await?;
        Ok(is_new)
    }
}

/// Ends every wait of an account whose owner has proved to read its mail. The network that this comes from is
/// known from then on: otherwise an attacker who goes on guessing would keep the owner out again.
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

/// 429 with the true wait.
pub fn too_many(wait: Wait) -> Error {
    let limit =
        RateLimit { limit: wait.limit, retry_after_ms: wait.retry_after_ms, reset_ms: wait.retry_after_ms };
    Error { rate_limit: Some(limit), ..Error::new(Code::TooManyAttempts) }
}
