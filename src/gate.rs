//! The gate: from a request to a scope.
//!
//! Every route names its access. An access reads the credential and the path, counts the caller's rate, and leaves the
//! judgement to the scopes of [`tenants::access`], which only that module makes. The order is fixed: 401, then 404, then 403;
//! the body comes later.

mod bearer;
mod invoices;
mod misses;
mod models;
mod public;
mod service;
mod sessions;
mod tenants;

use std::future::Future;
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method, Uri, header};

pub use bearer::{Credential, check_again};
pub use invoices::{InvoiceScope, OrgInvoice};
pub use keys::access::KeyAction;
pub use models::{ModelScope, Models, ModelsScope, OneModel};
pub use public::{Public, Visitor};
pub use service::{OneReservation, Proxy, ProxyScope, ReservationScope, Service, ServiceScope};
pub use sessions::{Session, SessionScope};
pub use tenants::{Bearer, Org, OrgMember, Person, Project, ProjectMember};

use bearer::live_session;

use crate::app::App;
use crate::input::RequestBody;
use kernel::error::{Code, Error, RateLimit};
use kernel::ids::RequestId;
use kernel::proxies;
use trail::Trail;

/// One request on its way to a handler.
#[derive(Debug)]
pub struct Call {
    /// GET, POST …
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Path parameters by name.
    pub path: Vec<(String, String)>,
    /// The client's address, trusted proxies looked through; `None` when they don't tell it.
    pub address: Option<IpAddr>,
    /// This request's own id.
    pub request_id: RequestId,
    /// The body, not read yet.
    pub body: RequestBody,
    /// Who calls, once known: for the log.
    pub who: String,
    /// The credential that the caller was let in by, once known.
    pub credential: Credential,
}

impl Call {
    /// A path parameter; the empty text when there is none of this name.
    pub fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The bearer value of the header `Authorization` (RFC 6750, section 2.1).
    ///
    /// # Errors
    /// 401 `missing_credentials` unless there is exactly one such header, with a token.
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
        // What isn't ASCII is no scheme and no token: refused like an empty one.
        let text = value.to_str().unwrap_or_default();
        match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
                Ok(token.trim())
            }
            _ => Err(Code::MissingCredentials.into()),
        }
    }

    /// The actor, address and request id that the audit trail keeps.
    pub fn trail(&self) -> Trail {
        let actor = if self.who.is_empty() { "anonymous".to_owned() } else { self.who.clone() };
        Trail { actor, address: self.address, request_id: Some(self.request_id) }
    }

    fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
}

/// The access of a route.
pub trait Access: Send + Sync + 'static {
    /// The proof that it holds.
    type Scope: Send + 'static;
    /// Lets the caller in, or says why not.
    fn admit(&self, app: &App, call: &mut Call) -> impl Future<Output = Result<Self::Scope, Error>> + Send;
    /// In words, for the OpenAPI document and the access matrix.
    fn describe(&self) -> AccessDoc;
}

/// An access in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessDoc {
    /// The security scheme of the OpenAPI document; none where the route is public.
    pub scheme: Option<&'static str>,
    /// One line for people.
    pub text: String,
    /// Whether the route answers before the database is ready.
    pub before_ready: bool,
}

impl AccessDoc {
    fn new(scheme: Option<&'static str>, text: impl Into<String>) -> Self {
        Self { scheme, text: text.into(), before_ready: false }
    }

    /// The same route, which also answers before the database is ready.
    fn before_ready(self) -> Self {
        Self { before_ready: true, ..self }
    }
}

fn rate_limited(limit: RateLimit) -> Error {
    Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) }
}

/// The address that a request comes from: the peer, or what trusted proxies say; `None` when they don't tell it.
pub fn client_address(app: &App, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
    let trusted = &app.config.trusted_proxies;
    if trusted.is_empty() {
        return Some(peer);
    }
    let hops = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
    proxies::client_address(peer, hops, trusted)
}
