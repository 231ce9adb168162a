//! The origin of a browser's request (docs/contract/console.md#where-requests-come-from).
//!
//! A browser sends a cookie with every request to its host, even if a page of another site or on another port
//! made the request. A request that changes something must therefore prove that it comes from one of our
//! pages, with `Sec-Fetch-Site` (W3C, Fetch Metadata Request Headers), or `Origin` in older browsers.

use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, header};

use kernel::error::{Code, Error};
use kernel::hosts;
use kernel::urls::origin_of;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The values of `Sec-Fetch-Dest` for a page that is embedded in another page.
const EMBEDDED: [&str; 6] = ["iframe", "frame", "embed", "object", "fencedframe", "portal"];

/// Refuses a request from an origin that isn't allowed for its method.
///
/// # Errors
/// 403 `cross_origin_request`.
pub(super) fn check(method: &Method, headers: &HeaderMap, public_url: &str) -> Result<(), Error> {
    let is_allowed = match *method {
        Method::GET | Method::HEAD => is_readable_from(headers),
        _ => is_own(headers, public_url),
    };
    if is_allowed { Ok(()) } else { Err(Code::CrossOriginRequest.into()) }
}

/// Returns the only value of a header; `Some("")` if it is sent several times or isn't ASCII.
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    Some(text.unwrap_or_default().to_owned())
}

/// Returns `true` if the request may read a page. A page may be opened from anywhere, but not embedded, or
/// loaded by scripts of other sites.
fn is_readable_from(headers: &HeaderMap) -> bool {
    let destination = only(headers, &SEC_FETCH_DEST).unwrap_or_default();
    if EMBEDDED.contains(&destination.as_str()) {
        return false;
    }
    let is_navigation = only(headers, &SEC_FETCH_MODE).is_none_or(|mode| mode == "navigate");
    let is_from_us =
        only(headers, &SEC_FETCH_SITE).is_none_or(|site| matches!(site.as_str(), "same-origin" | "none"));
    is_navigation || is_from_us
}

fn is_own(headers: &HeaderMap, public_url: &str) -> bool {
    match only(headers, &SEC_FETCH_SITE) {
        Some(site) => site == "same-origin",
        None => {
            only(headers, &header::ORIGIN).is_some_and(|origin| is_our_origin(&origin, headers, public_url))
        }
    }
}

/// Returns `true` if the browser came from one of our pages, through a link, a form or a redirect. Returns
/// `false` for addresses that were typed, or opened by another site or program. Older browsers send `Referer`
/// instead, which our pages allow only for this host.
pub(super) fn is_from_our_page(headers: &HeaderMap, public_url: &str) -> bool {
    match only(headers, &SEC_FETCH_SITE) {
        Some(site) => site == "same-origin",
        None => only(headers, &header::REFERER)
            .and_then(|page| origin_of(&page))
            .is_some_and(|origin| is_our_origin(&origin, headers, public_url)),
    }
}

fn is_our_origin(origin: &str, headers: &HeaderMap, public_url: &str) -> bool {
    let is_same = |other: Option<String>| other.as_deref() == Some(origin);
    is_same(origin_of(public_url)) || is_same(loopback_origin(headers))
}

/// Returns the origin of the requested host if it is a loopback address or name.
fn loopback_origin(headers: &HeaderMap) -> Option<String> {
    let authority: Authority = only(headers, &header::HOST)?.parse().ok()?;
    let is_plain = !authority.as_str().contains('@');
    (is_plain && hosts::is_loopback(authority.host()))
        .then(|| origin_of(&format!("http://{authority}")))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_this_machine_have_a_loopback_origin() {
        for (host, origin) in [
            ("localhost:8080", Some("http://localhost:8080")),
            ("127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("[::1]:8080", Some("http://[::1]:8080")),
            ("localhost.example", None),
            ("10.0.0.1", None),
            ("user@localhost", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            assert_eq!(loopback_origin(&headers).as_deref(), origin, "{host}");
        }
    }
}
