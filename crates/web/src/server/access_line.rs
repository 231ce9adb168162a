//! The one line that the access log has of a request.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode};

use kernel::ids::{OrganizationId, RequestId};
use kernel::stopwatch::Stopwatch;
use metrics::Measured;
use telemetry::{Ending, Trace};

/// What is known of a request before it is answered. The path itself stays out of the log: links carry tokens.
pub struct AccessLine<'a> {
    pub method: Method,
    /// The route's path, `-` where there is none.
    pub route: &'static str,
    pub request_id: RequestId,
    /// The client's, when it is known.
    pub address: Option<IpAddr>,
    pub stopwatch: Stopwatch,
    /// Where it is counted.
    pub measured: &'a Measured,
    /// Whether the log gets a line of it.
    pub is_logged: bool,
    /// Its trace, if it is traced, and the organization that its path names.
    pub trace: Option<(Arc<Trace>, Option<OrganizationId>)>,
    /// `public` or `service`.
    pub listener: &'static str,
}

impl AccessLine<'_> {
    fn ending<'a>(&'a self, who: &'a str, status: StatusCode, code: &'static str) -> Ending<'a> {
        let (method, route, listener) = (self.method.as_str(), self.route, self.listener);
        Ending { method, route, listener, status: status.as_u16(), code, who }
    }

    /// Counts the request and writes the line.
    pub fn end(&self, request_id: &str, who: &str, status: StatusCode, code: &'static str) {
        let took_ns = self.stopwatch.elapsed_ns();
        self.measured.note(status, took_ns);
        if let Some((trace, organization)) = &self.trace {
            // What a stranger names in a path isn't known to be there.
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
            request_id,
        });
    }
}
