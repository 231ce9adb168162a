//! The line of one request, written without the general formatter: every request waits for it.

use std::fmt::{self, Display};
use std::io::Write;
use std::net::IpAddr;

use super::buffer::Buffer;
use super::settings::Format;
use kernel::clock::Time;

/// What the access log says of a request.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// GET, POST …
    pub method: &'a str,
    /// The route's path.
    pub route: &'a str,
    /// HTTP status.
    pub status: u16,
    /// The error's code; empty when there is none.
    pub code: &'a str,
    /// Who called; empty when unknown.
    pub who: &'a str,
    /// The client's address; `-` in the log when it isn't known.
    pub address: Option<IpAddr>,
    /// From the request's head to the answer, in microseconds.
    pub duration_us: u64,
    /// The request's id.
    pub request_id: &'a str,
}

impl Access<'_> {
    /// As any other event: for subscribers that are not this log.
    pub(super) fn trace(&self) {
        tracing::info!(
            target: "tollkeeper::access",
            method = self.method,
            route = self.route,
            status = self.status,
            code = self.code,
            who = self.who,
            address = %shown(self.address),
            duration_us = self.duration_us,
            request_id = self.request_id,
            "request"
        );
    }

    /// Straight into the buffer.
    pub(super) fn write_to(&self, buffer: &Buffer, now: Time) {
        let mut line = Vec::with_capacity(320);
        let written = match buffer.format() {
            Format::Text => self.text(&mut line, now),
            Format::Json => self.json(&mut line, now),
        };
        // Writing into memory does not fail.
        written.unwrap_or_default();
        buffer.push(&line, false);
    }

    /// None of these texts needs escaping: methods are tokens (RFC 9110, section 5.6.2), the others are words of ours.
    fn text(&self, line: &mut Vec<u8>, now: Time) -> std::io::Result<()> {
        let Self { method, route, status, code, who, address, duration_us, request_id } = self;
        let address = shown(*address);
        writeln!(
            line,
            "{now}  INFO tollkeeper::access: request method=\"{method}\" route=\"{route}\" status={status} code=\"{code}\" \
             who=\"{who}\" address={address} duration_us={duration_us} request_id=\"{request_id}\""
        )
    }

    fn json(&self, line: &mut Vec<u8>, now: Time) -> std::io::Result<()> {
        let Self { method, route, status, code, who, address, duration_us, request_id } = self;
        let address = shown(*address);
        writeln!(
            line,
            "{{\"timestamp\":\"{now}\",\"level\":\"INFO\",\"message\":\"request\",\"method\":\"{method}\",\"route\":\"{route}\",\
             \"status\":{status},\"code\":\"{code}\",\"who\":\"{who}\",\"address\":\"{address}\",\"duration_us\":{duration_us},\
             \"request_id\":\"{request_id}\",\"target\":\"tollkeeper::access\"}}"
        )
    }
}

fn shown(address: Option<IpAddr>) -> impl Display {
    fmt::from_fn(move |f| match address {
        Some(address) => address.fmt(f),
        None => f.write_str("-"),
    })
}
