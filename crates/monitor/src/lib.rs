//! The state of this process for load balancers and for Prometheus.

mod prometheus;
mod readiness;

use std::ops::Deref;
use std::sync::Arc;

use accounts::Accounts;
use billing::Billing;
use catalog::CurrentCatalog;
use cluster::clock_guard::ClockGuard;
use cluster::feed::Feed;
use db::Db;
use kernel::clock::{Clock, Time};
use kernel::limiter::Limiter;
use keys::Keys;
use metrics::Metrics;
use web::Frame;

pub use readiness::Check;

/// A handle on everything that is watched; cheap to clone.
#[derive(Clone)]
pub struct Monitor(Arc<Parts>);

/// The parts of [`Monitor`].
pub struct Parts {
    pub db: Db,
    pub clock: Clock,
    pub clock_guard: Arc<ClockGuard>,
    pub feed: Arc<Feed>,
    pub frame: Arc<Frame>,
    pub metrics: Arc<Metrics>,
    pub limiter: Arc<Limiter>,
    pub catalog: Arc<CurrentCatalog>,
    pub accounts: Accounts,
    pub keys: Keys,
    pub billing: Billing,
    /// The start of the process.
    pub started_at: Time,
}

impl Monitor {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Checks whether requests can be sent here.
    pub async fn checks(&self) -> Vec<Check> {
        readiness::checks(self).await
    }

    /// Returns the metrics as text for Prometheus.
    pub async fn metrics(&self) -> String {
        prometheus::render(self).await
    }
}

impl Deref for Monitor {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
