//! Requests by route and status, and their durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use tokio::sync::Semaphore;

use super::histogram::Durations;
use super::text::{Kind, Text};

/// The statuses with a counter of their own; all others are `other`.
const STATUSES: [u16; 15] = [200, 400, 401, 403, 404, 405, 408, 409, 413, 429, 431, 499, 500, 503, 0];
const OTHER: usize = STATUSES.len() - 1;

/// The counters of one route of one listener.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    durations: Durations,
    statuses: [AtomicU64; STATUSES.len()],
}

impl RouteMetrics {
    /// Counts an answer.
    pub fn note(&self, status: StatusCode, took_ns: u64) {
        let status = status.as_u16();
        // 200 is the most frequent status, so it comes first.
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(OTHER);
        if let Some(counter) = self.statuses.get(place) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.durations.note_ns(took_ns);
    }

    /// Returns the statuses that were counted at least once, as text.
    fn counted(&self) -> impl Iterator<Item = (String, u64)> {
        let all = STATUSES.iter().zip(&self.statuses);
        let counts = all.map(|(status, counter)| (*status, counter.load(Ordering::Relaxed)));
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(status, count)| (if status == 0 { "other".to_owned() } else { status.to_string() }, count))
    }
}

/// The routes of a listener, with method and path as in the table. The last one, `-` and `-`, is for requests
/// without a route.
pub type Routes = Arc<[(String, &'static str, Arc<RouteMetrics>)]>;

/// The requests and connections of one listener.
#[derive(Debug, Default)]
pub struct Traffic {
    routes: OnceLock<Routes>,
    /// The permits of connections, and their number.
    permits: OnceLock<(Arc<Semaphore>, u32)>,
    /// How often a new connection had to wait for another to end.
    pub full: AtomicU64,
}

impl Traffic {
    /// Returns the counters by route. Only the first call's rows are used; all calls get the same counters.
    pub fn routes(&self, rows: impl FnOnce() -> Vec<(String, &'static str)>) -> Routes {
        let with_metrics = |(method, path)| (method, path, Arc::default());
        let no_route = || ("-".to_owned(), "-");
        let routes =
            self.routes.get_or_init(|| rows().into_iter().chain([no_route()]).map(with_metrics).collect());
        Arc::clone(routes)
    }

    /// Sets the semaphore that counts the connections of the listener.
    pub fn set_connections(&self, permits: &Arc<Semaphore>, max: u32) {
        // There is one socket a listener; a later one isn't measured.
        drop(self.permits.set((Arc::clone(permits), max)));
    }

    /// Returns the number of connections, and the most there may be; `None` without a socket.
    pub fn connections(&self) -> Option<(usize, usize)> {
        let (permits, max) = self.permits.get()?;
        let max = usize::try_from(*max).unwrap_or(usize::MAX);
        Some((max.saturating_sub(permits.available_permits()), max))
    }
}

pub(super) fn render(listeners: &[(&str, &Traffic)], text: &mut Text) {
    const COUNT: &str = "tollkeeper_http_requests_total";
    const DURATION: &str = "tollkeeper_http_request_duration_seconds";
    let rows: Vec<_> = listeners
        .iter()
        .filter_map(|(listener, traffic)| Some((*listener, traffic.routes.get()?)))
        .flat_map(|(listener, routes)| routes.iter().map(move |route| (listener, route)))
        .collect();
    text.family(COUNT, Kind::Counter, "Requests that were answered; 499 is one whose client went away.");
    for (listener, (method, route, metrics)) in &rows {
        for (status, count) in metrics.counted() {
            let labels =
                [("listener", *listener), ("method", method), ("route", route), ("status", status.as_str())];
            text.sample(COUNT, &labels, count);
        }
    }
    text.family(DURATION, Kind::Histogram, "From the head of a request to its finished answer.");
    for (listener, (method, route, metrics)) in &rows {
        if !metrics.durations.is_empty() {
            let labels = [("listener", *listener), ("method", method.as_str()), ("route", route)];
            metrics.durations.render(DURATION, &labels, text);
        }
    }
}
