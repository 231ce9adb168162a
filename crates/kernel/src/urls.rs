//! URLs and origins of the configuration.

use http::Uri;
use serde::{Deserialize, Deserializer, Serialize};

use crate::document::values::text;

/// The URL under which users reach the public listener: `http` or `https`, without a trailing slash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Maximum length. Every token holds the URL twice, and the length of tokens is limited too.
    pub const MAX_BYTES: usize = 256;

    /// Reads a URL with a host and optionally a path, but no login, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let uri = http_uri(text).filter(|_| text.len() <= Self::MAX_BYTES)?;
        uri.query().is_none().then(|| Self(text.trim_end_matches('/').to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PublicUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "a URL such as \"https://api.example.com\", without login, query or fragment";
        text(deserializer, what, Self::parse)
    }
}

/// Reads an origin as browsers send it, for instance `https://app.example.com`, and returns it in lower case.
pub fn parse_origin(text: &str) -> Option<String> {
    let uri = http_uri(text)?;
    let origin = format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_lowercase();
    (origin == text.to_lowercase()).then_some(origin)
}

/// Reads an `http` or `https` URL with a host and without login and fragment.
fn http_uri(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let host = uri.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    let http = matches!(uri.scheme_str(), Some("http" | "https"));
    (http && host && !text.contains('#')).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_url_drops_trailing_slashes() {
        let cases = [
            ("https://api.example.com", Some("https://api.example.com")),
            ("https://api.example.com/", Some("https://api.example.com")),
            ("http://[::1]:8080/keeper/", Some("http://[::1]:8080/keeper")),
            ("api.example.com", None),
            ("ftp://example.com", None),
            ("https://", None),
            ("https://me@example.com", None),
            ("https://example.com/?a=b", None),
            ("https://example.com/#top", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(PublicUrl::parse(text).as_ref().map(PublicUrl::as_str), expected, "{text}");
        }
    }

    #[test]
    fn only_bare_origins_are_read() {
        assert_eq!(
            parse_origin("https://App.example.com:8443").as_deref(),
            Some("https://app.example.com:8443")
        );
        for bad in ["*", "null", "app.example.com", "https://a.example.com/", "https://a.example.com/x", ""] {
            assert_eq!(parse_origin(bad), None, "{bad}");
        }
    }
}
