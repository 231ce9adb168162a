//! Requests by route and status, and their durations.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};
use tokio::sync::Semaphore;

use super::text::{Registered, seconds_of_ns};

/// The statuses with a separate counter. All others are counted as `other`.
const STATUSES: [u16; 15] = [200, 400, 401, 403, 404, 405, 408, 409, 413, 429, 431, 499, 500, 503, 0];
const OTHER: usize = STATUSES.len() - 1;

/// The metrics of requests, with all their labels.
#[derive(Clone, Debug)]
struct Families {
    requests: IntCounterVec,
    durations: HistogramVec,
}

/// The metrics of one route of one listener. Each series is created at its first use.
#[derive(Debug)]
pub struct RouteMetrics {
    families: Families,
    /// Listener, method and path.
    labels: [String; 3],
    durations: OnceLock<Histogram>,
    statuses: [OnceLock<IntCounter>; STATUSES.len()],
}

impl RouteMetrics {
    /// Counts a response.
    pub fn note(&self, status: StatusCode, took_ns: u64) {
        let status = status.as_u16();
        // 200 is the most common status, so it comes first.
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(OTHER);
        let [listener, method, path] = &self.labels;
        if let Some(counter) = self.statuses.get(place) {
            let first_use = || {
                let status = if place == OTHER { "other".to_owned() } else { status.to_string() };
                self.families.requests.with_label_values(&[listener, method, path, &status])
            };
            counter.get_or_init(first_use).inc();
        }
        let first_use = || self.families.durations.with_label_values(&[listener, method, path]);
        self.durations.get_or_init(first_use).observe(seconds_of_ns(took_ns));
    }
}

/// The requests and connections of one listener.
#[derive(Debug)]
pub struct Traffic {
    listener: &'static str,
    families: Families,
    /// The semaphore that limits the number of connections, and its size.
    permits: OnceLock<(Arc<Semaphore>, u32)>,
    /// Number of times that a new connection had to wait until another one ended.
    pub full: AtomicU64,
}

impl Traffic {
    /// Creates the traffic of the public listener and of the service listener.
    pub(super) fn of_listeners(registered: &Registered) -> [Self; 2] {
        let families = Families {
            requests: registered.counters(
                "tollkeeper_http_requests_total",
                "Requests that were answered; 499 for those whose client disconnected.",
                &["listener", "method", "route", "status"],
            ),
            durations: registered.durations(
                "tollkeeper_http_request_duration_seconds",
                "From the head of a request to its finished answer.",
                &["listener", "method", "route"],
            ),
        };
        ["public", "service"].map(|listener| Self {
            listener,
            families: families.clone(),
            permits: OnceLock::new(),
            full: AtomicU64::new(0),
        })
    }

    /// Returns the metrics of a route, with method and path as in the table. Requests without a route have
    /// the method `-` and the path `-`.
    pub fn route(&self, method: &str, path: &str) -> Arc<RouteMetrics> {
        Arc::new(RouteMetrics {
            families: self.families.clone(),
            labels: [self.listener, method, path].map(str::to_owned),
            durations: OnceLock::new(),
            statuses: [const { OnceLock::new() }; STATUSES.len()],
        })
    }

    /// Sets the semaphore that limits the number of connections of the listener.
    pub fn set_connections(&self, permits: &Arc<Semaphore>, max: u32) {
        // Each listener has one socket. Further sockets aren't measured.
        drop(self.permits.set((Arc::clone(permits), max)));
    }

    /// Returns the number of connections and the maximum; `None` without a socket.
    pub fn connections(&self) -> Option<(usize, usize)> {
        let (permits, max) = self.permits.get()?;
        let max = usize::try_from(*max).unwrap_or(usize::MAX);
        Some((max.saturating_sub(permits.available_permits()), max))
    }
}
