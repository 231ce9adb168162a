//! The URL of a webhook (docs/contract/webhooks.md#addresses).

use std::fmt;
use std::ops::Deref;

use kernel::hosts;
use kernel::texts::Problem;
use kernel::urls::HttpUrl;

/// The URL to which events are sent.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(HttpUrl);

impl WebhookUrl {
    /// Maximum length, in characters.
    pub const MAX_CHARS: usize = 1_024;

    /// Parses a URL.
    pub fn parse(text: &str) -> Option<Self> {
        HttpUrl::parse_of_customer(text, Self::MAX_CHARS).map(Self)
    }

    /// Rejects URLs that are obviously not on the public internet, or that don't use TLS. The addresses of
    /// the name are checked at each attempt.
    ///
    /// # Errors
    /// The violated rule.
    pub fn check(&self, allow_private: bool) -> Result<(), Problem> {
        if allow_private {
            return Ok(());
        }
        if !self.is_https() {
            return Err(Problem::new("https_required", "must begin with `https://`"));
        }
        if !self.has_usual_port() {
            return Err(Problem::new("port_not_allowed", "must use port 443, or a port of at least 1024"));
        }
        if self.address().is_some_and(|address| !hosts::is_public(address)) {
            let message = "must be an address on the public Internet";
            return Err(Problem::new("address_not_allowed", message));
        }
        Ok(())
    }
}

impl Deref for WebhookUrl {
    type Target = HttpUrl;
    fn deref(&self) -> &HttpUrl {
        &self.0
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_urls_are_read() {
        for (text, host, port) in [
            ("https://example.com", "example.com", 443),
            ("https://example.com:8443/hooks/a?b=c", "example.com", 8_443),
            ("http://[::1]:8080/x", "::1", 8_080),
            ("http://127.0.0.1", "127.0.0.1", 80),
        ] {
            let url = WebhookUrl::parse(text).unwrap();
            assert_eq!((url.as_str(), url.host(), url.port()), (text, host, port));
        }
        let long = format!("https://h/{}", "a".repeat(WebhookUrl::MAX_CHARS - 10));
        assert!(WebhookUrl::parse(&long).is_some());
        let too_long = format!("{long}a");
        for bad in [
            "",
            "example.com",
            "https://",
            "https:///path",
            "ftp://example.com",
            "file:///etc/passwd",
            "https://user@example.com",
            "https://user:word@example.com",
            "https://example.com/#top",
            "https://example.com:0/",
            "https://example.com:99999/",
            "https://example.com:/",
            "https://example.com./",
            "https://exämple.com/",
            "https://example.com/a b",
            "https://example.com/\n",
            &too_long,
        ] {
            assert!(WebhookUrl::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn only_the_internet_over_tls_is_allowed() {
        for (text, expected) in [
            ("https://example.com", None),
            ("https://example.com:443", None),
            ("https://example.com:1024", None),
            ("https://1.1.1.1", None),
            ("https://[2606:4700::1111]", None),
            ("http://example.com", Some("https_required")),
            ("http://example.com:443", Some("https_required")),
            ("https://example.com:22", Some("port_not_allowed")),
            ("https://example.com:80", Some("port_not_allowed")),
            ("https://example.com:1023", Some("port_not_allowed")),
            ("https://127.0.0.1", Some("address_not_allowed")),
            ("https://10.0.0.1", Some("address_not_allowed")),
            ("https://[::1]", Some("address_not_allowed")),
            ("https://[::ffff:1.1.1.1]", Some("address_not_allowed")),
            ("https://169.254.169.254/latest/meta-data", Some("address_not_allowed")),
        ] {
            let url = WebhookUrl::parse(text).unwrap();
            assert_eq!(url.check(false).err().map(|problem| problem.code), expected, "{text}");
            assert!(url.check(true).is_ok(), "{text}");
        }
    }

    #[test]
    fn url_prints_without_its_path() {
        let url = WebhookUrl::parse("https://example.com:8443/word?word").unwrap();
        assert_eq!(format!("{url:?}"), "https://example.com:8443");
    }
}
