//! Readiness and metrics of this process.

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

/// The monitor of the process; cheap to clone.
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
    /// When the process started.
    pub started_at: Time,
}

impl Monitor {
    /// Returns a monitor with these parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the readiness checks with their results.
    pub async fn checks(&self) -> Vec<Check> {
        readiness::checks(self).await
    }

    /// Returns the newest schema version that this program supports.
    pub fn newest_schema(&self) -> i64 {
        db::newest_schema()
    }

    /// Returns the metrics in the Prometheus text format.
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
