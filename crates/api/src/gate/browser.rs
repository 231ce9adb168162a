//! Access with the console's cookie: the other accesses of the gate, for users in a browser.

use crate::Api;
use accounts::jwt::TokenKind;
use accounts::sign_in::PendingLogin;
use accounts::sign_in::provider::PendingConnection;
use accounts::{Session, sessions};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::RequestId;
use tenants::access::{Caller, CallerScope, KeyKind};

use super::session_cookie::SessionCookie;
use super::{
    Access, AccessDoc, Call, Credential, Public, Theme, Visitor, live_session, origins, trail, user_agent,
};

/// The access of a user who is signed in to the console, and whom `A` admits.
///
/// The origin of the request is checked first, then the cookie. `A` checks the rest. The order of the errors
/// is 403 for a page of another site, 401, 404, 403. The body is read afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Browser<A>(pub A);

/// The access to pages that need no session. The origin of the request is checked. A cookie is read, but not
/// required.
#[derive(Clone, Copy, Debug)]
pub struct Open<A>(pub A);

/// A signed-in user's request for a page.
#[derive(Clone, Debug)]
pub struct Visit<S> {
    /// The scope that `A` returned for the user.
    pub scope: S,
    /// The user, and the target of their request.
    pub person: SignedIn,
}

/// A request for a page, by a user who may be signed in.
#[derive(Clone, Debug)]
pub struct OpenVisit<S> {
    /// The scope that `A` returned for the caller.
    pub scope: S,
    /// The session, if the user is signed in.
    pub session: Option<Session>,
    /// The connection in this browser that is pending until the user signs in.
    pub pending_connection: Option<PendingConnection>,
    /// The sign-in in this browser that still needs its second step.
    pub pending_login: Option<PendingLogin>,
    /// The path and query of the request.
    pub target: Target,
}

/// A signed-in user, and the target of their request.
#[derive(Clone, Debug)]
pub struct SignedIn {
    session: Session,
    target: Target,
}

impl SignedIn {
    /// Returns the user of a call; `None` if the call wasn't authenticated by a cookie.
    pub fn of(call: &Call) -> Option<Self> {
        Some(Self { session: call.credential.browser_session()?, target: Target::of(call) })
    }

    /// Returns the session with its user.
    pub fn session(&self) -> Session {
        self.session
    }

    /// Returns the path and query of the request.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the user as a caller, for operations that don't depend on an organization.
    ///
    /// # Errors
    /// None: users are always admitted.
    pub fn caller(&self) -> Result<CallerScope, Error> {
        CallerScope::admit(Caller::person(self.session.user_id), KeyKind::Any)
    }
}

/// The path and query of a request, with its id.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path, as it was sent.
    pub path: String,
    /// The query string, as it was sent; empty without one.
    pub query: String,
    /// The names and values of the path's parameters.
    pub parameters: Vec<(String, String)>,
    pub request_id: RequestId,
    /// The theme chosen in this browser.
    pub theme: Option<Theme>,
}

impl Target {
    /// Returns the target of a call.
    pub fn of(call: &Call) -> Self {
        Self {
            path: call.uri.path().to_owned(),
            query: call.uri.query().unwrap_or_default().to_owned(),
            parameters: call.path.clone(),
            request_id: call.request_id,
            theme: Theme::read(&call.headers),
        }
    }

    /// Returns a parameter of the path, or an empty string if the path has no parameter with this name.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

impl<A: Access<Api>> Access<Api> for Browser<A> {
    type Scope = Visit<A::Scope>;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        origins::check(&call.method, &call.headers, &api.public_url)?;
        let session = sign_in_by_cookie(api, call).await?;
        let target = Target::of(call);
        let scope = self.0.admit(api, call).await?;
        sessions::note_seen(&api.accounts, &trail(call), session, user_agent(call).as_ref(), api.clock.now())
            .await;
        Ok(Visit { scope, person: SignedIn { session, target } })
    }

    fn describe(&self) -> AccessDoc {
        let AccessDoc { text, roles, before_ready, .. } = self.0.describe();
        // The rest of the text is about API keys, which can't be used for pages.
        let text = match text.strip_prefix("access token") {
            // The part about the confirmed identity also applies in a browser.
            Some(more) if more.ends_with(" confirmed") => format!("signed in{more}"),
            Some(_) => "signed in".to_owned(),
            None => text,
        };
        AccessDoc { roles, before_ready, ..AccessDoc::new(Some("cookie"), text) }
    }
}

impl<A: Access<Api>> Access<Api> for Open<A> {
    type Scope = OpenVisit<A::Scope>;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        origins::check(&call.method, &call.headers, &api.public_url)?;
        let session = match sign_in_by_cookie(api, call).await {
            Ok(session) => Some(session),
            Err(error) if error.code.status() == http::StatusCode::UNAUTHORIZED => None,
            Err(error) => return Err(error),
        };
        let target = Target::of(call);
        let pending_connection = pending_connection(api, call);
        let cookie = SessionCookie::of_second_factor(&api.public_url).read(&call.headers);
        let pending_login = cookie.and_then(|value| PendingLogin::open(&api.accounts, value));
        let scope = self.0.admit(api, call).await?;
        Ok(OpenVisit { scope, session, pending_connection, pending_login, target })
    }

    fn describe(&self) -> AccessDoc {
        self.0.describe()
    }
}

/// The access to the second step of a sign-in, with the cookie that the first step has set.
///
/// The origin of the request is checked first, then the cookie.
#[derive(Clone, Copy, Debug)]
pub struct SecondStep(pub Public);

/// A request of the second step of a sign-in.
#[derive(Clone, Debug)]
pub struct SecondStepVisit {
    /// The sign-in whose password was right.
    pub pending: PendingLogin,
    /// The visit, as for other pages that need no session.
    pub visit: OpenVisit<Visitor>,
}

impl Access<Api> for SecondStep {
    type Scope = SecondStepVisit;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        let visit = Open(self.0).admit(api, call).await?;
        Ok(SecondStepVisit { pending: visit.pending_login.clone().ok_or(Code::MissingCredentials)?, visit })
    }

    fn describe(&self) -> AccessDoc {
        AccessDoc { text: "pending login".to_owned(), ..self.0.describe() }
    }
}

/// The access for direct calls from a provider, without a browser. The token is in the body.
#[derive(Clone, Copy, Debug)]
pub struct FromProvider;

/// A call from a provider.
#[derive(Clone, Debug)]
pub struct FromProviderVisit {
    /// The id of the provider in the path.
    pub provider_id: String,
    pub visitor: Visitor,
}

impl Access<Api> for FromProvider {
    type Scope = FromProviderVisit;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        let visitor = Public::Unlimited.admit(api, call).await?;
        Ok(FromProviderVisit { provider_id: call.path("provider_id").to_owned(), visitor })
    }

    fn describe(&self) -> AccessDoc {
        AccessDoc { text: "provider".to_owned(), ..Public::Unlimited.describe() }
    }
}

/// The access to the page at which a provider's answer arrives. The gate reads the cookie of the sign-on; the
/// sign-on checks it.
#[derive(Clone, Copy, Debug)]
pub struct SignOn(pub Public);

/// A provider's answer, sent by the browser.
#[derive(Clone, Debug)]
pub struct SignOnVisit {
    /// The sealed state of the sign-on, from the cookie.
    pub sealed: Option<String>,
    /// The visit, as for other pages that need no session.
    pub visit: OpenVisit<Visitor>,
}

impl Access<Api> for SignOn {
    type Scope = SignOnVisit;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        let visit = Open(self.0).admit(api, call).await?;
        let sealed = SessionCookie::of_sign_on(&api.public_url).read(&call.headers).map(str::to_owned);
        Ok(SignOnVisit { sealed, visit })
    }

    fn describe(&self) -> AccessDoc {
        self.0.describe()
    }
}

/// The access to a GET that starts something, such as a redirect to a provider. `A` admits the caller. The
/// handler can start the action only if the browser came from one of our own pages, so that another site
/// can't start it in a user's browser.
#[derive(Clone, Copy, Debug)]
pub struct Begins<A>(pub A);

/// A request that may start something.
#[derive(Debug)]
pub struct Beginning<V> {
    pub visit: V,
    /// `None` if the browser came from another site, or the address was typed.
    pub from: Option<OurPage>,
}

/// The proof that the browser came from one of our pages. Only the gate creates it.
#[derive(Debug)]
pub struct OurPage(());

impl<A: Access<Api>> Access<Api> for Begins<A> {
    type Scope = Beginning<A::Scope>;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        let visit = self.0.admit(api, call).await?;
        let is_ours = origins::is_from_our_page(&call.headers, &api.public_url);
        Ok(Beginning { visit, from: is_ours.then_some(OurPage(())) })
    }

    fn describe(&self) -> AccessDoc {
        self.0.describe()
    }
}

/// The access of a signed-in user to a pending connection.
#[derive(Clone, Copy, Debug)]
pub struct Confirms<A>(pub Browser<A>);

/// A request about a pending connection.
#[derive(Clone, Debug)]
pub struct ConfirmVisit<S> {
    pub visit: Visit<S>,
    /// The pending connection, if it belongs to this user.
    pub pending: Option<PendingConnection>,
}

impl<A: Access<Api>> Access<Api> for Confirms<A> {
    type Scope = ConfirmVisit<A::Scope>;

    async fn admit(&self, api: &Api, call: &mut Call) -> Result<Self::Scope, Error> {
        let visit = self.0.admit(api, call).await?;
        let user_id = visit.person.session().user_id;
        let pending = pending_connection(api, call).filter(|pending| pending.is_for(user_id));
        Ok(ConfirmVisit { visit, pending })
    }

    fn describe(&self) -> AccessDoc {
        self.0.describe()
    }
}

/// Returns the pending connection in this browser's cookie.
fn pending_connection(api: &Api, call: &Call) -> Option<PendingConnection> {
    let cookie = SessionCookie::of_connection(&api.public_url).read(&call.headers)?;
    PendingConnection::open(&api.accounts, cookie)
}

/// Authenticates a call by its cookie, for later checks that need its caller.
///
/// # Errors
/// 401 without a cookie, or if its session isn't live.
fn sign_in_by_cookie<'a>(api: &'a Api, call: &'a mut Call) -> BoxFuture<'a, Result<Session, Error>> {
    Box::pin(async move {
        let stamp = api.feed.epochs.stamp();
        let cookie = SessionCookie::new(&api.public_url).read(&call.headers);
        let cookie = cookie.ok_or(Code::MissingCredentials)?;
        let (user_id, id) = live_session(api, cookie, TokenKind::Browser).await?;
        call.caller = user_id.to_string();
        call.credential = Credential::session(id, user_id, TokenKind::Browser, stamp);
        Ok(Session { id, user_id })
    })
}
