//! Webhooks: endpoints of organizations and of the installation that receive events, according to Standard
//! Webhooks 1.0.0 (docs/contract/webhooks.md).
//!
//! - [`access`] creates the scopes of organizations' webhooks: permission to read or change one. [`owners`]
//!   defines the lock under which the webhooks of an organization or of the installation change, and
//!   [`targets`] identifies the webhook or delivery that an operation is about.
//! - [`new_ids`] assigns an id to a form in advance.
//! - [`endpoints`] contains the operations on webhooks, [`deliveries`] those on deliveries.
//! - [`sending`] claims due deliveries, which the crate `events` queues in the transaction that causes an
//!   event, sends each through [`client`], and retries failed ones.
//! - [`retention`] deletes old deliveries; [`seals`] reseals secrets with a new master key.
//!
//! [`fields`] parses URLs and event types, [`rules`] contains the pure rules, and [`store`] the SQL.

pub mod access;
pub mod client;
mod counters;
pub mod deliveries;
pub mod endpoints;
pub mod fields;
pub mod new_ids;
pub mod owners;
pub mod retention;
pub mod rules;
pub mod seals;
pub mod sending;
pub mod store;
pub mod targets;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use cluster::clock_guard::ClockGuard;
use db::Db;
use kernel::clock::Clock;
use kernel::random::Random;
use kernel::secrets::sealing::Sealer;
use metrics::Metrics;
use tenants::Tenants;

use client::Client;
use counters::Counters;

/// The table `webhooks` of the configuration.
#[derive(Clone, Copy, Default, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether webhooks may use plain `http`, any port, and addresses outside of the public internet.
    pub allow_private: bool,
}

/// Handle of webhooks; cheap to clone.
#[derive(Clone)]
pub struct Webhooks(Arc<Parts>);

/// The parts of [`Webhooks`].
pub struct Parts {
    pub(crate) db: Db,
    pub clock: Clock,
    pub(crate) clock_guard: Arc<ClockGuard>,
    pub(crate) random: Random,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) tenants: Tenants,
    pub settings: Settings,
    pub(crate) client: Client,
    pub(crate) counters: Counters,
    wake: Notify,
    stopping: AtomicBool,
}

impl Deref for Webhooks {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Parts that webhooks share with other subjects.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The clock.
    pub clock: Clock,
    /// Checks the clock against other clocks.
    pub clock_guard: Arc<ClockGuard>,
    /// The source of randomness.
    pub random: Random,
    /// Seals secrets.
    pub sealer: Arc<Sealer>,
    /// Organizations, which own webhooks.
    pub tenants: Tenants,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
}

impl Webhooks {
    /// Creates a handle that sends with this client.
    pub fn new(shared: Shared, settings: Settings, client: Client) -> Self {
        let Shared { db, clock, clock_guard, random, sealer, tenants, metrics } = shared;
        let counters = Counters::new(&metrics.registered);
        let (wake, stopping) = (Notify::new(), AtomicBool::new(false));
        Self(Arc::new(Parts {
            db,
            clock,
            clock_guard,
            random,
            sealer,
            tenants,
            settings,
            client,
            counters,
            wake,
            stopping,
        }))
    }

    /// Begins the shutdown: attempts in progress finish, and no new ones start.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns `true` after [`Webhooks::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the sending job. Called after the commit that makes deliveries due.
    pub(crate) fn notify_one(&self) {
        self.wake.notify_one();
    }

    /// Waits until a request to this replica makes deliveries due, such as a test or a redelivery.
    pub async fn notified(&self) {
        self.wake.notified().await;
    }
}
