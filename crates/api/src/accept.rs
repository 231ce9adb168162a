//! Content negotiation: responses in the format that the `Accept` header requests (RFC 9110, section 12.5.1).

use http::{HeaderMap, HeaderValue, Response, header};
use schemars::SchemaGenerator;

use kernel::error::Error;
use web::reply::{Body, Reply};

/// Returns `true` if a client prefers a media type to JSON: its `Accept` header contains the type, and
/// doesn't rank it below JSON.
pub fn prefers(headers: &HeaderMap, media_type: &str) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    is_preferred(media_type, &accept.collect::<Vec<_>>().join(","))
}

fn is_preferred(media_type: &str, accept: &str) -> bool {
    let (mut named, mut json) = (0.0_f32, 0.0_f32);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f32);
        match kind.as_str() {
            kind if kind == media_type => named = named.max(weight),
            "application/json" => json = json.max(weight),
            _ => {}
        }
    }
    named > 0.0 && named >= json
}

/// A reply whose format depends on the `Accept` header. Its `Vary` header lists `accept`.
#[derive(Debug)]
pub struct Negotiated<R>(pub R);

impl<R: Reply> Reply for Negotiated<R> {
    fn into_response(self) -> Result<Response<Body>, Error> {
        let mut response = self.0.into_response()?;
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        Ok(response)
    }

    fn content_type() -> &'static str {
        R::content_type()
    }

    fn other_content_type() -> Option<&'static str> {
        R::other_content_type()
    }

    fn schema(generator: &mut SchemaGenerator) -> serde_json::Value {
        R::schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_types_only_when_the_client_prefers_them() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for accept in [
            "text/html",
            browser,
            "TEXT/HTML; charset=utf-8",
            "application/json;q=0.5, text/html",
            "text/html, application/json",
        ] {
            assert!(is_preferred("text/html", accept), "{accept}");
            assert!(!is_preferred("text/csv", accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/plain",
            "text/html;q=x;q=0",
        ] {
            assert!(!is_preferred("text/html", accept), "{accept}");
        }
        assert!(is_preferred("text/csv", "text/csv; charset=utf-8; q=0.5"));
    }
}
