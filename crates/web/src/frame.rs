//! What both listeners share.

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

/// The parts of the program that every request meets, whatever it asks for.
pub struct Frame {
    /// The source of time.
    pub clock: Clock,
    /// The counters of requests, errors and connections.
    pub metrics: Arc<Metrics>,
    /// Traces requests, if a collector is configured.
    pub tracer: Option<Arc<Tracer>>,
    /// The bytes of unfinished request bodies.
    pub body_budget: BodyBudget,
    /// What the operator has set.
    pub settings: Settings,
    /// Request ids need no secrecy, only difference: random bits drawn once a process, and a counter.
    process: u128,
    requests: AtomicU64,
    ready: AtomicBool,
    stopping: AtomicBool,
}

impl Frame {
    /// A frame that isn't ready yet.
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
            body_budget: BodyBudget::new(settings.server.body_budget_bytes),
            settings,
            process: u128::from_be_bytes(random.bytes()),
            requests: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// Lets requests through that need the database.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Returns `true` once the start is through.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Refuses while the start isn't through.
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

    /// Notes that the process is about to end: requests under way are finished, others should go elsewhere.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns `true` while the process is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns an id that no other request of any replica has.
    pub fn next_request_id(&self) -> RequestId {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        // An odd factor maps counts to numbers one to one, and spreads them.
        let spread = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RequestId::from_parts(self.clock.now(), self.process ^ u128::from(spread))
    }

    /// Returns the address that a request comes from: the peer, or what trusted proxies say. `None` when they don't say
    /// it.
    pub fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
        let trusted = &self.settings.trusted_proxies;
        if trusted.is_empty() {
            return Some(peer);
        }
        let hops = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        proxies::client_address(peer, hops, trusted)
    }
}
