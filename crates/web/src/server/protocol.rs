//! Checks that HTTP/1.1 requires and hyper doesn't perform.

use std::net::Ipv6Addr;

use http::{HeaderValue, Request, Version, header};

use super::watchdog::HeadInfo;
use kernel::error::{Code, Error};

/// The certainty about the position at which a request ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    Unambiguous,
    /// The head may have had a `Content-Length` in addition to a transfer coding. No further request is read
    /// on this connection.
    Ambiguous,
}

/// Checks a request against RFC 9112, sections 3.2 and 6.1.
///
/// # Errors
/// 400. The connection must then be closed.
pub fn check<T>(request: &Request<T>, head: HeadInfo) -> Result<Framing, Error> {
    let malformed = |message: &str| Err(Error::new(Code::MalformedRequest).message(message));
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            return malformed("Send the header `Host`, which HTTP/1.1 requires.");
        }
        (Some(_), Some(_)) => return malformed("Send one header `Host`, not several."),
        (Some(host), None) if !is_host(host.as_bytes()) => {
            return malformed("The header `Host` must be a host name or an address, optionally with a port.");
        }
        _ => {}
    }
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(encoding) = encodings.next() else { return Ok(Framing::Unambiguous) };
    if encodings.next().is_some() || !is_chunked(encoding) {
        return malformed("Send `Transfer-Encoding: chunked` once, or a `Content-Length`.");
    }
    match head {
        HeadInfo::Scanned { has_content_length: true } => {
            malformed("Send either `Transfer-Encoding` or `Content-Length`, not both.")
        }
        HeadInfo::Scanned { has_content_length: false } => Ok(Framing::Unambiguous),
        HeadInfo::Pipelined => Ok(Framing::Ambiguous),
    }
}

fn is_chunked(encoding: &HeaderValue) -> bool {
    encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// Returns `true` for a valid `uri-host [":" port]` of RFC 3986, or for an empty value, which is for a target
/// without a host.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value.iter().rposition(|byte| *byte == b':') {
        Some(at) if value.last() != Some(&b']') => {
            let (host, port) = value.split_at(at);
            (host, port.get(1..).unwrap_or_default())
        }
        _ => (value, [].as_slice()),
    };
    if port.len() > 5 || !port.iter().all(u8::is_ascii_digit) {
        return false;
    }
    if let Some(inner) = host.strip_prefix(b"[") {
        let inner = inner.strip_suffix(b"]").and_then(|inner| std::str::from_utf8(inner).ok());
        return inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    host.iter().all(|byte| is_in_names(*byte))
}

/// Returns `true` for a byte that a `reg-name` of RFC 3986 or an IPv4 address may contain. The characters
/// after a `%` aren't checked.
fn is_in_names(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&'..=b',' | b';' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_name_or_an_address() {
        for good in
            ["", "x", "api.example.com", "API.example.com:8080", "127.0.0.1:80", "[::1]", "[::1]:8080", "x:"]
        {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "a b", "a/b", "user@x", "::1", "[::1", "[x]", "x:port", "x:123456", "x:80:80", "a,\u{e9}",
            "[::1]x",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad}");
        }
    }
}
