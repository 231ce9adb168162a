//! The cookies of a browser's session and of unfinished sign-ins (docs/contract/console.md#the-cookie).

use http::{HeaderMap, HeaderValue, header};

use kernel::error::Error;

/// Returns the value of a cookie; `None` if it is missing or sent several times.
pub(super) fn read_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(other, _)| other.trim() == name).map(|(_, value)| value.trim());
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// A cookie of the console. Its name depends on the scheme of the public URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionCookie {
    is_secure: bool,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The session of a signed-in user.
    Session,
    /// A sign-in whose password was right, and which needs a second factor next.
    SecondFactor,
    /// A sign-on with a provider that isn't finished yet.
    SignOn,
    /// A connection that the user must confirm by signing in with another method.
    Connection,
}

impl SessionCookie {
    /// Returns the cookie of a session of the console with this public URL.
    pub fn new(public_url: &str) -> Self {
        Self { is_secure: public_url.starts_with("https://"), kind: Kind::Session }
    }

    /// Returns the cookie of a sign-in that needs its second step.
    pub fn of_second_factor(public_url: &str) -> Self {
        Self { kind: Kind::SecondFactor, ..Self::new(public_url) }
    }

    /// Returns the cookie of a sign-on with a provider.
    pub fn of_sign_on(public_url: &str) -> Self {
        Self { kind: Kind::SignOn, ..Self::new(public_url) }
    }

    /// Returns the cookie of a connection that the user must confirm by signing in with another method.
    pub fn of_connection(public_url: &str) -> Self {
        Self { kind: Kind::Connection, ..Self::new(public_url) }
    }

    /// Returns the cookie's name. Browsers accept the prefix `__Host-` only if the cookie is secure, has no
    /// `Domain` and has the path `/` (RFC 6265bis, section 4.1.3.2).
    pub const fn name(self) -> &'static str {
        match (self.kind, self.is_secure) {
            (Kind::Session, true) => "__Host-tollkeeper",
            (Kind::Session, false) => "tollkeeper",
            (Kind::SecondFactor, true) => "__Host-tollkeeper-second-factor",
            (Kind::SecondFactor, false) => "tollkeeper-second-factor",
            (Kind::SignOn, true) => "__Host-tollkeeper-sign-on",
            (Kind::SignOn, false) => "tollkeeper-sign-on",
            (Kind::Connection, true) => "__Host-tollkeeper-connection",
            (Kind::Connection, false) => "tollkeeper-connection",
        }
    }

    /// Returns the cookie's value; `None` if it is missing, or sent several times, because an attacker may
    /// have set one of the values.
    pub fn read(self, headers: &HeaderMap) -> Option<&str> {
        read_cookie(headers, self.name())
    }

    /// Returns the `Set-Cookie` header that sets the cookie. Without `max_age_s`, the browser removes the
    /// cookie when it closes.
    pub fn set(self, token: &str, max_age_s: Option<i64>) -> Result<HeaderValue, Error> {
        let max_age = max_age_s.map(|seconds| format!("; Max-Age={seconds}")).unwrap_or_default();
        let mut value =
            HeaderValue::try_from(format!("{}={token}{}{max_age}", self.name(), self.attributes()))
                .map_err(Error::internal)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the `Set-Cookie` header that removes the cookie.
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
