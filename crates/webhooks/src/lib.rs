//! Webhooks: addresses of organizations, and of the installation, that get events, by Standard Webhooks 1.0.0
//! (docs/contract/webhooks.md).
//!
//! * [`access`] creates the scopes of organizations' webhooks: the right to read or change one. [`owners`] says for both
//!   kinds of owners under which lock their webhooks change.
//! * [`new_ids`] gives a form the id of what it will make.
//! * [`endpoints`] holds the operations on webhooks, [`deliveries`] those on what they were sent.
//! * [`sending`] takes due deliveries, which the crate `events` queues in the transaction that causes an event, has
//!   [`client`] send each, and retries failed ones.
//! * [`retention`] removes old deliveries; [`seals`] reseals secrets under a new master key.
//!
//! [`fields`] reads URLs and types of events from input, [`rules`] holds the pure rules and [`store`] the SQL.

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
    /// `true` if webhooks may have plain `http`, any port, and addresses that aren't of the public Internet.
    pub allow_private: bool,
}

/// The handle of webhooks; cheap to clone.
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

/// The parts that webhooks share with other subjects.
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// Compares that source with other clocks.
    pub clock_guard: Arc<ClockGuard>,
    /// The source of randomness.
    pub random: Random,
    /// Seals secrets.
    pub sealer: Arc<Sealer>,
    /// Organizations, which have webhooks.
    pub tenants: Tenants,
    /// The counters of the process.
    pub metrics: Arc<Metrics>,
}

impl Webhooks {
    /// A handle that sends by this client.
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

    /// Begins the shutdown: attempts in progress end, and no more begin.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns `true` after [`Webhooks::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the job that sends. Callers do so after the commit of what is due.
    pub(crate) fn notify_one(&self) {
        self.wake.notify_one();
    }

    /// Waits until there is something to send that this replica has queued by hand.
    pub async fn notified(&self) {
        self.wake.notified().await;
    }
}
