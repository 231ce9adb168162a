//! API keys: [`Keys`] is the handle of everything that concerns them.
//!
//! * [`access`] makes the scopes of keys: the right to change, rotate or delete one.
//! * [`api_keys`] holds what is done to a key: it is made, listed, changed, rotated and deleted.
//! * [`uses`] is the way of a call with a key: the key is found, its rate is counted, its use is noted. A known key costs no
//!   query and no allocation.
//! * [`reclaiming`] ends the keys that were made with an account before its owner came.
//! * [`model_callers`] finds the caller of a model: a key, or a person with an access token.
//! * [`seals`] renews the seals of stored secrets under another master key.
//! * What is held in memory: the keys (`live::keyring`), their last uses (`live::last_uses`) and the request rates that
//!   replicas share (`live::rates`).
//!
//! The rules are in `rules::api_keys`, `rules::restrictions`, `rules::rotation` and `rules::rates`, the rows in
//! `store::api_keys`, the format of a secret in `secrets::api_key`.

pub mod access;
pub mod api_keys;
pub mod fields;
pub mod keyring;
pub mod last_uses;
pub mod model_callers;
pub mod rates;
pub mod reclaiming;
pub mod rules;
pub mod seals;
pub mod secret;
pub mod settings;
pub mod store;
pub mod uses;

pub use store::api_keys::LiveKey;

use std::ops::Deref;
use std::sync::Arc;

use crate::keyring::Keyring;
use crate::last_uses::LastUses;
use crate::rates::Rates;
use accounts::Accounts;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::Clock;
use kernel::limiter::Limiter;
use kernel::limits::Limits;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;

use settings::Settings;

/// The handle of API keys; cheap to clone.
#[derive(Clone)]
pub struct Keys(Arc<Parts>);

/// The parts of [`Keys`].
pub struct Parts {
    /// Checks access tokens, with which people call models.
    pub accounts: Accounts,
    pub db: Db,
    pub clock: Clock,
    pub random: Random,
    /// Seals secrets, so that a rotation can return the one before.
    pub sealer: Arc<Sealer>,
    /// The table `api_keys` of the configuration.
    pub settings: Settings,
    pub limits: Limits,
    /// The keys in memory.
    pub keyring: Keyring,
    /// Uses of keys that aren't written yet.
    pub last_uses: LastUses,
    /// Request rates that all replicas share: those of keys, and those of models.
    pub rates: Arc<Rates>,
}

impl Deref for Keys {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The parts that [`Keys`] shares with others.
pub struct Shared {
    /// Accounts, whose access tokens call models too.
    pub accounts: Accounts,
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of chance.
    pub random: Random,
    /// The feed of changes, which says how long a key in memory holds.
    pub feed: Arc<Feed>,
    /// The meters of this replica.
    pub limiter: Arc<Limiter>,
    /// Seals secrets.
    pub sealer: Arc<Sealer>,
}

impl Keys {
    /// A handle with nothing in memory yet.
    pub fn new(shared: Shared, settings: Settings, limits: Limits) -> Self {
        let Shared { accounts, db, clock, random, feed, limiter, sealer } = shared;
        Self(Arc::new(Parts {
            keyring: Keyring::new(db.clone(), feed, settings.prefix.clone()),
            last_uses: LastUses::new(db.clone()),
            rates: Arc::new(Rates::new(db.clone(), clock.clone(), limiter)),
            accounts,
            db,
            clock,
            random,
            sealer,
            settings,
            limits,
        }))
    }
}
