//! THE TABLE: one row an endpoint, in the order of the pages of the contract (docs/contract/README.md#pages).
//!
//! A row can't be written without its access, and the handler's scope is the one that this access makes, so a handler
//! that needs more than its row asks for doesn't compile.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Method, Response};
use schemars::SchemaGenerator;
use serde_json::Value;

use crate::api::{auth, billing, models, organizations};
use crate::app::App;
use crate::gate::{
    self, Access, AccessDoc, Bearer, Call, KeyAction, Models, OneModel, OneReservation, Org, OrgInvoice,
    OrgMember, Person, Project, ProjectMember, Proxy, Public, Service, Session,
};
use crate::input::{Description, Input};
use crate::pages;
use crate::reply::{Body, Reply};
use crate::service;
use kernel::error::Error;
use tenants::access::KeyKind;
use tenants::roles::{OrganizationAction, ProjectAction};

/// Which of the two listeners a route is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// For people and their programs.
    Public,
    /// For inference servers; its own port and bearer secret.
    Service,
    /// On both.
    Both,
}

/// One endpoint.
#[derive(Clone)]
pub struct Route {
    /// GET, POST …
    pub method: Method,
    /// With `{parameters}`.
    pub path: &'static str,
    /// What the gate asks for, in words.
    pub access: AccessDoc,
    /// Where it is served.
    pub listener: Listener,
    /// The handler's Rust path, from the crate's root: the law of the tree ties it to the path.
    pub handler: &'static str,
    /// What it takes, for the OpenAPI document.
    pub input: fn() -> Description,
    /// What it answers, for the OpenAPI document.
    pub reply: fn(&mut SchemaGenerator) -> Value,
    /// What its answer's body is.
    pub content_type: &'static str,
    /// What it is on demand.
    pub other_content_type: Option<&'static str>,
    endpoint: Endpoint,
}

type Endpoint = Arc<dyn Fn(App, Call) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync>;

/// What came of a call.
#[derive(Debug)]
pub struct Outcome {
    /// The response, or the error to be rendered.
    pub result: Result<Response<Body>, Error>,
    /// Who called, for the log; empty when unknown.
    pub who: String,
}

/// The whole table.
pub fn table() -> Vec<Route> {
    [public_routes(), service_routes(), shared_routes()].concat()
}

#[rustfmt::skip]
#[allow(clippy::too_many_lines, reason = "a table: one row an endpoint")]
fn public_routes() -> Vec<Route> {
    use OrganizationAction::{Delete, InviteMembers, ManageProjects, Modify, View, ViewBilling, ViewMembers};
    use ProjectAction::{ManageApiKeys, ManageMembers, ViewUsage};
    vec![
        // Authentication: docs/contract/accounts.md
        post("/v1/auth/register",      Public::Register,      auth::register),
        post("/v1/auth/verify-email",  Public::Login,         auth::verify_email),
        post("/v1/auth/login",         Public::Login,         auth::login),
        post("/v1/auth/refresh-token", Session::RefreshToken, auth::refresh_token),
        post("/v1/auth/forgot-password", Public::Login,        auth::forgot_password),
        post("/v1/auth/reset-password",  Public::Login,        auth::reset_password),
        post("/v1/auth/change-password", Session::Password,    auth::change_password),
        get ("/v1/auth/me",            Session::AccessToken,  auth::me),
        post("/v1/auth/logout",        Session::AccessToken,  auth::logout),
        // Organizations: docs/contract/organizations.md
        post("/v1/organizations",                   Person,    organizations::create),
        get ("/v1/organizations",                   Bearer { with: KeyKind::Unrestricted }, organizations::list),
        get ("/v1/organizations/{organization_id}", Org(View), organizations::read),
        put ("/v1/organizations/{organization_id}", Org(Modify), organizations::update),
        delete("/v1/organizations/{organization_id}", Org(Delete), organizations::delete),
        post("/v1/organizations/{organization_id}/invitations",
             Org(InviteMembers), organizations::invitations::create),
        get ("/v1/organizations/{organization_id}/members", Org(ViewMembers), organizations::members::list),
        put ("/v1/organizations/{organization_id}/members/{member_id}",
             OrgMember::Managed, organizations::members::update),
        delete("/v1/organizations/{organization_id}/members/{member_id}",
               OrgMember::ManagedOrLeaving, organizations::members::delete),
        // Projects: docs/contract/projects.md
        post("/v1/organizations/{organization_id}/projects", Org(ManageProjects), organizations::projects::create),
        get ("/v1/organizations/{organization_id}/projects", Org(View),           organizations::projects::list),
        get ("/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::View), organizations::projects::read),
        put ("/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::Modify), organizations::projects::update),
        delete("/v1/organizations/{organization_id}/projects/{project_id}",
               Project::to(ProjectAction::Delete), organizations::projects::delete),
        post("/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ManageMembers), organizations::projects::members::create),
        get ("/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ProjectAction::ViewMembers), organizations::projects::members::list),
        put ("/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
             ProjectMember::Managed, organizations::projects::members::update),
        delete("/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
               ProjectMember::ManagedOrLeaving, organizations::projects::members::delete),
        // API keys: docs/contract/api-keys.md
        post("/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), organizations::projects::api_keys::create),
        get ("/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), organizations::projects::api_keys::list),
        get ("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Read, organizations::projects::api_keys::read),
        put ("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Update, organizations::projects::api_keys::update),
        delete("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Delete, organizations::projects::api_keys::delete),
        post("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
             KeyAction::Rotate, organizations::projects::api_keys::rotate),
        // Billing and usage: docs/contract/billing.md, docs/contract/usage.md
        get ("/v1/organizations/{organization_id}/billing/summary", Org(ViewBilling), organizations::billing::summary),
        get ("/v1/organizations/{organization_id}/billing/invoices",
             Org(ViewBilling), organizations::billing::invoices::list),
        get ("/v1/organizations/{organization_id}/billing/invoices/{invoice_id}",
             OrgInvoice(ViewBilling), organizations::billing::invoices::read),
        get ("/v1/organizations/{organization_id}/billing/usage", Org(ViewBilling), organizations::billing::usage),
        get ("/v1/organizations/{organization_id}/projects/{project_id}/usage",
             Project { action: ViewUsage, with: KeyKind::Any }, organizations::projects::usage::read),
        get ("/v1/billing/pricing", Bearer { with: KeyKind::Any }, billing::pricing),
        // Model catalog: docs/contract/models.md. Ids may hold slashes.
        get ("/v1/models",             Models,   models::list),
        get ("/v1/models/{*model_id}", OneModel, models::read),
        // What people meet behind the links of mails: docs/contract/pages.md
        get ("/verify-email",   Public::Unlimited, pages::verify_email::read),
        post("/verify-email",   Public::Login,     pages::verify_email::create),
        get ("/reset-password", Public::Unlimited, pages::reset_password::read),
        post("/reset-password", Public::Login,     pages::reset_password::create),
        get ("/invitations/accept", Public::Unlimited, pages::invitations::accept::read),
        post("/invitations/accept", Public::Login,     pages::invitations::accept::create),
        // Documents for machines: docs/contract/README.md#openapi, docs/contract/accounts.md#signing-keys
        get ("/openapi.json",          Public::Always,    crate::openapi::read),
        get ("/.well-known/jwks.json", Public::Unlimited, crate::api::well_known::jwks),
    ]
}

#[rustfmt::skip]
fn service_routes() -> Vec<Route> {
    let mut routes = vec![
        // Service listener: docs/contract/service.md
        post("/service/v1/authorize", Service::Calls, service::authorize),
        get ("/service/v1/forward-auth", Proxy, service::forward_auth),
        post("/service/v1/usage",     Service::Calls, service::usage),
        post("/service/v1/reservations/{reservation_id}/extend", OneReservation, service::reservations::extend),
        delete("/service/v1/reservations/{reservation_id}", OneReservation, service::reservations::delete),
        get ("/metrics",              Service::Watching, service::metrics),
    ];
    for route in &mut routes {
        route.listener = Listener::Service;
    }
    routes
}

#[rustfmt::skip]
fn shared_routes() -> Vec<Route> {
    let mut routes = vec![
        get("/healthz", Public::Always, service::healthz),
        get("/readyz",  Public::Always, service::readyz),
    ];
    for route in &mut routes {
        route.listener = Listener::Both;
    }
    routes
}

impl Route {
    /// How its errors are written.
    pub fn error_shape(&self) -> ErrorShape {
        error_shape(self.path)
    }

    /// Lets the caller in, reads the input, runs the handler.
    pub fn call(&self, app: App, call: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        (self.endpoint)(app, call)
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ({})", self.method, self.path, self.access.text)
    }
}

/// How the errors of a path are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorShape {
    /// In the envelope: everything below `/v1/` but the model catalog (docs/contract/README.md#answers).
    Enveloped,
    /// `error` alone.
    Bare,
    /// HTML, for people.
    Page,
}

/// Where people are, and not programs.
const PAGES: [&str; 3] = ["/verify-email", "/reset-password", "/invitations/accept"];

/// How errors under this path are written, also where there is no route.
pub fn error_shape(path: &str) -> ErrorShape {
    let below =
        |page: &str| path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if PAGES.into_iter().any(below) {
        ErrorShape::Page
    } else if path.starts_with("/v1/") && path != "/v1/models" && !path.starts_with("/v1/models/") {
        ErrorShape::Enveloped
    } else {
        ErrorShape::Bare
    }
}

fn get<H, A, I, O, F, R>(path: &'static str, access: A, handler: F) -> Route
where
    H: From<App> + Send + 'static,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send,
{
    route(Method::GET, path, access, handler)
}

fn post<H, A, I, O, F, R>(path: &'static str, access: A, handler: F) -> Route
where
    H: From<App> + Send + 'static,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send,
{
    route(Method::POST, path, access, handler)
}

fn put<H, A, I, O, F, R>(path: &'static str, access: A, handler: F) -> Route
where
    H: From<App> + Send + 'static,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send,
{
    route(Method::PUT, path, access, handler)
}

fn delete<H, A, I, O, F, R>(path: &'static str, access: A, handler: F) -> Route
where
    H: From<App> + Send + 'static,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send,
{
    route(Method::DELETE, path, access, handler)
}

fn route<H, A, I, O, F, R>(method: Method, path: &'static str, access: A, handler: F) -> Route
where
    H: From<App> + Send + 'static,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<O, Error>> + Send,
{
    let doc = access.describe();
    let access = Arc::new(access);
    Route {
        method,
        path,
        access: doc,
        listener: Listener::Public,
        handler: std::any::type_name::<F>().trim_start_matches("tollkeeper::"),
        input: I::describe,
        reply: O::schema,
        content_type: O::content_type(),
        other_content_type: O::other_content_type(),
        endpoint: Arc::new(move |app, mut call| {
            let access = Arc::clone(&access);
            Box::pin(async move {
                let result = run(access.as_ref(), handler, app, &mut call).await;
                Outcome { result, who: call.who }
            })
        }),
    }
}

async fn run<H, A, I, O, F, R>(
    access: &A,
    handler: F,
    app: App,
    call: &mut Call,
) -> Result<Response<Body>, Error>
where
    H: From<App>,
    A: Access,
    I: Input,
    O: Reply,
    F: Fn(H, A::Scope, I) -> R,
    R: Future<Output = Result<O, Error>>,
{
    let scope = access.admit(&app, call).await?;
    let input = I::read(&app, call).await?;
    if I::WAITS {
        gate::check_again(&app, call).await?;
    }
    handler(app.into(), scope, input).await?.into_response()
}

#[cfg(test)]
pub(crate) mod tests {
    //! A route for the tests of others.
    use super::{App, Error, Public, Route, get};
    use crate::gate::Visitor;
    use crate::input::Nothing;
    use crate::reply::Bare;

    /// A route that is in no table, for the test of what becomes of a panic.
    pub fn panicking() -> Route {
        get("/v1/panicking", Public::Always, panics)
    }

    async fn panics(_: App, _: Visitor, _: Nothing) -> Result<Bare<String>, Error> {
        // Not at once: a handler has done something by then.
        tokio::task::yield_now().await;
        panic!("on purpose");
    }
}
