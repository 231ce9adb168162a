//! API keys. [`Keys`] is the handle; operations are functions that take it.
//!
//! * [`access`] creates the scopes of keys: the right to read, change, rotate or delete a key.
//! * [`api_keys`] holds the operations: create, list, change, rotate, end a rotation and delete.
//! * [`expiring`] notifies webhooks of keys that expire soon.
//! * [`makers`] lists the keys that a member has created.
//! * [`new_ids`] returns the id of the key that a form will create.
//! * [`uses`] handles a call with a key: it looks up the key, counts the request against its rate, and stores
//!   the use. For a cached key, this needs no query and no allocation.
//! * [`model_callers`] finds the caller of a model: a key or a user.
//! * [`reclaiming`] deletes the keys that were created with an account before its owner took it over;
//!   [`seals`] reseals stored secrets with a new master key.
//! * [`keyring`] caches keys, [`last_uses`] defers the writes of their last uses, and [`rates`] has the
//!   request rates that replicas share.
//!
//! [`secret`] is the format of a secret, [`fields`] reads permissions from input, [`rules`] holds the pure
//! rules and [`store`] the SQL.

pub mod access;
pub mod api_keys;
pub mod endings;
pub mod expiring;
pub mod fields;
pub mod keyring;
pub mod last_uses;
pub mod makers;
pub mod model_callers;
pub mod new_ids;
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
    /// The accounts, for checking the access tokens of users who call models.
    pub accounts: Accounts,
    pub(crate) db: Db,
    pub clock: Clock,
    pub random: Random,
    /// The sealer of secrets, so that a rotation can return the previous secret.
    pub sealer: Arc<Sealer>,
    /// The table `api_keys` of the configuration.
    pub settings: Settings,
    pub limits: Limits,
    /// The cache of keys.
    pub keyring: Keyring,
    /// Uses of keys that are not written yet.
    pub last_uses: LastUses,
    /// The request rates of keys and models, shared by all replicas.
    pub rates: Arc<Rates>,
}

impl Deref for Keys {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The parts that keys share with other subjects.
pub struct Shared {
    /// The accounts, for checking the access tokens of users who call models.
    pub accounts: Accounts,
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness.
    pub random: Random,
    /// The change feed, which invalidates cached keys.
    pub feed: Arc<Feed>,
    /// The request limiter of this replica.
    pub limiter: Arc<Limiter>,
    /// The sealer of secrets.
    pub sealer: Arc<Sealer>,
}

impl Keys {
    /// Returns a handle with empty caches.
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
