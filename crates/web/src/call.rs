//! A request that is passed to a handler.

use std::net::IpAddr;

use axum::body::Body;
use http::{HeaderMap, Method, Uri, header};

use kernel::error::{Code, Error};
use kernel::ids::RequestId;

/// A request; `C` is the credential that authenticated it.
#[derive(Debug)]
pub struct Call<C> {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The names and values of the path's parameters.
    pub path: Vec<(String, String)>,
    /// The client's address behind trusted proxies; `None` if they don't report it.
    pub address: Option<IpAddr>,
    pub request_id: RequestId,
    /// The body, which hasn't been read yet.
    pub body: Body,
    /// The fields of an HTML form, once its body has been read: names with their values, in order.
    pub form: Option<Vec<(String, String)>>,
    /// The caller's name in the log; empty while it is unknown.
    pub caller: String,
    /// The credential that authenticated the caller; the default while it is unknown.
    pub credential: C,
}

impl<C> Call<C> {
    /// Returns a path parameter, or an empty string if no parameter has this name.
    pub fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Returns the bearer token of the header `Authorization` (RFC 6750, section 2.1).
    ///
    /// # Errors
    /// 401 `missing_credentials` unless the request has exactly one such header, with a token.
    pub fn bearer(&self) -> Result<&str, Error> {
        let mut values = self.headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Err(Code::MissingCredentials.into());
        };
        if values.next().is_some() {
            return Err(
                Error::new(Code::MissingCredentials).message("Send one `Authorization` header, not several.")
            );
        }
        // A value that isn't ASCII has no valid scheme or token, so it is refused like an empty one.
        let text = value.to_str().unwrap_or_default();
        match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
                Ok(token.trim())
            }
            _ => Err(Code::MissingCredentials.into()),
        }
    }

    /// Returns `true` for a method that only reads.
    pub fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
}
