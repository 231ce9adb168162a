//! The table of routes: one row per endpoint, in the order of the contract's pages
//! (docs/contract/README.md#pages).
//!
//! A row has an access, and the handler takes the scope that this access returns. A handler that needs more
//! than its row checks doesn't compile.

use http::Method;

use crate::creation::creation;
use crate::gate::{
    Bearer, KeyAction, ModelCalls, Models, OneModel, Org, OrgBudget, OrgDelivery, OrgInPerson, OrgInvitation,
    OrgInvoice, OrgMember, OrgPayment, OrgWebhook, OwnConnection, OwnPasskey, OwnSession, Person, Project,
    ProjectMember, Public, Service, Session, TokenCounts,
};
use crate::{
    Api, api, auth, billing, chat, completions, embeddings, messages, models, openapi, organizations, pages,
    responses, service, well_known,
};
use gateway::Operation;
use kernel::error::{Code, Error};
use tenants::access::KeyKind;
use tenants::roles::{OrganizationAction, ProjectAction};
use web::body_limit::{BodyLimit, MAX_FORM_BYTES};
use web::route::{ErrorShape, Listener, route};
use web::server::{BoundListeners, RunningListeners};
use webhooks::access::WebhookAction;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// The maximum number of bytes in the body of a management call.
const MAX_MANAGEMENT_BODY_BYTES: usize = 256 * 1024;
/// The maximum number of bytes in the body of a model call.
const MAX_MODEL_CALL_BODY_BYTES: usize = 16 * 1024 * 1024;
/// The maximum number of bytes in a body on the service listener.
const MAX_SERVICE_BODY_BYTES: usize = 1024 * 1024;

/// A row of the table.
pub type Route = web::route::Route<Api>;

pub use web::server::Dispatcher;

/// Returns the dispatcher of a listener, without the console.
pub fn dispatcher(api: &Api, listener: Listener) -> Dispatcher {
    dispatcher_of(api, &table(), listener)
}

/// Returns the dispatcher of a listener for these routes. It is here, and not where the routes are put together, so
/// that the path of a request is compiled once.
pub fn dispatcher_of(api: &Api, routes: &[Route], listener: Listener) -> Dispatcher {
    Dispatcher::new(api, routes, listener)
}

/// Starts both listeners with these routes; here for the same reason.
pub fn serve(listeners: BoundListeners, api: &Api, routes: &[Route]) -> RunningListeners {
    listeners.serve(api, routes)
}

/// Returns the whole table.
pub fn table() -> Vec<Route> {
    [public_routes(), service_routes(), shared_routes()].concat()
}

#[rustfmt::skip]
#[allow(clippy::too_many_lines, reason = "a table: one row an endpoint")]
fn public_routes() -> Vec<Route> {
    use OrganizationAction::{
        Delete, InviteMembers, ManageBilling, ManageProjects, ManageWebhooks, Modify, View, ViewAuditLog, ViewBilling,
        ViewMembers,
    };
    use ProjectAction::{ManageApiKeys, ManageMembers, ViewUsage};
    vec![
        // Authentication: docs/contract/accounts.md
        route(POST, "/v1/auth/register",      Public::Register,      auth::register),
        route(POST, "/v1/auth/verify-email",  Public::Login,         auth::verify_email),
        route(POST, "/v1/auth/resend-verification", Session::Management, auth::resend_verification),
        route(POST, "/v1/auth/login",         Public::Login,         auth::login),
        route(POST, "/v1/auth/refresh-token", Session::RefreshToken, auth::refresh_token),
        route(POST, "/v1/auth/forgot-password", Public::Login,        auth::forgot_password),
        route(POST, "/v1/auth/reset-password",  Public::Login,        auth::reset_password),
        route(POST, "/v1/auth/change-password", Session::Password,    auth::change_password),
        route(POST, "/v1/auth/change-email",  Session::Password,     auth::change_email),
        route(GET, "/v1/auth/me",            Session::AccessToken,  auth::me),
        route(PUT, "/v1/auth/me",            Session::Management,   auth::me::update),
        route(POST, "/v1/auth/logout",        Session::AccessToken,  auth::logout),
        route(GET, "/v1/auth/sessions",      Session::Management,   auth::sessions::list),
        route(DELETE, "/v1/auth/sessions",   Session::Management,   auth::sessions::delete_all),
        route(DELETE, "/v1/auth/sessions/{session_id}", OwnSession,  auth::sessions::delete),
        route(GET, "/v1/auth/second-factor", Session::Management,   auth::second_factor::read),
        route(POST, "/v1/auth/totp",          Session::Fresh,        auth::totp::create),
        route(POST, "/v1/auth/totp/confirm",  Session::Fresh,        auth::totp::confirm),
        route(DELETE, "/v1/auth/totp",       Session::Fresh,        auth::totp::delete_all),
        route(POST, "/v1/auth/recovery-codes", Session::Fresh,       auth::recovery_codes::create),
        route(GET, "/v1/auth/passkeys",       Session::Management,   auth::passkeys::list),
        route(POST, "/v1/auth/passkeys/options", Session::Fresh,     auth::passkeys::options::create),
        route(POST, "/v1/auth/passkeys",      Session::Fresh,        auth::passkeys::create),
        route(PUT, "/v1/auth/passkeys/{passkey_id}", OwnPasskey::Renamed, auth::passkeys::update),
        route(DELETE, "/v1/auth/passkeys/{passkey_id}", OwnPasskey::Removed, auth::passkeys::delete),
        route(POST, "/v1/auth/passkey-login/options", Public::Login, auth::passkey_login::options::create),
        route(POST, "/v1/auth/passkey-login", Public::Login,         auth::passkey_login),
        route(POST, "/v1/auth/reauthenticate/options", Session::Management, auth::reauthenticate::options::create),
        route(POST, "/v1/auth/reauthenticate", Session::Password,    auth::reauthenticate),
        route(GET, "/v1/auth/providers",     Public::Unlimited,     auth::providers::list),
        route(GET, "/v1/auth/connections",   Session::Management,   auth::connections::list),
        route(DELETE, "/v1/auth/connections/{connection_id}", OwnConnection, auth::connections::delete),
        // Organizations: docs/contract/organizations.md
        creation("/v1/organizations",              Person,    organizations::create),
        route(GET, "/v1/organizations",                   Bearer { with: KeyKind::Unrestricted }, organizations::list),
        route(GET, "/v1/organizations/{organization_id}", Org(View), organizations::read),
        route(PUT, "/v1/organizations/{organization_id}", Org(Modify), organizations::update),
        route(DELETE, "/v1/organizations/{organization_id}", Org(Delete), organizations::delete),
        creation("/v1/organizations/{organization_id}/invitations",
             Org(InviteMembers), organizations::invitations::create),
        route(GET, "/v1/organizations/{organization_id}/invitations", Org(InviteMembers), organizations::invitations::list),
        route(DELETE, "/v1/organizations/{organization_id}/invitations/{invitation_id}",
             OrgInvitation, organizations::invitations::delete),
        creation("/v1/organizations/{organization_id}/invitations/{invitation_id}/resend",
             OrgInvitation, organizations::invitations::resend),
        route(GET, "/v1/organizations/{organization_id}/members", Org(ViewMembers), organizations::members::list),
        route(PUT, "/v1/organizations/{organization_id}/members/{member_id}",
             OrgMember::Managed, organizations::members::update),
        route(DELETE, "/v1/organizations/{organization_id}/members/{member_id}",
               OrgMember::ManagedOrLeaving, organizations::members::delete),
        route(GET, "/v1/organizations/{organization_id}/audit-log", Org(ViewAuditLog), organizations::audit_log::list),
        // Projects: docs/contract/projects.md
        creation("/v1/organizations/{organization_id}/projects",  Org(ManageProjects), organizations::projects::create),
        route(GET, "/v1/organizations/{organization_id}/projects", Org(View),           organizations::projects::list),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::View), organizations::projects::read),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::Modify), organizations::projects::update),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}",
               Project::to(ProjectAction::Delete), organizations::projects::delete),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ManageMembers), organizations::projects::members::create),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ProjectAction::ViewMembers), organizations::projects::members::list),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
             ProjectMember::Managed, organizations::projects::members::update),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
               ProjectMember::ManagedOrLeaving, organizations::projects::members::delete),
        // API keys: docs/contract/api-keys.md
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), organizations::projects::api_keys::create),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), organizations::projects::api_keys::list),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Read, organizations::projects::api_keys::read),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Update, organizations::projects::api_keys::update),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Delete, organizations::projects::api_keys::delete),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
             KeyAction::Rotate, organizations::projects::api_keys::rotate),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation",
             KeyAction::EndRotation, organizations::projects::api_keys::end_rotation),
        // Billing and usage: docs/contract/billing.md, docs/contract/usage.md
        route(GET, "/v1/organizations/{organization_id}/billing/summary", Org(ViewBilling), organizations::billing::summary),
        route(GET, "/v1/organizations/{organization_id}/billing/invoices",
             Org(ViewBilling), organizations::billing::invoices::list),
        route(GET, "/v1/organizations/{organization_id}/billing/invoices/{invoice_id}",
             OrgInvoice(ViewBilling), organizations::billing::invoices::read),
        route(GET, "/v1/organizations/{organization_id}/billing/credits", Org(ViewBilling), organizations::billing::credits::list),
        route(GET, "/v1/organizations/{organization_id}/billing/movements",
             Org(ViewBilling), organizations::billing::movements::list),
        route(GET, "/v1/organizations/{organization_id}/billing/export", Org(ViewBilling), organizations::billing::export),
        creation("/v1/organizations/{organization_id}/billing/budgets",
             Org(ManageBilling), organizations::billing::budgets::create),
        route(GET, "/v1/organizations/{organization_id}/billing/budgets",
             Org(ViewBilling), organizations::billing::budgets::list),
        route(GET, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ViewBilling), organizations::billing::budgets::read),
        route(PUT, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ManageBilling), organizations::billing::budgets::update),
        route(DELETE, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ManageBilling), organizations::billing::budgets::delete),
        route(GET, "/v1/organizations/{organization_id}/billing/balance-alert",
             Org(ViewBilling), organizations::billing::balance_alert::read),
        route(PUT, "/v1/organizations/{organization_id}/billing/balance-alert",
             Org(ManageBilling), organizations::billing::balance_alert::update),
        // Payments: docs/contract/payments.md
        creation("/v1/organizations/{organization_id}/billing/payments",
             OrgInPerson(ManageBilling), organizations::billing::payments::create),
        route(GET, "/v1/organizations/{organization_id}/billing/payments",
             Org(ViewBilling), organizations::billing::payments::list),
        route(GET, "/v1/organizations/{organization_id}/billing/payments/{payment_id}",
             OrgPayment(ViewBilling), organizations::billing::payments::read),
        route(PUT, "/v1/organizations/{organization_id}/billing/payment-method",
             OrgInPerson(ManageBilling), organizations::billing::payment_method::update),
        route(DELETE, "/v1/organizations/{organization_id}/billing/payment-method",
               OrgInPerson(ManageBilling), organizations::billing::payment_method::delete_all),
        route(GET, "/v1/organizations/{organization_id}/billing/auto-top-up",
             Org(ViewBilling), organizations::billing::auto_top_up::read),
        route(PUT, "/v1/organizations/{organization_id}/billing/auto-top-up",
             OrgInPerson(ManageBilling), organizations::billing::auto_top_up::update),
        route(POST, "/v1/billing/stripe/events", Public::Unlimited, billing::stripe::events::create),
        route(GET, "/v1/organizations/{organization_id}/limits", Org(View), organizations::limits::read),
        route(GET, "/v1/organizations/{organization_id}/billing/usage", Org(ViewBilling), organizations::billing::usage),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/usage",
             Project { action: ViewUsage, with: KeyKind::Any }, organizations::projects::usage::read),
        route(GET, "/v1/billing/pricing", Bearer { with: KeyKind::Any }, billing::pricing),
        // Webhooks: docs/contract/webhooks.md
        creation("/v1/organizations/{organization_id}/webhooks", Org(ManageWebhooks), organizations::webhooks::create),
        route(GET, "/v1/organizations/{organization_id}/webhooks", Org(ViewBilling), organizations::webhooks::list),
        route(GET, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
             OrgWebhook(WebhookAction::Read), organizations::webhooks::read),
        route(PUT, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
             OrgWebhook(WebhookAction::Change), organizations::webhooks::update),
        route(DELETE, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
               OrgWebhook(WebhookAction::Change), organizations::webhooks::delete),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/rotate",
             OrgWebhook(WebhookAction::Change), organizations::webhooks::rotate),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/test",
             OrgWebhook(WebhookAction::Change), organizations::webhooks::test),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/redeliver",
             OrgWebhook(WebhookAction::Change), organizations::webhooks::redeliver),
        route(GET, "/v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries",
             OrgWebhook(WebhookAction::Read), organizations::webhooks::deliveries::list),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
             OrgDelivery, organizations::webhooks::deliveries::redeliver),
        // Model catalog: docs/contract/models.md. Ids may hold slashes.
        route(GET, "/v1/models",             Models,   models::list),
        route(GET, "/v1/models/{*model_id}", OneModel, models::read),
        // Model calls: docs/contract/gateway.md
        route(POST, "/v1/chat/completions", ModelCalls(Operation::ChatCompletions), chat::completions::create),
        route(POST, "/v1/completions", ModelCalls(Operation::Completions), completions::create),
        route(POST, "/v1/embeddings",  ModelCalls(Operation::Embeddings),  embeddings::create),
        route(POST, "/v1/responses",   ModelCalls(Operation::Responses),   responses::create),
        route(POST, "/v1/messages",    ModelCalls(Operation::Messages),    messages::create),
        route(POST, "/v1/messages/count_tokens", TokenCounts, messages::count_tokens),
        route(GET, "/api/hello",       Public::Always, api::hello),
        // Pages behind mail links: docs/contract/pages.md
        route(GET, "/verify-email",   Public::Unlimited, pages::verify_email::read),
        route(POST, "/verify-email",   Public::Login,     pages::verify_email::create),
        route(GET, "/reset-password", Public::Unlimited, pages::reset_password::read),
        route(POST, "/reset-password", Public::Login,     pages::reset_password::create),
        route(GET, "/change-email",   Public::Unlimited, pages::change_email::read),
        route(POST, "/change-email",   Public::Login,     pages::change_email::create),
        route(GET, "/invitations/accept", Public::Unlimited, pages::invitations::accept::read),
        route(POST, "/invitations/accept", Public::Login,     pages::invitations::accept::create),
        // Machine-readable documents: docs/contract/README.md#openapi, docs/contract/accounts.md#signing-keys
        route(GET, "/openapi.json",          Public::Always,    openapi::read),
        route(GET, "/docs",                  Public::Always,    pages::docs::list),
        route(GET, "/docs/{subject}",        Public::Always,    pages::docs::read),
        route(GET, "/.well-known/jwks.json", Public::Unlimited, well_known::jwks),
    ]
}

#[rustfmt::skip]
fn service_routes() -> Vec<Route> {
    let routes = [
        // Service listener: docs/contract/service.md
        route(POST, "/service/v1/authorize", Service::Calls, service::authorize),
        route(GET, "/service/v1/forward-auth", Service::Proxied, service::forward_auth),
        route(POST, "/service/v1/usage",     Service::Calls, service::usage),
        route(POST, "/service/v1/reservations/{reservation_id}/extend", Service::Calls, service::reservations::extend),
        route(DELETE, "/service/v1/reservations/{reservation_id}", Service::Calls, service::reservations::delete),
        route(GET, "/metrics",              Service::Watching, service::metrics),
    ];
    routes.map(|route| route.on(Listener::Service)).to_vec()
}

#[rustfmt::skip]
fn shared_routes() -> Vec<Route> {
    let routes = [
        route(GET, "/healthz", Public::Always, service::healthz),
        route(GET, "/readyz",  Public::Always, service::readyz),
    ];
    routes.map(|route| route.on(Listener::Both)).to_vec()
}

/// The paths of model calls.
const MODEL_CALLS: [&str; 5] =
    ["/v1/chat", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"];
/// The path of the model catalog, whose answers have no envelope, as the SDKs of model providers read them.
const MODELS: &str = "/v1/models";
/// The methods of Gemini's API that have a body.
const GEMINI_METHODS: [&str; 7] = [
    "generateContent",
    "streamGenerateContent",
    "embedContent",
    "batchEmbedContents",
    "countTokens",
    "predict",
    "batchGenerateContent",
];
/// The path of messages, whose errors have the form of Anthropic's API.
const MESSAGES: &str = "/v1/messages";
/// The paths of pages for people.
const PAGES: [&str; 6] =
    ["/verify-email", "/reset-password", "/change-email", "/invitations/accept", "/docs", "/console"];

/// The paths of management, whose answers are in the envelope.
const MANAGEMENT: [&str; 3] = ["/v1/auth", "/v1/organizations", "/v1/billing"];

/// Returns the format of errors under this path, including paths without a route: in the envelope for management. All others
/// below `/v1/` are read by the SDKs of model providers (docs/contract/README.md#answers).
pub fn error_shape(path: &str) -> ErrorShape {
    if PAGES.into_iter().any(|page| is_below(path, page)) {
        ErrorShape::Page
    } else if is_below(path, MESSAGES) {
        ErrorShape::Anthropic
    } else if MANAGEMENT.into_iter().any(|root| is_below(path, root)) {
        ErrorShape::Enveloped
    } else {
        ErrorShape::Bare
    }
}

/// Returns `true` if a path is this page, or below it.
fn is_below(path: &str, page: &str) -> bool {
    path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` if a path belongs to model calls.
pub fn is_model_call(path: &str) -> bool {
    MODEL_CALLS.into_iter().any(|page| is_below(path, page))
}

/// Returns `true` if a path belongs to model calls or to the catalog.
pub fn is_model_path(path: &str) -> bool {
    is_model_call(path) || is_below(path, MODELS)
}

/// Returns the error of a request without a route. A request in the form of Gemini's API, whose SDKs put the
/// method behind a colon, gets a hint about the supported API.
pub fn no_route(code: Code, method: &Method, path: &str) -> Error {
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_gemini = method == POST
        && last.rsplit_once(':').is_some_and(|(_, method)| GEMINI_METHODS.contains(&method))
        || path.starts_with("/v1beta/");
    if !is_gemini {
        return code.into();
    }
    Error::new(Code::UnknownPath).message(
        "Gemini's API isn't supported. Call `POST /v1/chat/completions` in OpenAI's format with the same key.",
    )
}

/// Returns the limits of a body under this path.
pub fn body_limit(path: &str) -> BodyLimit {
    if path.starts_with("/service/") {
        BodyLimit::service(MAX_SERVICE_BODY_BYTES)
    } else if path.starts_with("/v1/auth/") {
        BodyLimit::public(MAX_FORM_BYTES)
    } else if is_model_call(path) {
        BodyLimit::model_call(MAX_MODEL_CALL_BODY_BYTES)
    } else {
        BodyLimit::public(MAX_MANAGEMENT_BODY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn body_limit_follows_the_kind_of_route() {
        for route in table() {
            let limit = body_limit(route.path);
            let is_model_call = route.access.scheme == Some("modelKey");
            let expected = match route.listener {
                Listener::Service if route.path.starts_with("/service/") => 1024 * 1024,
                _ if route.path.starts_with("/v1/auth/") => 16 * 1024,
                _ if is_model_call => 16 * 1024 * 1024,
                _ => 256 * 1024,
            };
            assert_eq!(limit.max_bytes, expected, "{route:?}");
            let is_short = limit.timeout <= Duration::from_secs(10);
            assert_eq!(is_short, expected < 1024 * 1024, "{route:?}");
        }
        assert_eq!(BodyLimit::form().max_bytes, 16 * 1024);
    }
}
