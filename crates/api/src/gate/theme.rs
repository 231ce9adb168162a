//! The theme of the console's pages, in a separate cookie that isn't secret and grants no access
//! (docs/contract/console.md#theme).

use http::{HeaderMap, HeaderValue};

use kernel::error::Error;

use super::session_cookie::read_cookie;

/// The time for which a browser keeps the theme: a year.
const MAX_AGE_S: u32 = 31_536_000;

const NAME: &str = "tollkeeper-theme";

/// The theme that a user chose in this browser; without one, pages follow the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    Light,
    Dark,
}

impl Theme {
    /// Returns the theme with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Light, Self::Dark].into_iter().find(|theme| theme.as_str() == name)
    }

    /// Returns the name of the theme.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Returns the theme in the browser's cookie, if any.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        Self::parse(read_cookie(headers, NAME)?)
    }

    /// Returns the `Set-Cookie` header that sets the theme, or removes it. `is_secure` must be `true` if
    /// users reach the console over HTTPS.
    pub fn set(theme: Option<Self>, is_secure: bool) -> Result<HeaderValue, Error> {
        let value = theme.map_or("", Self::as_str);
        let max_age = if theme.is_some() { MAX_AGE_S } else { 0 };
        let secure = if is_secure { "; Secure" } else { "" };
        let text = format!("{NAME}={value}; Path=/{secure}; HttpOnly; SameSite=Lax; Max-Age={max_age}");
        HeaderValue::try_from(text).map_err(Error::internal)
    }
}
