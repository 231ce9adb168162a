//! User accounts: passwords, sessions and tokens. [`Accounts`] is the handle; operations are functions that
//! take it.
//!
//! * `account/`: [`registration`] creates an account, [`verification`] confirms its e-mail address,
//!   [`profiles`] reads and changes it, [`email_changes`] sets a new address, [`passwords`] resets the
//!   password with an e-mailed link, [`password_changes`] replaces it if the user knows the current one;
//!   [`connections`] lists and removes the connections to providers.
//! * `factors/`: [`passkeys`] adds and removes passkeys; [`second_factor`] adds, removes and checks one-time
//!   codes and recovery codes; [`seeds`] reseals them.
//! * [`sign_in`] opens a session with a password, a passkey or a provider, and asks users to confirm their
//!   identity again.
//! * [`tokens`] signs and checks the tokens of a session; [`sessions`] lists and ends sessions.
//! * [`signing_keys`] rotates, revokes and reseals the keys that sign tokens; [`cleanup`] removes old rows;
//!   [`address_folding`] is an upgrade step.
//! * [`hasher`] hashes passwords behind a queue, [`jwt`] signs and parses tokens.
//! * [`rules`] contains pure functions, such as the rules of passwords and throttling; [`store`] contains the
//!   SQL; [`memory`] contains the caches of this replica: live sessions and signing keys.
//!
//! Other subjects take part in the transactions of accounts through [`hooks`].

mod account;
pub mod address_folding;
pub mod cleanup;
mod factors;
pub mod hasher;
pub mod hooks;
pub mod jwt;
pub mod memory;
pub mod rules;
mod sealed_values;
pub mod sessions;
pub mod settings;
pub mod sign_in;
pub mod signing_keys;
pub mod store;
pub mod tokens;

use std::ops::Deref;
use std::sync::Arc;

use crate::factors::passkeys::relying_party::RelyingParty;
use crate::hasher::Hasher;
use crate::memory::sessions::Sessions;
use crate::memory::signing_keys::SigningKeys;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Clock;
use kernel::ids::{SessionId, UserId};
use kernel::limiter::Limiter;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;
use mail::posting::Outbox;
use metrics::Metrics;
use sign_on::Providers;

use hooks::Hooks;

pub use account::{
    connections, email_changes, password_changes, passwords, profiles, registration, verification,
};
pub use factors::{passkeys, second_factor, seeds};
pub use settings::Settings;

/// The handle of accounts; cheap to clone.
#[derive(Clone)]
pub struct Accounts(Arc<Parts>);

/// The parts of [`Accounts`].
pub struct Parts {
    pub(crate) db: Db,
    pub clock: Clock,
    pub random: Random,
    pub feed: Arc<Feed>,
    pub limiter: Arc<Limiter>,
    pub sealer: Arc<Sealer>,
    pub outbox: Arc<Outbox>,
    pub metrics: Arc<Metrics>,
    pub settings: Settings,
    /// The relying party of passkeys: the host of the public URL. `None` if browsers don't support passkeys
    /// for this URL.
    pub(crate) relying_party: Option<RelyingParty>,
    pub hooks: Hooks,
    /// Hashes passwords off the async threads.
    pub hasher: Hasher,
    /// The cache of live sessions.
    pub sessions: Sessions,
    /// The keys that sign tokens.
    pub signing_keys: SigningKeys,
    /// The identity providers.
    pub providers: Arc<Providers>,
}

/// The parts that accounts share with other subjects.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// The change feed, which ends cached sessions.
    pub feed: Arc<Feed>,
    /// The request limiter of this replica.
    pub limiter: Arc<Limiter>,
    /// Seals secrets, such as signing keys.
    pub sealer: Arc<Sealer>,
    /// The outbox of e-mails.
    pub outbox: Arc<Outbox>,
    /// Counts logins.
    pub metrics: Arc<Metrics>,
    /// The identity providers.
    pub providers: Arc<Providers>,
}

/// A session and the user who opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    pub user_id: UserId,
}

impl Deref for Accounts {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Accounts {
    /// Creates a handle with empty caches.
    pub fn new(shared: Shared, hasher: Hasher, settings: Settings, hooks: Hooks) -> Self {
        let Shared { db, clock, random, feed, limiter, sealer, outbox, metrics, providers } = shared;
        let relying_party = RelyingParty::of(&settings.public_url);
        let (sessions, signing_keys) = (Sessions::new(), SigningKeys::new());
        Self(Arc::new(Parts {
            db,
            clock,
            random,
            feed,
            limiter,
            sealer,
            outbox,
            metrics,
            settings,
            relying_party,
            hooks,
            hasher,
            sessions,
            signing_keys,
            providers,
        }))
    }
}
