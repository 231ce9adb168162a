//! The handle of the gateway.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::balances::SeenBalances;
use crate::counters::Counters;
use crate::transport::Transports;
use billing::Billing;
use catalog::CurrentCatalog;
use kernel::clock::Clock;
use kernel::error::{Code, Error};
use kernel::random::Random;
use keys::Keys;
use metrics::Metrics;

/// How long cut calls may take to be settled when the server stops.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most streams without a client that are read for their usage.
const MAX_DRAINS: usize = 100;

/// The most memory for the bodies of calls whose answers haven't begun.
const MAX_BODIES_KIB: usize = 256 * 1024;

/// The handle of the gateway. Cloning it is cheap.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

/// The parts of [`Gateway`].
pub struct Parts {
    pub clock: Clock,
    pub random: Random,
    pub catalog: Arc<CurrentCatalog>,
    pub keys: Keys,
    pub billing: Billing,
    pub metrics: Arc<Metrics>,
}

pub(crate) struct Shared {
    parts: Parts,
    counters: Arc<Counters>,
    pub(crate) transports: Transports,
    /// The number of calls that aren't settled yet.
    open_calls: watch::Sender<usize>,
    /// `true` once open calls must end.
    is_cut: watch::Sender<bool>,
    drains: Arc<Semaphore>,
    bodies: BodyMemory,
    balances: SeenBalances,
}

/// The memory for the bodies of calls whose answers haven't begun, in KiB.
#[derive(Debug)]
struct BodyMemory(Arc<Semaphore>);

impl BodyMemory {
    fn new(kib: usize) -> Self {
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Takes the memory of a body, until the permit is dropped.
    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(kib).map_err(|_| Code::ServerBusy.into())
    }
}

/// A call that isn't settled yet, until it is dropped.
pub(crate) struct OpenCall(Gateway);

impl Gateway {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Shared {
            counters: Arc::new(Counters::new(&parts.metrics.registered)),
            parts,
            transports: Transports::default(),
            open_calls: watch::Sender::new(0),
            is_cut: watch::Sender::new(false),
            drains: Arc::new(Semaphore::new(MAX_DRAINS)),
            bodies: BodyMemory::new(MAX_BODIES_KIB),
            balances: SeenBalances::default(),
        }))
    }

    /// Returns the number of calls that aren't settled yet.
    pub fn open_calls(&self) -> usize {
        *self.0.open_calls.borrow()
    }

    /// Waits for open calls until the deadline, then cuts those that are left, and settles them. Returns how
    /// many were cut.
    pub async fn stop(&self, deadline: Instant) -> usize {
        if timeout_at(deadline, self.all_settled()).await.is_ok() {
            return 0;
        }
        let cut = self.open_calls();
        self.0.is_cut.send_replace(true);
        timeout(SETTLE_TIMEOUT, self.all_settled()).await.unwrap_or_default();
        cut
    }

    async fn all_settled(&self) {
        // The sender lives as long as this, so there is no error.
        self.0.open_calls.subscribe().wait_for(|open| *open == 0).await.map(drop).unwrap_or_default();
    }

    pub(crate) fn open_call(&self) -> OpenCall {
        self.0.open_calls.send_modify(|open| *open += 1);
        self.0.counters.begin_call();
        OpenCall(self.clone())
    }

    /// Waits until open calls must end.
    pub(crate) async fn cut(&self) {
        self.0.is_cut.subscribe().wait_for(|is_cut| *is_cut).await.map(drop).unwrap_or_default();
    }

    /// Takes the memory of a call's body, until the permit is dropped.
    ///
    /// # Errors
    /// 503 `server_busy` if the bodies of other calls use it up.
    pub(crate) fn take_body_memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        self.0.bodies.take(bytes)
    }

    /// Returns the permission to read a stream without a client, if few enough are read.
    pub(crate) fn begin_drain(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.drains).try_acquire_owned().ok()
    }

    pub(crate) fn balances(&self) -> &SeenBalances {
        &self.0.balances
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.0.counters
    }

    pub(crate) fn transports(&self) -> &Transports {
        &self.0.transports
    }
}

impl Deref for Gateway {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.0.counters.end_call();
        self.0.0.open_calls.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_memory() {
        let memory = BodyMemory::new(10);
        let small = memory.take(1).unwrap();
        let large = memory.take(9 * 1024).unwrap();
        assert_eq!(memory.take(1).unwrap_err().code, Code::ServerBusy);
        drop(small);
        drop(memory.take(1_024).unwrap());
        assert!(memory.take(1_025).is_err());
        drop(large);
        assert!(memory.take(10 * 1024).is_ok() && memory.take(10 * 1024 + 1).is_err());
    }
}
