//! The handle of the gateway.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::balances::SeenBalances;
use crate::counters::Counters;
use crate::media::MediaLoader;
use crate::memory::{LARGE_BYTES, MAX_MEMORY_BYTES};
use crate::transport::Transports;
use billing::Billing;
use catalog::CurrentCatalog;
use kernel::clock::Clock;
use kernel::error::{Code, Error};
use kernel::random::Random;
use kernel::secrets::sealing::DerivedKey;
use kernel::shares::{Holder, Permit, SharedBound};
use kernel::turns::Turns;
use keys::Keys;
use metrics::Metrics;

/// The timeout for settling cut calls when the server stops.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub media: MediaLoader,
    /// The key for deriving the salts that separate the caches of upstreams by organization.
    pub cache_salts: DerivedKey,
}

/// The table `gateway` of the configuration.
#[derive(Clone, Copy, Default, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `true` if calls may refer to images and other media at any port and at addresses outside the public
    /// Internet.
    pub allow_private_media: bool,
    /// `true` if pages of every origin may make model calls and list models from a browser. Everyone who
    /// opens such a page can see the API key that it uses.
    pub allow_browsers: bool,
}

pub(crate) struct Shared {
    parts: Parts,
    counters: Arc<Counters>,
    pub(crate) transports: Transports,
    /// The number of calls that aren't settled yet.
    open_calls: watch::Sender<usize>,
    /// `true` once the remaining open calls must end.
    is_cut: watch::Sender<bool>,
    memory: Arc<SharedBound>,
    /// The queue for CPU-intensive work on large bodies.
    bodies: Arc<Turns>,
    balances: SeenBalances,
}

/// A call that isn't settled yet. It counts as open until this value is dropped.
pub(crate) struct OpenCall(Gateway);

impl Gateway {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Shared {
            counters: Arc::new(Counters::new(&parts.metrics.registered)),
            parts,
            transports: Transports::default(),
            open_calls: watch::Sender::new(0),
            is_cut: watch::Sender::new(false),
            memory: SharedBound::new(MAX_MEMORY_BYTES),
            bodies: Turns::per_processor(),
            balances: SeenBalances::default(),
        }))
    }

    /// Returns the number of calls that aren't settled yet.
    pub fn open_calls(&self) -> usize {
        *self.0.open_calls.borrow()
    }

    /// Waits for open calls until the deadline, then cuts the remaining calls and waits for their settlement.
    /// Returns the number of cut calls.
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
        // The sender lives as long as this value, so waiting can't fail.
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

    /// Takes memory for a request or an answer, until the permit is dropped.
    ///
    /// # Errors
    /// 503 `server_busy` if other calls leave too little memory, or if this holder would leave too little for
    /// others.
    pub(crate) fn take_memory(&self, holder: Holder, bytes: usize) -> Result<Permit, Error> {
        self.0.memory.try_take(holder, bytes).ok_or_else(|| {
            self.0.counters.note_memory_refused();
            Code::ServerBusy.into()
        })
    }

    /// Returns a permit of a holder that has taken no memory yet.
    pub(crate) fn memory_of(&self, holder: Holder) -> Permit {
        self.0.memory.none(holder)
    }

    /// Returns the queue for large bodies; `None` for a body that isn't large.
    pub(crate) fn turns_for(&self, body: &Bytes) -> Option<&Arc<Turns>> {
        (body.len() >= LARGE_BYTES).then_some(&self.0.bodies)
    }

    /// Returns the queue for large bodies.
    pub(crate) fn bodies(&self) -> &Arc<Turns> {
        &self.0.bodies
    }

    /// Reports the amount of memory in use.
    pub(crate) fn report_memory(&self) {
        self.0.counters.set_memory(self.0.memory.load().0);
    }

    /// Returns the memory for requests and answers.
    pub(crate) fn memory(&self) -> &Arc<SharedBound> {
        &self.0.memory
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
