//! The table of routes: one row per endpoint, in the order of the contract's pages
//! (docs/contract/README.md#pages).
//!
//! Each row has an access, and its handler takes the scope that this access returns. A handler that needs a
//! stronger scope doesn't compile.

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
use tenants::access::KeyKind;
use tenants::roles::{OrganizationAction, ProjectAction};
use web::route::Listener;
use web::server::{BoundListeners, RunningListeners};
use webhooks::access::WebhookAction;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

pub use crate::row::{Route, route};
pub use web::server::Dispatcher;

/// Returns the dispatcher of a listener, without the console.
pub fn dispatcher(api: &Api, listener: Listener) -> Dispatcher {
    dispatcher_of(api, &table(), listener)
}

/// Returns the dispatcher of a listener for these routes. It is in this crate, and not where the routes are
/// combined, so that the code of the request path is compiled only once.
pub fn dispatcher_of(api: &Api, routes: &[Route], listener: Listener) -> Dispatcher {
    Dispatcher::new(api, routes, listener)
}

/// Starts both listeners with these routes. It is in this crate for the same reason as [`dispatcher_of`].
pub fn serve(listeners: BoundListeners, api: &Api, routes: &[Route]) -> RunningListeners {
    listeners.serve(api, routes)
}

/// Returns the whole table.
pub fn table() -> Vec<Route> {
    [public_routes(), service_routes(), shared_routes()].concat()
}

#[rustfmt::skip]
#[allow(clippy::too_many_lines, reason = "a table with one row per endpoint")]
fn public_routes() -> Vec<Route> {
    use OrganizationAction::{
        Delete, InviteMembers, ManageBilling, ManageProjects, ManageWebhooks, Modify, View, ViewAuditLog, ViewBilling,
        ViewMembers,
    };
    use ProjectAction::{ManageApiKeys, ManageMembers, ViewUsage};
    use gateway::Operation::{ChatCompletions, Completions, Embeddings, Messages, Responses};
    use organizations::billing::{
        auto_top_up, balance_alert, budgets, credits, invoices, movements, payment_method, payments,
    };
    use organizations::projects::api_keys;
    use organizations::{audit_log, calls, invitations, limits, projects, webhooks};
    vec![
        // Authentication: docs/contract/accounts.md
        route(POST, "/v1/auth/register",      Public::Register,      auth::register, &auth::register::REGISTER),
        route(POST, "/v1/auth/verify-email",
             Public::Login, auth::verify_email, &auth::verify_email::VERIFY_EMAIL),
        route(POST, "/v1/auth/resend-verification",
             Session::Management, auth::resend_verification, &auth::resend_verification::RESEND_VERIFICATION),
        route(POST, "/v1/auth/login",         Public::Login,         auth::login, &auth::login::LOGIN),
        route(POST, "/v1/auth/refresh-token",
             Session::RefreshToken, auth::refresh_token, &auth::refresh_token::REFRESH_TOKEN),
        route(POST, "/v1/auth/forgot-password",
             Public::Login, auth::forgot_password, &auth::forgot_password::FORGOT_PASSWORD),
        route(POST, "/v1/auth/reset-password",
             Public::Login, auth::reset_password, &auth::reset_password::RESET_PASSWORD),
        route(POST, "/v1/auth/change-password",
             Session::Password, auth::change_password, &auth::change_password::CHANGE_PASSWORD),
        route(POST, "/v1/auth/change-email",
             Session::Password, auth::change_email, &auth::change_email::CHANGE_EMAIL),
        route(GET, "/v1/auth/me",            Session::AccessToken,  auth::me, &auth::me::ME),
        route(PUT, "/v1/auth/me",            Session::Management,   auth::me::update, &auth::me::UPDATE),
        route(POST, "/v1/auth/logout",        Session::AccessToken,  auth::logout, &auth::logout::LOGOUT),
        route(GET, "/v1/auth/sessions",      Session::Management,   auth::sessions::list, &auth::sessions::LIST),
        route(DELETE, "/v1/auth/sessions",
             Session::Management, auth::sessions::delete_all, &auth::sessions::DELETE_ALL),
        route(DELETE, "/v1/auth/sessions/{session_id}", OwnSession,  auth::sessions::delete, &auth::sessions::DELETE),
        route(GET, "/v1/auth/second-factor",
             Session::Management, auth::second_factor::read, &auth::second_factor::READ),
        route(POST, "/v1/auth/totp",          Session::Fresh,        auth::totp::create, &auth::totp::CREATE),
        route(POST, "/v1/auth/totp/confirm",  Session::Fresh,        auth::totp::confirm, &auth::totp::CONFIRM),
        route(DELETE, "/v1/auth/totp",       Session::Fresh,        auth::totp::delete_all, &auth::totp::DELETE_ALL),
        route(POST, "/v1/auth/recovery-codes",
             Session::Fresh, auth::recovery_codes::create, &auth::recovery_codes::CREATE),
        route(GET, "/v1/auth/passkeys",       Session::Management,   auth::passkeys::list, &auth::passkeys::LIST),
        route(POST, "/v1/auth/passkeys/options",
             Session::Fresh, auth::passkeys::options::create, &auth::passkeys::options::CREATE),
        route(POST, "/v1/auth/passkeys",      Session::Fresh,        auth::passkeys::create, &auth::passkeys::CREATE),
        route(PUT, "/v1/auth/passkeys/{passkey_id}",
             OwnPasskey::Renamed, auth::passkeys::update, &auth::passkeys::UPDATE),
        route(DELETE, "/v1/auth/passkeys/{passkey_id}",
             OwnPasskey::Removed, auth::passkeys::delete, &auth::passkeys::DELETE),
        route(POST, "/v1/auth/passkey-login/options",
             Public::Login, auth::passkey_login::options::create, &auth::passkey_login::options::CREATE),
        route(POST, "/v1/auth/passkey-login",
             Public::Login, auth::passkey_login, &auth::passkey_login::PASSKEY_LOGIN),
        route(POST, "/v1/auth/reauthenticate/options",
             Session::Management, auth::reauthenticate::options::create, &auth::reauthenticate::options::CREATE),
        route(POST, "/v1/auth/reauthenticate",
             Session::Password, auth::reauthenticate, &auth::reauthenticate::REAUTHENTICATE),
        route(GET, "/v1/auth/providers",     Public::Unlimited,     auth::providers::list, &auth::providers::LIST),
        route(GET, "/v1/auth/connections",
             Session::Management, auth::connections::list, &auth::connections::LIST),
        route(DELETE, "/v1/auth/connections/{connection_id}",
             OwnConnection, auth::connections::delete, &auth::connections::DELETE),
        // Organizations: docs/contract/organizations.md
        creation("/v1/organizations",              Person,    organizations::create, &organizations::CREATE),
        route(GET, "/v1/organizations",
             Bearer { with: KeyKind::Unrestricted }, organizations::list, &organizations::LIST),
        route(GET, "/v1/organizations/{organization_id}", Org(View), organizations::read, &organizations::READ),
        route(PUT, "/v1/organizations/{organization_id}", Org(Modify), organizations::update, &organizations::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}",
             Org(Delete), organizations::delete, &organizations::DELETE),
        creation("/v1/organizations/{organization_id}/invitations",
             Org(InviteMembers), invitations::create, &invitations::CREATE),
        route(GET, "/v1/organizations/{organization_id}/invitations",
             Org(InviteMembers), invitations::list, &invitations::LIST),
        route(DELETE, "/v1/organizations/{organization_id}/invitations/{invitation_id}",
             OrgInvitation, invitations::delete, &invitations::DELETE),
        creation("/v1/organizations/{organization_id}/invitations/{invitation_id}/resend",
             OrgInvitation, invitations::resend, &invitations::RESEND),
        route(GET, "/v1/organizations/{organization_id}/members",
             Org(ViewMembers), organizations::members::list, &organizations::members::LIST),
        route(PUT, "/v1/organizations/{organization_id}/members/{member_id}",
             OrgMember::Managed, organizations::members::update, &organizations::members::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/members/{member_id}",
             OrgMember::ManagedOrLeaving, organizations::members::delete, &organizations::members::DELETE),
        route(GET, "/v1/organizations/{organization_id}/audit-log",
             Org(ViewAuditLog), audit_log::list, &audit_log::LIST),
        // Projects: docs/contract/projects.md
        creation("/v1/organizations/{organization_id}/projects",
             Org(ManageProjects), projects::create, &projects::CREATE),
        route(GET, "/v1/organizations/{organization_id}/projects",
             Org(View), projects::list, &projects::LIST),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::View), projects::read, &projects::READ),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::Modify), projects::update, &projects::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}",
             Project::to(ProjectAction::Delete), projects::delete, &projects::DELETE),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ManageMembers), projects::members::create, &projects::members::CREATE),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/members",
             Project::to(ProjectAction::ViewMembers), projects::members::list, &projects::members::LIST),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
             ProjectMember::Managed, projects::members::update, &projects::members::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
             ProjectMember::ManagedOrLeaving, projects::members::delete, &projects::members::DELETE),
        // API keys: docs/contract/api-keys.md
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), api_keys::create, &api_keys::CREATE),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys",
             Project::to(ManageApiKeys), api_keys::list, &api_keys::LIST),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Read, api_keys::read, &api_keys::READ),
        route(PUT, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Update, api_keys::update, &api_keys::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
             KeyAction::Delete, api_keys::delete, &api_keys::DELETE),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
             KeyAction::Rotate, api_keys::rotate, &api_keys::rotate::ROTATE),
        creation("/v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation",
             KeyAction::EndRotation, api_keys::end_rotation, &api_keys::end_rotation::END_ROTATION),
        // Billing and usage: docs/contract/billing.md, docs/contract/usage.md
        route(GET, "/v1/organizations/{organization_id}/billing/summary",
             Org(ViewBilling), organizations::billing::summary, &organizations::billing::summary::SUMMARY),
        route(GET, "/v1/organizations/{organization_id}/billing/invoices",
             Org(ViewBilling), invoices::list, &invoices::LIST),
        route(GET, "/v1/organizations/{organization_id}/billing/invoices/{invoice_id}",
             OrgInvoice(ViewBilling), invoices::read, &invoices::READ),
        route(GET, "/v1/organizations/{organization_id}/billing/credits",
             Org(ViewBilling), credits::list, &credits::LIST),
        route(GET, "/v1/organizations/{organization_id}/billing/movements",
             Org(ViewBilling), movements::list, &movements::LIST),
        route(GET, "/v1/organizations/{organization_id}/billing/export",
             Org(ViewBilling), organizations::billing::export, &organizations::billing::export::EXPORT),
        creation("/v1/organizations/{organization_id}/billing/budgets",
             Org(ManageBilling), budgets::create, &budgets::CREATE),
        route(GET, "/v1/organizations/{organization_id}/billing/budgets",
             Org(ViewBilling), budgets::list, &budgets::LIST),
        route(GET, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ViewBilling), budgets::read, &budgets::READ),
        route(PUT, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ManageBilling), budgets::update, &budgets::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/billing/budgets/{budget_id}",
             OrgBudget(ManageBilling), budgets::delete, &budgets::DELETE),
        route(GET, "/v1/organizations/{organization_id}/billing/balance-alert",
             Org(ViewBilling), balance_alert::read, &balance_alert::READ),
        route(PUT, "/v1/organizations/{organization_id}/billing/balance-alert",
             Org(ManageBilling), balance_alert::update, &balance_alert::UPDATE),
        // Payments: docs/contract/payments.md
        creation("/v1/organizations/{organization_id}/billing/payments",
             OrgInPerson(ManageBilling), payments::create, &payments::CREATE),
        route(GET, "/v1/organizations/{organization_id}/billing/payments",
             Org(ViewBilling), payments::list, &payments::LIST),
        route(GET, "/v1/organizations/{organization_id}/billing/payments/{payment_id}",
             OrgPayment(ViewBilling), payments::read, &payments::READ),
        route(PUT, "/v1/organizations/{organization_id}/billing/payment-method",
             OrgInPerson(ManageBilling), payment_method::update, &payment_method::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/billing/payment-method",
             OrgInPerson(ManageBilling), payment_method::delete_all, &payment_method::DELETE_ALL),
        route(GET, "/v1/organizations/{organization_id}/billing/auto-top-up",
             Org(ViewBilling), auto_top_up::read, &auto_top_up::READ),
        route(PUT, "/v1/organizations/{organization_id}/billing/auto-top-up",
             OrgInPerson(ManageBilling), auto_top_up::update, &auto_top_up::UPDATE),
        route(POST, "/v1/billing/stripe/events",
             Public::Unlimited, billing::stripe::events::create, &billing::stripe::events::CREATE),
        route(GET, "/v1/organizations/{organization_id}/limits", Org(View), limits::read, &limits::READ),
        route(GET, "/v1/organizations/{organization_id}/billing/usage",
             Org(ViewBilling), organizations::billing::usage, &organizations::billing::USAGE),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/usage",
             Project { action: ViewUsage, with: KeyKind::Any }, projects::usage::read, &projects::usage::READ),
        // Call log: docs/contract/calls.md
        route(GET, "/v1/organizations/{organization_id}/calls", Org(ViewBilling), calls::list, &calls::LIST),
        route(GET, "/v1/organizations/{organization_id}/calls/{call_id}", Org(ViewBilling), calls::read, &calls::READ),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/calls",
             Project { action: ViewUsage, with: KeyKind::Any }, projects::calls::list, &projects::calls::LIST),
        route(GET, "/v1/organizations/{organization_id}/projects/{project_id}/calls/{call_id}",
             Project { action: ViewUsage, with: KeyKind::Any }, projects::calls::read, &projects::calls::READ),
        route(GET, "/v1/organizations/{organization_id}/usage/performance",
             Org(ViewBilling), organizations::usage::performance, &organizations::usage::PERFORMANCE),
        route(GET, "/v1/billing/pricing", Bearer { with: KeyKind::Any }, billing::pricing, &billing::PRICING),
        // Webhooks: docs/contract/webhooks.md
        creation("/v1/organizations/{organization_id}/webhooks",
             Org(ManageWebhooks), webhooks::create, &webhooks::CREATE),
        route(GET, "/v1/organizations/{organization_id}/webhooks", Org(ViewBilling), webhooks::list, &webhooks::LIST),
        route(GET, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
             OrgWebhook(WebhookAction::Read), webhooks::read, &webhooks::READ),
        route(PUT, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
             OrgWebhook(WebhookAction::Change), webhooks::update, &webhooks::UPDATE),
        route(DELETE, "/v1/organizations/{organization_id}/webhooks/{webhook_id}",
             OrgWebhook(WebhookAction::Change), webhooks::delete, &webhooks::DELETE),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/rotate",
             OrgWebhook(WebhookAction::Change), webhooks::rotate, &webhooks::rotate::ROTATE),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/test",
             OrgWebhook(WebhookAction::Change), webhooks::test, &webhooks::test::TEST),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/redeliver",
             OrgWebhook(WebhookAction::Change), webhooks::redeliver, &webhooks::redeliver::REDELIVER),
        route(GET, "/v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries",
             OrgWebhook(WebhookAction::Read), webhooks::deliveries::list, &webhooks::deliveries::LIST),
        creation("/v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
             OrgDelivery, webhooks::deliveries::redeliver, &webhooks::deliveries::redeliver::REDELIVER),
        // Model catalog: docs/contract/models.md. Ids may contain slashes.
        route(GET, "/v1/models",             Models,   models::list, &models::LIST),
        route(GET, "/v1/models/{*model_id}", OneModel, models::read, &models::READ),
        // Model calls: docs/contract/gateway.md
        route(POST, "/v1/chat/completions",
             ModelCalls(ChatCompletions), chat::completions::create, &chat::completions::CREATE),
        route(POST, "/v1/completions", ModelCalls(Completions), completions::create, &completions::CREATE),
        route(POST, "/v1/embeddings",  ModelCalls(Embeddings),  embeddings::create, &embeddings::CREATE),
        route(POST, "/v1/responses",   ModelCalls(Responses),   responses::create, &responses::CREATE),
        route(POST, "/v1/messages",    ModelCalls(Messages),    messages::create, &messages::CREATE),
        route(POST, "/v1/messages/count_tokens", TokenCounts, messages::count_tokens, &messages::COUNT_TOKENS),
        route(GET, "/api/hello",       Public::Always, api::hello, &api::HELLO),
        // Pages behind links in e-mails: docs/contract/pages.md
        route(GET, "/verify-email",   Public::Unlimited, pages::verify_email::read, &pages::verify_email::READ),
        route(POST, "/verify-email",   Public::Login,     pages::verify_email::create, &pages::verify_email::CREATE),
        route(GET, "/reset-password", Public::Unlimited, pages::reset_password::read, &pages::reset_password::READ),
        route(POST, "/reset-password",
             Public::Login, pages::reset_password::create, &pages::reset_password::CREATE),
        route(GET, "/change-email",   Public::Unlimited, pages::change_email::read, &pages::change_email::READ),
        route(POST, "/change-email",   Public::Login,     pages::change_email::create, &pages::change_email::CREATE),
        route(GET, "/invitations/accept",
             Public::Unlimited, pages::invitations::accept::read, &pages::invitations::accept::READ),
        route(POST, "/invitations/accept",
             Public::Login, pages::invitations::accept::create, &pages::invitations::accept::CREATE),
        // Machine-readable documents: docs/contract/README.md#openapi, docs/contract/accounts.md#signing-keys
        route(GET, "/openapi.json",          Public::Always,    openapi::read, &openapi::READ),
        route(GET, "/docs",                  Public::Always,    pages::docs::list, &pages::docs::LIST),
        route(GET, "/docs/{subject}",        Public::Always,    pages::docs::read, &pages::docs::READ),
        route(GET, "/.well-known/jwks.json", Public::Unlimited, well_known::jwks, &well_known::JWKS),
    ]
}

#[rustfmt::skip]
fn service_routes() -> Vec<Route> {
    let routes = [
        // Service listener: docs/contract/service.md
        route(POST, "/service/v1/authorize", Service::Calls, service::authorize, &service::authorize::AUTHORIZE),
        route(GET, "/service/v1/forward-auth",
             Service::Proxied, service::forward_auth, &service::forward_auth::FORWARD_AUTH),
        route(POST, "/service/v1/usage",     Service::Calls, service::usage, &service::usage::USAGE),
        route(POST, "/service/v1/reservations/{reservation_id}/extend",
             Service::Calls, service::reservations::extend, &service::reservations::EXTEND),
        route(DELETE, "/service/v1/reservations/{reservation_id}",
             Service::Calls, service::reservations::delete, &service::reservations::DELETE),
        route(GET, "/metrics",              Service::Watching, service::metrics, &service::metrics::METRICS),
    ];
    routes.map(|route| route.on(Listener::Service)).to_vec()
}

#[rustfmt::skip]
fn shared_routes() -> Vec<Route> {
    let routes = [
        route(GET, "/healthz", Public::Always, service::healthz, &service::health::HEALTHZ),
        route(GET, "/readyz",  Public::Always, service::readyz, &service::health::READYZ),
    ];
    routes.map(|route| route.on(Listener::Both)).to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::paths::body_limit;
    use web::body_limit::BodyLimit;

    #[test]
    fn every_operation_has_its_own_id() {
        let mut ids = BTreeSet::new();
        for route in table() {
            let id = route.operation.id;
            assert!(!id.is_empty() && ids.insert(id), "{route:?}: {id}");
        }
    }

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
