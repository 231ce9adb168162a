//! The cookie of a browser's session (docs/contract/console.md#the-cookie).

use http::{HeaderMap, HeaderValue, header};

use kernel::error::Error;

/// Returns the value of a cookie; `None` also if it stands several times.
pub(super) fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(other, _)| other.trim() == name).map(|(_, value)| value.trim());
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The cookie of a browser's session, by the scheme of the public URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionCookie {
    is_secure: bool,
}

impl SessionCookie {
    /// Returns the cookie of the console at this URL.
    pub fn new(public_url: &str) -> Self {
        Self { is_secure: public_url.starts_with("https://") }
    }

    /// Returns its name. Browsers keep one with the prefix `__Host-` only if it is secure, belongs to this host
    /// alone and to all of its paths (RFC 6265bis, section 4.1.3.2).
    pub const fn name(self) -> &'static str {
        if self.is_secure { "__Host-tollkeeper" } else { "tollkeeper" }
    }

    /// Returns its value; `None` also if it stands several times, because one of them may be a stranger's.
    pub fn read(self, headers: &HeaderMap) -> Option<&str> {
        read_cookie(headers, self.name())
    }

    /// Returns the header that sets it; without `max_age_s` the browser forgets it when it closes.
    pub fn set(self, token: &str, max_age_s: Option<i64>) -> Result<HeaderValue, Error> {
        let max_age = max_age_s.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        let mut value =
            HeaderValue::try_from(format!("{}={token}{}{max_age}", self.name(), self.attributes()))
                .map_err(Error::internal)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the header that removes it.
    pub fn remove(self) -> Result<HeaderValue, Error> {
        self.set("", Some(0))
    }

    const fn attributes(self) -> &'static str {
        if self.is_secure {
            "; Path=/; Secure; HttpOnly; SameSite=Lax"
        } else {
            "; Path=/; HttpOnly; SameSite=Lax"
        }
    }
}
