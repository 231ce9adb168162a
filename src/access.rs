//! The gate: from a bearer to a scope.
//!
//! Every route names its access; only this file makes scopes (their fields are private to it), so a handler that takes
//! one can't run unchecked. The order is that of decisions, section 3: 401, then 404, then 403; the body comes later.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Uri, header};

use crate::app::App;
use crate::catalog::Model;
use crate::config::Management;
use crate::error::{Code, Error};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId, RequestId, SessionId, UserId};
use crate::live::limiter::{self, Who};
use crate::roles::{
    OrganizationAction, OrganizationRole, ProjectAction, ProjectRole, effective_project_role,
};
use crate::rules::restrictions::{self, Permission};
use crate::secrets::Secret;
use crate::secrets::jwt::TokenKind;
use crate::store;
use crate::store::api_keys::LiveKey;

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
    /// Who it comes from, trusted proxies looked through.
    pub address: IpAddr,
    /// This request's own id.
    pub request_id: RequestId,
    /// The body, not read yet.
    pub body: Body,
    /// Who calls, once known: for the log.
    pub who: String,
}

impl Call {
    /// A path parameter; the empty text when there is none of this name.
    pub fn path(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The bearer value of the header `Authorization` (RFC 6750, section 2.1).
    fn bearer(&self) -> Result<&str, Error> {
        let mut values = self.headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Err(Code::MissingCredentials.into());
        };
        if values.next().is_some() {
            return Err(
                Error::new(Code::MissingCredentials).message("Send one `Authorization` header, not several.")
            );
        }
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
    /// A user's or a key's id, `anonymous`, or `operator` for the command line.
    pub actor: String,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request.
    pub request_id: Option<RequestId>,
}

impl Trail {
    fn of(call: &Call) -> Self {
        let actor = if call.who.is_empty() { "anonymous".to_owned() } else { call.who.clone() };
        Self { actor, address: Some(call.address), request_id: Some(call.request_id) }
    }

    /// Somebody at the command line.
    pub fn operator() -> Self {
        Self { actor: "operator".to_owned(), address: None, request_id: None }
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

// ---- Public routes ---------------------------------------------------------------------------------------------------

/// Open to everybody, and answered even before the database is ready.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Access for Open {
    type Scope = ();
    async fn admit(&self, _: &App, _: &mut Call) -> Result<(), Error> {
        Ok(())
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc { before_ready: true, ..AccessDoc::new(None, "public") }
    }
}

/// Open to everybody; an address that calls too often has to wait (decisions, section 2).
#[derive(Clone, Copy, Debug)]
pub enum Public {
    /// Registration: `limits.registrations_per_minute`.
    Register,
    /// Login and what is as cheap to guess at: `limits.logins_per_minute`.
    Login,
    /// No limit of its own.
    Unlimited,
}

/// Somebody without a credential.
#[derive(Clone, Debug)]
pub struct Visitor {
    trail: Trail,
}

impl Visitor {
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Access for Public {
    type Scope = Visitor;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<Visitor, Error> {
        let limits = &app.config.limits;
        let (scope, per_minute) = match self {
            Self::Register => ("register", limits.registrations_per_minute),
            Self::Login => ("login", limits.logins_per_minute),
            Self::Unlimited => return Ok(Visitor { trail: Trail::of(call) }),
        };
        if limits.enabled {
            let key = limiter::key_for(scope, Who::Address(call.address));
            app.limiter.check(key, per_minute, app.clock.now()).map_err(rate_limited)?;
        }
        Ok(Visitor { trail: Trail::of(call) })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(None, "public")
    }
}

// ---- Sessions --------------------------------------------------------------------------------------------------------

/// The authentication endpoints after login: one kind of token, no API keys (decisions, section 3, "bearer").
#[derive(Clone, Copy, Debug)]
pub enum Session {
    /// The refresh token.
    RefreshToken,
    /// The access token.
    AccessToken,
}

/// A person with a live session.
#[derive(Clone, Debug)]
pub struct SessionScope {
    user_id: UserId,
    session_id: SessionId,
    trail: Trail,
}

impl SessionScope {
    /// Whose session it is.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// Which session it is.
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Access for Session {
    type Scope = SessionScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<SessionScope, Error> {
        let kind = match self {
            Self::RefreshToken => TokenKind::Refresh,
            Self::AccessToken => TokenKind::Access,
        };
        let (user_id, session_id) = live_session(app, call.bearer()?, kind).await?;
        call.who = user_id.to_string();
        Ok(SessionScope { user_id, session_id, trail: Trail::of(call) })
    }
    fn describe(&self) -> AccessDoc {
        match self {
            Self::RefreshToken => AccessDoc::new(Some("refreshToken"), "refresh token"),
            Self::AccessToken => AccessDoc::new(Some("accessToken"), "access token"),
        }
    }
}

async fn live_session(app: &App, token: &str, kind: TokenKind) -> Result<(UserId, SessionId), Error> {
    let refused = match kind {
        TokenKind::Access => Code::InvalidAccessToken,
        TokenKind::Refresh => Code::InvalidRefreshToken,
    };
    let now = app.clock.now();
    let claims = app.signing_keys.verify(app, token, kind, now).await?.ok_or(refused)?;
    let mut tx = app.db.read().await?;
    match store::sessions::live(&mut tx, claims.sid, now).await? {
        Some(user_id) if user_id == claims.sub => Ok((user_id, claims.sid)),
        _ => Err(refused.into()),
    }
}

// ---- Callers ---------------------------------------------------------------------------------------------------------

/// Who calls: a person with an access token, or an API key that acts for the person who made it.
#[derive(Clone, Debug)]
enum Caller {
    Person(UserId),
    Key(Arc<LiveKey>),
}

impl Caller {
    /// Whose roles count.
    fn user_id(&self) -> UserId {
        match self {
            Self::Person(user_id) => *user_id,
            Self::Key(key) => key.created_by,
        }
    }

    /// Refuses a key outside the one organization, and the one project in it, that it belongs to.
    fn confine(&self, organization_id: OrganizationId, project_id: Option<ProjectId>) -> Result<(), Error> {
        match self {
            Self::Key(key)
                if key.organization_id != organization_id
                    || project_id.is_some_and(|id| id != key.project_id) =>
            {
                Err(Code::OutsideApiKeyScope.into())
            }
            _ => Ok(()),
        }
    }

    /// Narrows what API keys may manage (configuration `api_keys.management`).
    fn may_manage(&self, app: &App, call: &Call) -> Result<(), Error> {
        match (self, app.config.api_keys.management) {
            (Self::Person(_), _) | (Self::Key(_), Management::Full) => Ok(()),
            (Self::Key(_), Management::Read) if call.is_read() => Ok(()),
            (Self::Key(_), _) => Err(Code::ApiKeyManagementDisabled.into()),
        }
    }
}

/// An access token or an API key, its expiry, addresses and rate checked.
async fn caller(app: &App, call: &mut Call) -> Result<Caller, Error> {
    let bearer = call.bearer()?;
    if !bearer.starts_with(&app.config.api_keys.prefix) {
        // Boxed: an API key's call, the common one, is not made to carry what this needs.
        let (user_id, _) = Box::pin(live_session(app, bearer, TokenKind::Access)).await?;
        call.who = user_id.to_string();
        return Ok(Caller::Person(user_id));
    }
    let now = app.clock.now();
    let key = app.keyring.authenticate(app, bearer, now).await?;
    call.who = key.id.to_string();
    key.admit_address(Some(call.address))?;
    key.admit_rate(app, now)?;
    Ok(Caller::Key(key))
}

/// A caller of a management endpoint: limited as such.
async fn manager(app: &App, call: &mut Call) -> Result<Caller, Error> {
    let caller = caller(app, call).await?;
    let limits = &app.config.limits;
    if limits.enabled {
        let (scope, per_minute) = if call.is_read() {
            ("read", limits.reads_per_minute)
        } else {
            ("write", limits.writes_per_minute)
        };
        let key = limiter::key_for(scope, Who::Text(&call.who));
        app.limiter.check(key, per_minute, app.clock.now()).map_err(rate_limited)?;
    }
    Ok(caller)
}

fn rate_limited(limit: crate::error::RateLimit) -> Error {
    Error { rate_limit: Some(limit), ..Error::new(Code::RateLimited) }
}

/// Anybody with a valid credential.
#[derive(Clone, Copy, Debug)]
pub struct Anyone;

/// Somebody with a valid credential.
#[derive(Clone, Debug)]
pub struct CallerScope {
    caller: Caller,
}

impl CallerScope {
    /// Whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id()
    }
    /// The one organization that the caller is confined to, when it is an API key.
    pub fn only_organization(&self) -> Option<OrganizationId> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => Some(key.organization_id),
        }
    }
}

impl Access for Anyone {
    type Scope = CallerScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<CallerScope, Error> {
        let caller = manager(app, call).await?;
        caller.may_manage(app, call)?;
        Ok(CallerScope { caller })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), "access token or API key")
    }
}

/// A person: what lies outside every API key's own organization (decisions, section 8).
#[derive(Clone, Copy, Debug)]
pub struct Person;

/// A person with an access token.
#[derive(Clone, Debug)]
pub struct PersonScope {
    user_id: UserId,
    trail: Trail,
}

impl PersonScope {
    /// Who it is.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Access for Person {
    type Scope = PersonScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<PersonScope, Error> {
        match manager(app, call).await? {
            Caller::Person(user_id) => Ok(PersonScope { user_id, trail: Trail::of(call) }),
            Caller::Key(_) => Err(Code::OutsideApiKeyScope.into()),
        }
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("accessToken"), "access token (an API key: 403)")
    }
}

// ---- Organizations, projects and keys --------------------------------------------------------------------------------

/// An action on the organization in the path.
#[derive(Clone, Copy, Debug)]
pub struct Org(pub OrganizationAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct OrgScope {
    caller: Caller,
    organization_id: OrganizationId,
    role: OrganizationRole,
    trail: Trail,
}

impl OrgScope {
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id()
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    /// The caller's role in it.
    pub fn role(&self) -> OrganizationRole {
        self.role
    }
    /// The one project that the caller is confined to, when it is an API key.
    pub fn only_project(&self) -> Option<ProjectId> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => Some(key.project_id),
        }
    }
}

impl Access for Org {
    type Scope = OrgScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<OrgScope, Error> {
        let caller = manager(app, call).await?;
        let organization_id =
            OrganizationId::parse(call.path("organization_id")).ok_or(Code::OrganizationNotFound)?;
        let mut tx = app.db.read().await?;
        let role = store::organization_members::role(&mut tx, organization_id, caller.user_id())
            .await?
            .ok_or(Code::OrganizationNotFound)?;
        caller.confine(organization_id, None)?;
        caller.may_manage(app, call)?;
        let role = role.filter(|role| role.allows(self.0)).ok_or(Code::InsufficientRole)?;
        Ok(OrgScope { caller, organization_id, role, trail: Trail::of(call) })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("organization: {:?}", self.0))
    }
}

/// An action on the project in the path.
#[derive(Clone, Copy, Debug)]
pub struct Project(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct ProjectScope {
    caller: Caller,
    organization_id: OrganizationId,
    project_id: ProjectId,
    role: ProjectRole,
    trail: Trail,
}

impl ProjectScope {
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Whose roles count.
    pub fn user_id(&self) -> UserId {
        self.caller.user_id()
    }
    /// The tenant.
    pub fn organization_id(&self) -> OrganizationId {
        self.organization_id
    }
    /// The project.
    pub fn project_id(&self) -> ProjectId {
        self.project_id
    }
    /// The caller's effective role in it.
    pub fn role(&self) -> ProjectRole {
        self.role
    }
}

impl Access for Project {
    type Scope = ProjectScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ProjectScope, Error> {
        let caller = manager(app, call).await?;
        let may_manage = caller.may_manage(app, call);
        let named = Named {
            organization: call.path("organization_id"),
            project: call.path("project_id"),
            api_key: None,
            trail: Trail::of(call),
        };
        Ok(admit_project(self.0, &named, caller, may_manage, app).await?.0)
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}

/// What a path names inside an organization.
struct Named<'a> {
    organization: &'a str,
    project: &'a str,
    /// An API key, where the path has one.
    api_key: Option<&'a str>,
    trail: Trail,
}

/// Finds organization, project and, where one is named, key (404, from the outside in), then the role (403).
async fn admit_project(
    action: ProjectAction,
    named: &Named<'_>,
    caller: Caller,
    may_manage: Result<(), Error>,
    app: &App,
) -> Result<(ProjectScope, Option<ApiKeyId>), Error> {
    let organization_id = OrganizationId::parse(named.organization).ok_or(Code::OrganizationNotFound)?;
    let mut tx = app.db.read().await?;
    let organization_role = store::organization_members::role(&mut tx, organization_id, caller.user_id())
        .await?
        .ok_or(Code::OrganizationNotFound)?;
    let project_id = ProjectId::parse(named.project).ok_or(Code::ProjectNotFound)?;
    let standing = store::project_members::standing(&mut tx, organization_id, project_id, caller.user_id())
        .await?
        .ok_or(Code::ProjectNotFound)?;
    let api_key_id = match named.api_key {
        None => None,
        Some(text) => {
            let api_key_id = ApiKeyId::parse(text).ok_or(Code::ApiKeyNotFound)?;
            if !store::api_keys::exists(&mut tx, project_id, api_key_id).await? {
                return Err(Code::ApiKeyNotFound.into());
            }
            Some(api_key_id)
        }
    };
    caller.confine(organization_id, Some(project_id))?;
    may_manage?;
    let role = effective_project_role(organization_role, standing.role, standing.open_to_organization)
        .filter(|role| role.allows(action))
        .ok_or(Code::InsufficientRole)?;
    let trail = named.trail.clone();
    Ok((ProjectScope { caller, organization_id, project_id, role, trail }, api_key_id))
}

/// An action on the API key in the path.
#[derive(Clone, Copy, Debug)]
pub struct Key(pub ProjectAction);

/// The right to do it.
#[derive(Clone, Debug)]
pub struct KeyScope {
    project: ProjectScope,
    api_key_id: ApiKeyId,
}

impl KeyScope {
    /// The project that the key belongs to.
    pub fn project_id(&self) -> ProjectId {
        self.project.project_id
    }
    /// The key.
    pub fn api_key_id(&self) -> ApiKeyId {
        self.api_key_id
    }
}

impl Access for Key {
    type Scope = KeyScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<KeyScope, Error> {
        let caller = manager(app, call).await?;
        let may_manage = caller.may_manage(app, call);
        let named = Named {
            organization: call.path("organization_id"),
            project: call.path("project_id"),
            api_key: Some(call.path("key_id")),
            trail: Trail::of(call),
        };
        let (project, api_key_id) = admit_project(self.0, &named, caller, may_manage, app).await?;
        Ok(KeyScope { project, api_key_id: api_key_id.ok_or(Code::ApiKeyNotFound)? })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), format!("project: {:?}", self.0))
    }
}

// ---- Models ----------------------------------------------------------------------------------------------------------

/// The model catalog: an access token, or a key with the permission `models`.
#[derive(Clone, Copy, Debug)]
pub struct Models;

/// Somebody who may see models.
#[derive(Clone, Debug)]
pub struct ModelsScope {
    caller: Caller,
}

impl ModelsScope {
    /// The ids that the caller's key is restricted to.
    pub fn only(&self) -> Option<&[String]> {
        match &self.caller {
            Caller::Person(_) => None,
            Caller::Key(key) => key.models.as_deref(),
        }
    }
}

impl Access for Models {
    type Scope = ModelsScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ModelsScope, Error> {
        let caller = caller(app, call).await?;
        may_see_models(&caller)?;
        Ok(ModelsScope { caller })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("bearer"), "access token, or API key with permission `models`")
    }
}

fn may_see_models(caller: &Caller) -> Result<(), Error> {
    match caller {
        Caller::Key(key) => key.admit_permission(Permission::Models),
        Caller::Person(_) => Ok(()),
    }
}

/// The model in the path.
#[derive(Clone, Copy, Debug)]
pub struct OneModel;

/// A model that the caller may see.
#[derive(Clone, Debug)]
pub struct ModelScope {
    model: Arc<Model>,
}

impl ModelScope {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

impl Access for OneModel {
    type Scope = ModelScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ModelScope, Error> {
        let caller = caller(app, call).await?;
        let model = app.catalog.get(call.path("model_id")).ok_or(Code::ModelNotFound)?;
        may_see_models(&caller)?;
        if let Caller::Key(key) = &caller {
            key.admit_model(&model.id)?;
        }
        Ok(ModelScope { model: Arc::clone(model) })
    }
    fn describe(&self) -> AccessDoc {
        Models.describe()
    }
}

// ---- The service listener --------------------------------------------------------------------------------------------

/// An inference server with the service token (decisions, section 6).
#[derive(Clone, Copy, Debug)]
pub struct Service;

/// The right to use the service listener.
#[derive(Clone, Copy, Debug)]
pub struct ServiceScope(());

impl Access for Service {
    type Scope = ServiceScope;
    async fn admit(&self, app: &App, call: &mut Call) -> Result<ServiceScope, Error> {
        if app.service_token != Secret::new(call.bearer()?) {
            return Err(Code::InvalidServiceToken.into());
        }
        "service".clone_into(&mut call.who);
        Ok(ServiceScope(()))
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc::new(Some("serviceToken"), "service token")
    }
}

/// The address that a request comes from: the peer, or what trusted proxies say (decisions, section 4).
pub fn client_address(app: &App, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let trusted = &app.config.trusted_proxies;
    if trusted.is_empty() {
        return peer;
    }
    let hops = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    restrictions::client_address(peer, hops, trusted)
}
