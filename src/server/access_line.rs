//! The one line that the access log has of a request.

use std::net::IpAddr;
use std::time::Instant;

use http::{Method, StatusCode};

use crate::ids::RequestId;
use crate::log;

/// What is known of a request before it is answered. The path itself stays out of the log: links carry tokens.
pub struct AccessLine {
    pub method: Method,
    /// The route's path, `-` where there is none.
    pub route: &'static str,
    pub request_id: RequestId,
    pub address: IpAddr,
    pub watch: Stopwatch,
}

impl AccessLine {
    /// Writes the line.
    pub fn write(&self, request_id: &str, who: &str, status: StatusCode, code: &'static str) {
        log::access(&log::Access {
            method: self.method.as_str(),
            route: self.route,
            status: status.as_u16(),
            code,
            who,
            address: self.address,
            duration_us: self.watch.elapsed_us(),
            request_id,
        });
    }
}

/// How long something takes.
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(
        clippy::disallowed_methods,
        reason = "how long a request took is no business of the injected clock"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
