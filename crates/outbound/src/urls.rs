//! URLs that customers choose.

use std::fmt;

use http::Uri;

/// A URL: `http` or `https` with a host, without a login or fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    uri: Uri,
}

impl HttpUrl {
    /// Reads a URL of at most `max_chars` characters. Characters outside ASCII must be encoded, as browsers send
    /// them.
    pub fn parse(text: &str, max_chars: usize) -> Option<Self> {
        if text.len() > max_chars || text.contains('#') || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let host = authority.host();
        let has_port = authority.as_str() != host;
        let is_whole = matches!(uri.scheme_str(), Some("http" | "https"))
            && !host.is_empty()
            && !host.ends_with('.')
            && !authority.as_str().contains('@')
            && (!has_port || authority.port_u16().is_some_and(|port| port != 0));
        is_whole.then(|| Self { text: text.to_owned(), uri })
    }

    /// Returns the whole URL.
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

    /// Returns the host. An IPv6 address is returned without brackets.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Returns `true` if the port is the default of the scheme, or one that no system service uses.
    pub fn has_usual_port(&self) -> bool {
        let port = self.port();
        port == if self.is_https() { 443 } else { 80 } || port >= 1_024
    }

    /// Returns the `host` header, without the default port, as HTTP clients send it.
    pub fn host_header(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        authority.strip_suffix(if self.is_https() { ":443" } else { ":80" }).unwrap_or(authority)
    }

    /// Returns the target of a request: the path with the query.
    pub fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", |target| target.as_str())
    }
}

impl fmt::Debug for HttpUrl {
    /// Omits the path, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.uri.scheme_str().unwrap_or_default())
    }
}
