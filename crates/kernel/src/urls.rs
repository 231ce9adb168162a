//! URLs with `http` or `https` from the configuration and from customers, and their origins.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use http::Uri;
use serde::{Deserialize, Deserializer, Serialize};

use crate::document::values::text;
use crate::hosts;

/// A URL with `http` or `https` and a host, without a login or fragment. Its text is kept unchanged.
///
/// It is printed without its path, which may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    uri: Uri,
}

impl HttpUrl {
    /// Parses a URL of at most `max_bytes` bytes.
    pub fn parse(text: &str, max_bytes: usize) -> Option<Self> {
        if text.len() > max_bytes || text.contains('#') {
            return None;
        }
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let has_port = authority.as_str() != authority.host();
        let is_whole = matches!(uri.scheme_str(), Some("http" | "https"))
            && !authority.host().is_empty()
            && !authority.as_str().contains('@')
            && (!has_port || authority.port_u16().is_some_and(|port| port != 0));
        is_whole.then(|| Self { text: text.to_owned(), uri })
    }

    /// Parses a URL that a customer has chosen. Characters outside ASCII must be encoded, as in browsers. The
    /// host must not end with a dot, because certificates wouldn't match.
    pub fn parse_of_customer(text: &str, max_bytes: usize) -> Option<Self> {
        let url = Self::parse(text, max_bytes)?;
        (text.bytes().all(|byte| byte.is_ascii_graphic()) && !url.host().ends_with('.')).then_some(url)
    }

    /// Parses a URL without a query, to which paths are appended, and drops its trailing slashes.
    fn parse_base(text: &str, max_bytes: usize) -> Option<Self> {
        let url = Self::parse(text, max_bytes).filter(|url| url.uri.query().is_none())?;
        Some(Self { text: text.trim_end_matches('/').to_owned(), ..url })
    }

    /// Returns the whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the parsed URL.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns `true` if the host's name or address shows that it is this machine or in a private network.
    pub fn is_private(&self) -> bool {
        hosts::is_private(self.host())
    }

    /// Returns the host. An IPv6 address is returned without brackets.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Returns the host's IP address if the URL contains one; `None` for a name.
    pub fn address(&self) -> Option<IpAddr> {
        hosts::address(self.host())
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Returns `true` if the port is the scheme's default, or at least 1024 and thus not reserved for system
    /// services.
    pub fn has_usual_port(&self) -> bool {
        let port = self.port();
        port == if self.is_https() { 443 } else { 80 } || port >= 1_024
    }

    /// Returns the value of the `host` header, without the default port.
    pub fn host_header(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        authority.strip_suffix(if self.is_https() { ":443" } else { ":80" }).unwrap_or(authority)
    }

    /// Returns the target of a request: the path and the query.
    pub fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.uri.scheme_str().unwrap_or_default())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The URL under which users reach the public listener: `http` or `https`, without a trailing slash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Maximum length. Every token contains the URL twice, and the length of tokens is limited, too.
    pub const MAX_BYTES: usize = 256;

    /// Parses a URL with a host and optionally a port and a path, but no login, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        HttpUrl::parse_base(text, Self::MAX_BYTES).map(|url| Self(url.text))
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

/// The base URL of another server's operations, such as `http://10.0.0.5:8000/v1`: `http` or `https`, without
/// a trailing slash.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(HttpUrl);

impl BaseUrl {
    /// Maximum length.
    pub const MAX_BYTES: usize = 1_024;

    /// Parses a URL with a host and optionally a port and a path, but no login, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        HttpUrl::parse_base(text, Self::MAX_BYTES).map(Self)
    }
}

impl Deref for BaseUrl {
    type Target = HttpUrl;
    fn deref(&self) -> &HttpUrl {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "a URL such as \"http://10.0.0.5:8000/v1\", without login, query or fragment";
        text(deserializer, what, Self::parse)
    }
}

/// Parses an origin in the form that browsers send, for instance `https://app.example.com`, and returns it in
/// lower case.
pub fn parse_origin(text: &str) -> Option<String> {
    let uri = HttpUrl::parse(text, usize::MAX)?.uri;
    let origin = format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_lowercase();
    (origin == text.to_lowercase()).then_some(origin)
}

/// Returns the origin of a URL in the form that browsers send (RFC 6454, section 6.2).
pub fn origin_of(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let scheme = url.scheme_str()?;
    let (host, port) = (url.host()?.to_ascii_lowercase(), url.port_u16());
    let default = if scheme == "https" { 443 } else { 80 };
    Some(match port.filter(|port| *port != default) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
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
            ("https://example.com:0", None),
            ("https://example.com:99999", None),
            ("https://example.com:", None),
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
    fn base_url_prints_without_its_path() {
        let cases = [
            ("http://10.0.0.5:8000/v1/", Some(("http://10.0.0.5:8000/v1", "http://10.0.0.5:8000"))),
            ("https://api.example.com", Some(("https://api.example.com", "https://api.example.com"))),
            ("http://[::1]:8080/", Some(("http://[::1]:8080", "http://[::1]:8080"))),
            ("http://10.0.0.5:0/v1", None),
            ("http://10.0.0.5:99999/v1", None),
            ("http://10.0.0.5:/v1", None),
            ("unix:/run/vllm.sock", None),
            ("http://user:word@10.0.0.5/v1", None),
            ("http://10.0.0.5/v1?key=word", None),
            ("http://10.0.0.5/v1#word", None),
            ("10.0.0.5:8000", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let url = BaseUrl::parse(text);
            let found = url.as_ref().map(|url| (url.as_str(), url.to_string()));
            assert_eq!(found, expected.map(|(whole, shown)| (whole, shown.to_owned())), "{text}");
        }
        let long = format!("http://h/{}", "a".repeat(BaseUrl::MAX_BYTES - 9));
        assert!(BaseUrl::parse(&long).is_some() && BaseUrl::parse(&format!("{long}a")).is_none());
        assert_eq!(format!("{:?}", BaseUrl::parse("https://h/word/v1").unwrap()), "https://h");
    }

    #[test]
    fn origins_are_written_like_browsers_do() {
        for (url, origin) in [
            ("https://Tollkeeper.example/console", "https://tollkeeper.example"),
            ("https://tollkeeper.example:443", "https://tollkeeper.example"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(origin_of(url).as_deref(), Some(origin));
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
