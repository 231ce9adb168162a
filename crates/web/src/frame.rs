//! The state that both listeners share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};

use kernel::clock::Clock;
use kernel::error::{Code, Error};
use kernel::ids::RequestId;
use kernel::proxies;
use kernel::random::Random;
use metrics::Metrics;
use telemetry::Tracer;

use crate::body_budget::BodyBudget;
use crate::settings::Settings;

/// The parts of the program that every request uses.
pub struct Frame {
    /// The source of time.
    pub clock: Clock,
    /// The counters of requests, errors and connections.
    pub metrics: Arc<Metrics>,
    /// The tracer of requests, if a collector is configured.
    pub tracer: Option<Arc<Tracer>>,
    /// The memory limit of unfinished request bodies.
    pub body_budget: BodyBudget,
    pub settings: Settings,
    /// The part of request ids that is specific to this process: random bits, which are combined with a
    /// counter. Request ids must be unique, but they aren't secret.
    process: u128,
    requests: AtomicU64,
    ready: AtomicBool,
    stopping: AtomicBool,
}

impl Frame {
    /// Returns a frame that isn't ready yet.
    pub fn new(
        settings: Settings,
        clock: Clock,
        random: &Random,
        metrics: Arc<Metrics>,
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        Self {
            clock,
            metrics,
            tracer,
            body_budget: BodyBudget::new(
                settings.server.body_budget_bytes,
                settings.server.body_bytes_per_second,
            ),
            settings,
            process: u128::from_be_bytes(random.bytes()),
            requests: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// Marks the startup as finished. From now on, requests that need the database are admitted.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Returns `true` once the startup has finished.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Checks that the startup has finished.
    ///
    /// # Errors
    /// 503 `database_unavailable`.
    pub fn require_ready(&self) -> Result<(), Error> {
        if self.is_ready() {
            return Ok(());
        }
        Err(Error::new(Code::DatabaseUnavailable)
            .message("The server is starting and waits for its database."))
    }

    /// Marks the process as stopping: requests in progress are finished, and the readiness check fails.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns `true` while the process is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns an id that is unique across replicas.
    pub fn next_request_id(&self) -> RequestId {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        // Multiplying by an odd number is a bijection, and spreads consecutive counts.
        let spread = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RequestId::from_parts(self.clock.now(), self.process ^ u128::from(spread))
    }

    /// Returns the client's address: the peer's address, or the address reported by trusted proxies. `None`
    /// if they report none.
    pub fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
        let trusted = &self.settings.trusted_proxies;
        if trusted.is_empty() {
            return Some(peer);
        }
        let hops = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        proxies::client_address(peer, hops, trusted)
    }
}
