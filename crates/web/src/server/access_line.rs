//! The access log: one line for each request.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode};

use kernel::ids::{OrganizationId, RequestId};
use kernel::stopwatch::Stopwatch;
use metrics::RouteMetrics;
use telemetry::{Ending, Trace};

/// The facts about a request that are known before its response. The path itself isn't logged, because links
/// contain tokens.
pub struct AccessLine<'a> {
    pub method: Method,
    /// The route's path, or `-` without a route.
    pub route: &'static str,
    pub request_id: RequestId,
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    pub stopwatch: Stopwatch,
    /// The counters of the route.
    pub measured: &'a RouteMetrics,
    /// `true` if a line is written to the log.
    pub is_logged: bool,
    /// The trace, if the request is sampled, and the organization in its path.
    pub trace: Option<(Arc<Trace>, Option<OrganizationId>)>,
    /// `public` or `service`.
    pub listener: &'static str,
}

impl AccessLine<'_> {
    fn ending<'a>(&'a self, who: &'a str, status: StatusCode, code: &'static str) -> Ending<'a> {
        let (method, route, listener) = (self.method.as_str(), self.route, self.listener);
        Ending { method, route, listener, status: status.as_u16(), code, who }
    }

    /// Counts the request, ends its trace and writes the line.
    pub fn end(&self, who: &str, status: StatusCode, code: &'static str) {
        let took_ns = self.stopwatch.elapsed_ns();
        self.measured.note(status, took_ns);
        if let Some((trace, organization)) = &self.trace {
            // An organization named in a refused request may not exist.
            let organization = organization.filter(|_| status.is_success());
            trace.end(&self.ending(who, status, code), organization);
        }
        if !self.is_logged {
            return;
        }
        logging::access(&logging::Access {
            method: self.method.as_str(),
            route: self.route,
            status: status.as_u16(),
            code,
            who,
            address: self.address,
            duration_us: took_ns / 1_000,
            request_id: self.request_id,
        });
    }
}
