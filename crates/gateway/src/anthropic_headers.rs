//! The headers of Anthropic's API that are sent to an upstream
//! (docs/contract/gateway.md#headers-of-messages).

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::request::gets_betas;
use catalog::Upstream;

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// Maximum total length of all beta names, in bytes.
const MAX_BETA_BYTES: usize = 2 << 10;

/// The version and the betas of Anthropic's API that a client requests.
#[derive(Clone, Default, Debug)]
pub struct AnthropicHeaders {
    version: Option<HeaderValue>,
    /// The names, separated by commas.
    betas: Option<HeaderValue>,
    /// `true` if the client calls the beta path, `?beta=true`.
    is_beta: bool,
}

impl AnthropicHeaders {
    /// Returns the headers of a request. Beta names that are too long in total are left out.
    pub fn of(headers: &HeaderMap, query: Option<&str>) -> Self {
        let betas: Vec<&[u8]> = headers.get_all(BETA).iter().map(HeaderValue::as_bytes).collect();
        let betas = Some(betas.join(&b","[..])).filter(|betas| (1..=MAX_BETA_BYTES).contains(&betas.len()));
        Self {
            version: headers.get(VERSION).cloned(),
            betas: betas.and_then(|betas| HeaderValue::from_bytes(&betas).ok()),
            is_beta: query.is_some_and(|query| query.split('&').any(|pair| pair == "beta=true")),
        }
    }

    /// Adds the headers for an upstream, and returns the query string of its URL.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap, upstream: &Upstream) -> &'static str {
        if let Some(version) = &self.version {
            headers.insert(VERSION, version.clone());
        }
        if !gets_betas(upstream) {
            return "";
        }
        if let Some(betas) = &self.betas {
            headers.insert(BETA, betas.clone());
        }
        if self.is_beta { "?beta=true" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_headers_are_one_list() {
        let mut headers = HeaderMap::new();
        for betas in ["a,b", "c"] {
            headers.append(BETA, betas.parse().unwrap());
        }
        let found = AnthropicHeaders::of(&headers, Some("x=1&beta=true"));
        assert_eq!(
            (found.betas.unwrap(), found.version, found.is_beta),
            ("a,b,c".parse().unwrap(), None, true)
        );
        headers.append(BETA, "d".repeat(MAX_BETA_BYTES).parse().unwrap());
        let found = AnthropicHeaders::of(&headers, Some("beta=false"));
        assert_eq!((found.betas, found.is_beta), (None, false));
    }
}
