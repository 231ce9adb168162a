//! The gate: from a bearer to a scope.
//!
//! Every route names its access; only this module makes scopes (their fields are private to it), so a handler that takes
//! one can't run unchecked. The order is that of decisions, section 3: 401, then 404, then 403; the body comes later.

mod caller;
mod callers;
mod held;
mod invoices;
mod keys;
mod members;
mod misses;
mod model_calls;
mod models;
mod project_members;
mod projects;
mod public;
mod service;
mod sessions;
mod tenants;
mod used;

use std::future::Future;
use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Method, Uri, header};

pub use caller::{Credential, check_again};
pub use callers::{Anyone, CallerScope, Manager, Person, PersonScope};
pub use held::{HeldTx, hold_invitation};
pub use invoices::{InvoiceScope, OrgInvoice};
pub use keys::{Key, KeyScope, Rotation};
pub use members::{HeldMember, MemberScope, OrgMember};
pub use model_calls::{Calling, calling};
pub use models::{ModelScope, Models, ModelsScope, OneModel};
pub use project_members::{ProjectMember, ProjectMemberScope};
pub use projects::{Held, Project, ProjectScope, WholeProject, WholeProjectScope};
pub use public::{Open, Public, Visitor};
pub use service::{OneReservation, Proxy, ProxyScope, ReservationScope, Service, ServiceScope, Watching};
pub use sessions::{Session, SessionScope};
pub use tenants::{HeldOrganization, Org, OrgScope};
pub use used::{UsedKey, UsedProject, UsedScope};

use caller::{Caller, caller, manager};

use crate::app::App;
use crate::error::{Code, Error};
use crate::ids::{RequestId, SessionId, UserId};
use crate::input::RequestBody;
use crate::rules::restrictions;
use crate::secrets::jwt::TokenKind;

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

    fn is_read(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }
}

/// Who does something from where: what the audit trail keeps of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trail {
    /// A user's or a key's id, `anonymous`, `operator` for the command line, or `system` for the service itself.
    pub actor: String,
    /// The client's address, when it is known.
    pub address: Option<IpAddr>,
    /// The request.
    pub request_id: Option<RequestId>,
}

impl Trail {
    fn of(call: &Call) -> Self {
        let actor = if call.who.is_empty() { "anonymous".to_owned() } else { call.who.clone() };
        Self { actor, address: call.address, request_id: Some(call.request_id) }
    }

    /// Somebody at the command line.
    pub fn operator() -> Self {
        Self { actor: "operator".to_owned(), address: None, request_id: None }
    }

    /// The service by itself: nobody asked for it.
    pub fn system() -> Self {
        Self { actor: "system".to_owned(), address: None, request_id: None }
    }

    /// The same request, by somebody who has said who they are.
    #[must_use]
    pub fn by(&self, user_id: UserId) -> Self {
        Self { actor: user_id.to_string(), ..self.clone() }
    }
}

/// What a route asks of its caller.
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
}

fn rate_limited(limit: crate::error::RateLimit) -> Error {
    Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) }
}

async fn live_session(app: &App, token: &str, kind: TokenKind) -> Result<(UserId, SessionId), Error> {
    let session = app.accounts.live_session(token, kind).await?;
    Ok((session.user_id, session.id))
}

/// The address that a request comes from: the peer, or what trusted proxies say; `None` when they don't tell it.
pub fn client_address(app: &App, headers: &HeaderMap, peer: IpAddr) -> Option<IpAddr> {
    let trusted = &app.config.trusted_proxies;
    if trusted.is_empty() {
        return Some(peer);
    }
    let hops = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
    restrictions::client_address(peer, hops, trusted)
}
