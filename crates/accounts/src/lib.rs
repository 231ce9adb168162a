//! Accounts: people, their passwords, their sessions and the tokens of these. [`Accounts`] is the handle.
//!
//! * An account begins with a [`registration`] and is shown by its [`profiles`]; [`verification`] confirms
//!   its address.
//! * A [`login`] opens a session; [`tokens`] are signed and checked for it; [`sessions`] are ended.
//! * [`passwords`] are set by a mailed link, [`password_changes`] are made with the old password.
//! * [`guesses`] are counted before a password is checked, and [`refusals`] leave their traces.
//! * [`signing_keys`] are rotated and sealed anew by operators; [`cleanup`] removes what would only grow.
//!
//! Live sessions (`live::sessions`) and signing keys (`live::signing_keys`) are held in memory. Other
//! subjects take part in the transactions of this one by [`hooks`].

pub mod address_folding;
pub mod cleanup;
pub mod guesses;
pub mod hasher;
pub mod hooks;
pub mod jwt;
pub mod login;
pub mod memory;
pub mod password_changes;
pub mod passwords;
pub mod profiles;
pub mod refusals;
pub mod registration;
pub mod rules;
pub mod sessions;
pub mod signing_keys;
pub mod store;
pub mod tokens;
pub mod verification;

use std::ops::Deref;
use std::sync::Arc;

use crate::hasher::Hasher;
use crate::memory::sessions::Sessions;
use crate::memory::signing_keys::SigningKeys;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Clock;
use kernel::ids::{SessionId, UserId};
use kernel::limiter::Limiter;
use kernel::limits::Limits;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;
use mail::posting::Outbox;
use metrics::Metrics;

use hooks::Hooks;

/// The handle of accounts; cheap to clone.
#[derive(Clone)]
pub struct Accounts(Arc<Parts>);

/// The parts of [`Accounts`].
pub struct Parts {
    pub db: Db,
    pub clock: Clock,
    pub random: Random,
    pub feed: Arc<Feed>,
    pub limiter: Arc<Limiter>,
    pub sealer: Arc<Sealer>,
    pub outbox: Arc<Outbox>,
    pub metrics: Arc<Metrics>,
    pub settings: Settings,
    pub hooks: Hooks,
    /// Hashes passwords off the async threads.
    pub hasher: Hasher,
    /// Sessions in memory.
    pub sessions: Sessions,
    /// The keys that sign tokens.
    pub signing_keys: SigningKeys,
}

/// The parts that [`Accounts`] shares with others.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of chance.
    pub random: Random,
    /// The feed of changes, which says how long a session in memory holds.
    pub feed: Arc<Feed>,
    /// The meters of this replica.
    pub limiter: Arc<Limiter>,
    /// Seals signing keys.
    pub sealer: Arc<Sealer>,
    /// The way of mails.
    pub outbox: Arc<Outbox>,
    /// Counts logins.
    pub metrics: Arc<Metrics>,
}

/// The settings that concern accounts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `iss` and `aud` of tokens, without a slash at the end.
    pub public_url: String,
    /// `true` if a login asks for a verified address.
    pub require_verified_email: bool,
    /// The table `limits`.
    pub limits: Limits,
}

/// A session and the person who opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The session.
    pub id: SessionId,
    /// The person.
    pub user_id: UserId,
}

impl Deref for Accounts {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Accounts {
    /// A handle with nothing in memory yet.
    pub fn new(shared: Shared, hasher: Hasher, settings: Settings, hooks: Hooks) -> Self {
        let Shared { db, clock, random, feed, limiter, sealer, outbox, metrics } = shared;
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
            hooks,
            hasher,
            sessions,
            signing_keys,
        }))
    }
}
