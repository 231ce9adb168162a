//! The access log: one line per request. For speed, it doesn't use the general formatter, because every
//! request waits for its line.

use std::fmt::{self, Display};
use std::io::Write;
use std::net::IpAddr;

use super::lines::Lines;
use super::settings::Format;
use kernel::clock::Time;
use kernel::ids::RequestId;

/// A line of the access log.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// The path of the route.
    pub route: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The error's code; empty without an error.
    pub code: &'a str,
    /// The id of the caller; empty if unknown.
    pub who: &'a str,
    /// The client's address; `-` in the log if unknown.
    pub address: Option<IpAddr>,
    /// The time from the end of the request's headers to the response, in microseconds.
    pub duration_us: u64,
    pub request_id: RequestId,
}

impl Access<'_> {
    /// Emits the line as a tracing event, for subscribers other than this log.
    pub(super) fn trace(&self) {
        tracing::info!(
            target: "tollkeeper::access",
            method = self.method,
            route = self.route,
            status = self.status,
            code = self.code,
            who = self.who,
            address = %display_address(self.address),
            duration_us = self.duration_us,
            request_id = self.request_id.to_string(),
            "request"
        );
    }

    /// Writes the line to the queue.
    pub(super) fn write_to(&self, mut lines: Lines, now: Time) {
        let mut line = Vec::with_capacity(320);
        let formatted = match lines.format {
            Format::Text => self.text(&mut line, now),
            Format::Json => self.json(&mut line, now),
        };
        // Writing into memory and to the queue can't fail.
        formatted.and_then(|()| lines.write_all(&line)).unwrap_or_default();
    }

    /// Writes the line as text. None of the values needs escaping: methods are tokens (RFC 9110, section
    /// 5.6.2), and the others are words of the service itself.
    fn text(&self, line: &mut Vec<u8>, now: Time) -> std::io::Result<()> {
        let Self { method, route, status, code, who, address, duration_us, request_id } = self;
        let address = display_address(*address);
        writeln!(
            line,
            "{now}  INFO tollkeeper::access: request method=\"{method}\" route=\"{route}\" status={status} code=\"{code}\" \
             who=\"{who}\" address={address} duration_us={duration_us} request_id=\"{request_id}\""
        )
    }

    fn json(&self, line: &mut Vec<u8>, now: Time) -> std::io::Result<()> {
        let Self { method, route, status, code, who, address, duration_us, request_id } = self;
        let address = display_address(*address);
        writeln!(
            line,
            "{{\"timestamp\":\"{now}\",\"level\":\"INFO\",\"message\":\"request\",\"method\":\"{method}\",\"route\":\"{route}\",\
             \"status\":{status},\"code\":\"{code}\",\"who\":\"{who}\",\"address\":\"{address}\",\"duration_us\":{duration_us},\
             \"request_id\":\"{request_id}\",\"target\":\"tollkeeper::access\"}}"
        )
    }
}

fn display_address(address: Option<IpAddr>) -> impl Display {
    fmt::from_fn(move |f| match address {
        Some(address) => address.fmt(f),
        None => f.write_str("-"),
    })
}
