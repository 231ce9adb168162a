//! Requests by route and status, and how long they took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use tokio::sync::Semaphore;

use super::histogram::Durations;
use super::text::{Kind, Text};

/// The statuses that are counted by themselves; what isn't here is `other`.
const STATUSES: [u16; 15] = [200, 400, 401, 403, 404, 405, 408, 409, 413, 429, 431, 499, 500, 503, 0];
const OTHER: usize = STATUSES.len() - 1;

/// What is known of one route of one listener.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    durations: Durations,
    statuses: [AtomicU64; STATUSES.len()],
}

impl RouteMetrics {
    /// Counts one answer.
    pub fn note(&self, status: StatusCode, took_ns: u64) {
        let status = status.as_u16();
        // Success, the frequent one, is found at the first comparison.
        let place = STATUSES.iter().position(|known| *known == status).unwrap_or(OTHER);
        if let Some(counter) = self.statuses.get(place) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.durations.note_ns(took_ns);
    }

    /// Statuses that were met, in words.
    fn met(&self) -> impl Iterator<Item = (String, u64)> {
        let all = STATUSES.iter().zip(&self.statuses);
        let counts = all.map(|(status, counter)| (*status, counter.load(Ordering::Relaxed)));
        counts
            .filter(|(_, count)| *count > 0)
            .map(|(status, count)| (if status == 0 { "other".to_owned() } else { status.to_string() }, count))
    }
}

/// The routes of a listener: method and path as the table has them. The last is `-` and `-`: what found no route.
pub type Routes = Arc<[(String, &'static str, Arc<RouteMetrics>)]>;

/// What comes through one listener.
#[derive(Debug, Default)]
pub struct Traffic {
    routes: OnceLock<Routes>,
    /// The places that connections take, and how many there are.
    places: OnceLock<(Arc<Semaphore>, u32)>,
    /// How often a new connection had to wait for one to end.
    pub full: AtomicU64,
}

impl Traffic {
    /// What is measured by route; only the first call's rows count, and all get the same.
    pub fn routes(&self, rows: impl FnOnce() -> Vec<(String, &'static str)>) -> Routes {
        let measured = |(method, path)| (method, path, Arc::default());
        let nowhere = || ("-".to_owned(), "-");
        let routes =
            self.routes.get_or_init(|| rows().into_iter().chain([nowhere()]).map(measured).collect());
        Arc::clone(routes)
    }

    /// Says where the connections of the listener are counted.
    pub fn counts(&self, places: &Arc<Semaphore>, most: u32) {
        // There is one socket a listener; whoever comes later isn't measured.
        drop(self.places.set((Arc::clone(places), most)));
    }

    /// Connections now, and the most there may be; none without a socket.
    pub fn connections(&self) -> Option<(usize, usize)> {
        let (places, most) = self.places.get()?;
        let most = usize::try_from(*most).unwrap_or(usize::MAX);
        Some((most.saturating_sub(places.available_permits()), most))
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
    for (listener, (method, route, measured)) in &rows {
        for (status, count) in measured.met() {
            let labels =
                [("listener", *listener), ("method", method), ("route", route), ("status", status.as_str())];
            text.sample(COUNT, &labels, count);
        }
    }
    text.family(DURATION, Kind::Histogram, "From the head of a request to its finished answer.");
    for (listener, (method, route, measured)) in &rows {
        if !measured.durations.is_empty() {
            let labels = [("listener", *listener), ("method", method.as_str()), ("route", route)];
            measured.durations.render(DURATION, &labels, text);
        }
    }
}
