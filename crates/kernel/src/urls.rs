//! URLs and origins of the configuration.

use std::fmt;
use std::net::IpAddr;

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

/// The URL below which another server has its operations, such as `http://10.0.0.5:8000/v1`: `http` or `https`,
/// without a trailing slash.
///
/// It prints without its path, which may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    uri: Uri,
}

impl BaseUrl {
    /// Maximum length.
    pub const MAX_BYTES: usize = 1_024;

    /// Reads a URL with a host and optionally a port and a path, but no login, query or fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let uri = http_uri(text).filter(|uri| uri.query().is_none() && text.len() <= Self::MAX_BYTES)?;
        let has_port = uri.authority().is_some_and(|authority| authority.as_str() != authority.host());
        let text = text.trim_end_matches('/').to_owned();
        (!has_port || uri.port_u16().is_some_and(|port| port != 0)).then_some(Self { text, uri })
    }

    /// Returns the whole URL, to which the path of an operation is appended.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the URL with its parts.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    pub fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns `true` if the host is this machine or in a private network, judging by its name.
    pub fn is_private(&self) -> bool {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(address)) => {
                // 100.64.0.0/10 is the space that networks share (RFC 6598).
                let [first, second, ..] = address.octets();
                let is_shared = first == 100 && (64..128).contains(&second);
                address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
            }
            Ok(IpAddr::V6(address)) => {
                address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
            }
            Err(_) => {
                let name = host.trim_end_matches('.').to_lowercase();
                let is_private = |last| ["localhost", "local", "internal", "svc", "lan"].contains(&last);
                name.rsplit_once('.').is_none_or(|(_, last)| is_private(last))
            }
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.uri.scheme_str().unwrap_or_default())
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "a URL such as \"http://10.0.0.5:8000/v1\", without login, query or fragment";
        text(deserializer, what, Self::parse)
    }
}

/// Reads an origin as browsers send it, for instance `https://app.example.com`, and returns it in lower case.
pub fn parse_origin(text: &str) -> Option<String> {
    let uri = http_uri(text)?;
    let origin = format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_lowercase();
    (origin == text.to_lowercase()).then_some(origin)
}

/// Returns `true` if the host of a URL is this machine, by its name or its address.
pub fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
    fn only_names_and_addresses_of_this_machine_are_loopback() {
        for (text, expected) in [
            ("http://localhost:3000", true),
            ("http://LOCALHOST/x?y", true),
            ("http://127.8.0.1", true),
            ("http://[::1]:1/", true),
            ("http://localhost.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("http://10.0.0.1", false),
            ("http://[::2]", false),
        ] {
            assert_eq!(is_loopback(&text.parse().unwrap()), expected, "{text}");
        }
    }

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
    fn private_hosts_are_told_by_their_names() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "[::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "localhost",
            "vllm",
            "vllm.models.svc",
            "vllm.models.svc.cluster.local",
            "GPU.INTERNAL.",
        ];
        let public = [
            "192.0.2.1",
            "100.128.0.1",
            "172.32.0.1",
            "[2001:db8::1]",
            "api.example.com",
            "internal.example.com",
            "10.example.com",
        ];
        for (hosts, expected) in [(&private[..], true), (&public[..], false)] {
            for host in hosts {
                let url = BaseUrl::parse(&format!("http://{host}:8000/v1")).unwrap();
                assert_eq!((url.is_private(), url.is_https()), (expected, false), "{host}");
            }
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
