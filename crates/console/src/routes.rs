//! The table of the console's routes: one row per page and method.
//!
//! A row has the access of the corresponding API operation, wrapped in [`Browser`], or in [`Open`] if the
//! page needs no session. Rows with a label are the side [navigation](crate::navigation), in this order.

use http::Method;

use api::gate::{
    Begins, Browser, Confirms, FromProvider, KeyAction, Models, OneModel, Open, Operator, Org, OrgBudget,
    OrgDelivery, OrgInvitation, OrgInvoice, OrgMember, OrgPayment, OrgWebhook, OwnConnection, OwnPasskey,
    OwnSession, Person, Project, ProjectMember, Public, SecondStep, Session, SignOn,
};
use api::routes::Route;
use tenants::roles::OrganizationAction::{
    Delete, InviteMembers, ManageBilling, ManageProjects, ManageWebhooks, Modify, View, ViewAuditLog,
    ViewBilling, ViewMembers,
};
use tenants::roles::ProjectAction::{self, CallModels, ManageApiKeys, ManageMembers, ViewUsage};
use web::route::route;
use webhooks::access::WebhookAction;

use crate::assets::{self, Asset};
use crate::{
    account, error_pages, first_account, forgot_password, home, installation, models, organizations,
    reauthenticate, register, sign_in, sign_out,
};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Returns the whole table.
pub fn table() -> Vec<Route> {
    let routes = [
        of_people(),
        of_factors_and_sessions(),
        of_organizations(),
        of_money(),
        of_payments(),
        of_webhooks(),
        of_settings(),
        of_projects(),
        of_installation(),
        others(),
    ];
    routes.into_iter().flatten().map(|route| route.with_pages(error_pages::PAGES)).collect()
}

/// Returns the pages that the navigation links to, in the order of the links.
pub fn navigation() -> Vec<Route> {
    table().into_iter().filter(|route| route.label.is_some()).collect()
}

#[rustfmt::skip]
fn of_people() -> Vec<Route> {
    vec![
        // Redirects to the console, sign-in and sign-out
        route(GET, "/", Open(Public::Unlimited), home::redirect),
        route(GET, "/console", Browser(Person), home::read),
        route(GET, "/console/", Browser(Person), home::read),
        route(GET, "/console/sign-in", Open(Public::Unlimited), sign_in::read),
        route(POST, "/console/sign-in", Open(Public::Login), sign_in::create),
        route(GET, "/console/sign-in/second-factor", SecondStep(Public::Unlimited), sign_in::second_factor::read),
        route(POST, "/console/sign-in/second-factor", SecondStep(Public::Login), sign_in::second_factor::create),
        route(POST, "/console/sign-in/passkey", Open(Public::Login), sign_in::passkey::create),
        route(GET, "/console/sign-in/confirm", Open(Public::Unlimited), sign_in::confirm::read),
        route(POST, "/console/sign-in/confirm", Open(Public::Login), sign_in::confirm::create),
        route(GET, "/console/sign-in/{provider_id}", Begins(Open(Public::Login)), sign_in::provider::read),
        route(GET, "/console/sign-in/{provider_id}/callback", SignOn(Public::Login), sign_in::callback::read),
        route(POST, "/console/sign-in/{provider_id}/logout", FromProvider, sign_in::logout::create),
        route(GET, "/console/reauthenticate", Browser(Session::AccessToken), reauthenticate::read),
        route(POST, "/console/reauthenticate", Browser(Session::Password), reauthenticate::create),
        route(POST, "/console/reauthenticate/passkey", Browser(Session::Password), reauthenticate::passkey::create),
        route(GET, "/console/reauthenticate/{provider_id}",
              Begins(Browser(Session::Management)), reauthenticate::provider::read),
        route(GET, "/console/register", Open(Public::Unlimited), register::read),
        route(POST, "/console/register", Open(Public::Register), register::create),
        route(GET, "/console/first-account", Open(Public::Unlimited), first_account::read),
        route(POST, "/console/first-account", Open(Public::Login), first_account::create),
        route(GET, "/console/forgot-password", Open(Public::Unlimited), forgot_password::read),
        route(POST, "/console/forgot-password", Open(Public::Login), forgot_password::create),
        route(POST, "/console/sign-out", Open(Public::Unlimited), sign_out::create),
        // The user's account
        route(GET, "/console/account", Browser(Session::AccessToken), account::read),
        route(POST, "/console/account", Browser(Session::Management), account::create),
        route(POST, "/console/account/verification", Browser(Session::Management), account::verification::create),
        route(POST, "/console/account/theme", Browser(Session::Management), account::theme::create),
        route(GET, "/console/account/data", Browser(Session::Management), account::data::read),
        route(GET, "/console/account/email", Browser(Session::AccessToken), account::email::read),
        route(POST, "/console/account/email", Browser(Session::Password), account::email::create),
        route(GET, "/console/account/password", Browser(Session::AccessToken), account::password::read),
        route(POST, "/console/account/password", Browser(Session::Password), account::password::create),
    ]
}

/// Returns the other routes of the user's account.
#[rustfmt::skip]
fn of_factors_and_sessions() -> Vec<Route> {
    vec![
        route(GET, "/console/account/second-factor", Browser(Session::Management), account::second_factor::read),
        route(GET, "/console/account/second-factor/passkeys/new",
              Browser(Session::Fresh), account::second_factor::passkeys::new::read),
        route(POST, "/console/account/second-factor/passkeys/new",
              Browser(Session::Fresh), account::second_factor::passkeys::new::create),
        route(GET, "/console/account/second-factor/passkeys/{passkey_id}",
              Browser(OwnPasskey::Renamed), account::second_factor::passkeys::read),
        route(POST, "/console/account/second-factor/passkeys/{passkey_id}",
              Browser(OwnPasskey::Renamed), account::second_factor::passkeys::update),
        route(GET, "/console/account/second-factor/passkeys/{passkey_id}/remove",
              Browser(OwnPasskey::Removed), account::second_factor::passkeys::remove::read),
        route(POST, "/console/account/second-factor/passkeys/{passkey_id}/remove",
              Browser(OwnPasskey::Removed), account::second_factor::passkeys::remove::create),
        route(GET, "/console/account/second-factor/totp",
              Browser(Session::Fresh), account::second_factor::totp::read),
        route(POST, "/console/account/second-factor/totp",
              Browser(Session::Fresh), account::second_factor::totp::create),
        route(POST, "/console/account/second-factor/totp/confirm",
              Browser(Session::Fresh), account::second_factor::totp::confirm::create),
        route(GET, "/console/account/second-factor/recovery-codes",
              Browser(Session::Fresh), account::second_factor::recovery_codes::read),
        route(POST, "/console/account/second-factor/recovery-codes",
              Browser(Session::Fresh), account::second_factor::recovery_codes::create),
        route(GET, "/console/account/second-factor/remove",
              Browser(Session::Fresh), account::second_factor::remove::read),
        route(POST, "/console/account/second-factor/remove",
              Browser(Session::Fresh), account::second_factor::remove::create),
        route(GET, "/console/account/connections", Browser(Session::Management), account::connections::list),
        route(GET, "/console/account/connections/confirm",
              Confirms(Browser(Session::Fresh)), account::connections::confirm::read),
        route(POST, "/console/account/connections/confirm",
              Confirms(Browser(Session::Fresh)), account::connections::confirm::create),
        route(GET, "/console/account/connections/new/{provider_id}",
              Begins(Browser(Session::Fresh)), account::connections::new::read),
        route(POST, "/console/account/connections/{connection_id}/delete",
              Browser(OwnConnection), account::connections::delete::create),
        route(GET, "/console/account/sessions", Browser(Session::Management), account::sessions::list),
        route(POST, "/console/account/sessions/others/delete",
              Browser(Session::Management), account::sessions::others::delete::create),
        route(POST, "/console/account/sessions/{session_id}/delete",
              Browser(OwnSession), account::sessions::delete::create),
        // Models. Ids may contain slashes.
        route(GET, "/console/models", Browser(Models), models::list),
        route(GET, "/console/models/{*model_id}", Browser(OneModel), models::read),
    ]
}

#[rustfmt::skip]
fn of_organizations() -> Vec<Route> {
    vec![
        // Organizations
        route(GET, "/console/organizations", Browser(Person), organizations::list),
        route(GET, "/console/organizations/new", Browser(Person), organizations::new::read),
        route(POST, "/console/organizations/new", Browser(Person), organizations::new::create),
        route(GET, "/console/organizations/{organization_id}",
              Browser(Org(View)), organizations::read).in_navigation("Overview"),
        route(GET, "/console/organizations/{organization_id}/projects",
              Browser(Org(View)), organizations::projects::list).in_navigation("Projects"),
        route(GET, "/console/organizations/{organization_id}/projects/new",
              Browser(Org(ManageProjects)), organizations::projects::new::read),
        route(POST, "/console/organizations/{organization_id}/projects/new",
              Browser(Org(ManageProjects)), organizations::projects::new::create),
        // Members and invitations of an organization
        route(GET, "/console/organizations/{organization_id}/members",
              Browser(Org(ViewMembers)), organizations::members::list).in_navigation("Members"),
        route(GET, "/console/organizations/{organization_id}/members/invite",
              Browser(Org(InviteMembers)), organizations::members::invite::read),
        route(POST, "/console/organizations/{organization_id}/members/invite",
              Browser(Org(InviteMembers)), organizations::members::invite::create),
        route(GET, "/console/organizations/{organization_id}/members/invitations",
              Browser(Org(InviteMembers)), organizations::members::invitations::list),
        route(POST, "/console/organizations/{organization_id}/members/invitations/{invitation_id}/resend",
              Browser(OrgInvitation), organizations::members::invitations::resend::create),
        route(POST, "/console/organizations/{organization_id}/members/invitations/{invitation_id}/withdraw",
              Browser(OrgInvitation), organizations::members::invitations::withdraw::create),
        route(GET, "/console/organizations/{organization_id}/members/{member_id}",
              Browser(OrgMember::Managed), organizations::members::read),
        route(POST, "/console/organizations/{organization_id}/members/{member_id}",
              Browser(OrgMember::Managed), organizations::members::update),
        route(GET, "/console/organizations/{organization_id}/members/{member_id}/remove",
              Browser(OrgMember::ManagedOrLeaving), organizations::members::remove::read),
        route(POST, "/console/organizations/{organization_id}/members/{member_id}/remove",
              Browser(OrgMember::ManagedOrLeaving), organizations::members::remove::create),
    ]
}

#[rustfmt::skip]
fn of_money() -> Vec<Route> {
    vec![
        // Usage and money of an organization
        route(GET, "/console/organizations/{organization_id}/usage",
              Browser(Org(ViewBilling)), organizations::usage::read).in_navigation("Usage"),
        route(GET, "/console/organizations/{organization_id}/usage/csv",
              Browser(Org(ViewBilling)), organizations::usage::csv::read),
        route(GET, "/console/organizations/{organization_id}/billing",
              Browser(Org(ViewBilling)), organizations::billing::read).in_navigation("Billing"),
        route(GET, "/console/organizations/{organization_id}/billing/movements",
              Browser(Org(ViewBilling)), organizations::billing::movements::list),
        route(GET, "/console/organizations/{organization_id}/billing/movements/csv",
              Browser(Org(ViewBilling)), organizations::billing::movements::csv::read),
        route(GET, "/console/organizations/{organization_id}/billing/export",
              Browser(Org(ViewBilling)), organizations::billing::export::read),
        route(GET, "/console/organizations/{organization_id}/billing/invoices",
              Browser(Org(ViewBilling)), organizations::billing::invoices::list),
        route(GET, "/console/organizations/{organization_id}/billing/invoices/{invoice_id}",
              Browser(OrgInvoice(ViewBilling)), organizations::billing::invoices::read),
        route(GET, "/console/organizations/{organization_id}/billing/budgets",
              Browser(Org(ViewBilling)), organizations::billing::budgets::list),
        route(GET, "/console/organizations/{organization_id}/billing/budgets/new",
              Browser(Org(ManageBilling)), organizations::billing::budgets::new::read),
        route(POST, "/console/organizations/{organization_id}/billing/budgets/new",
              Browser(Org(ManageBilling)), organizations::billing::budgets::new::create),
        route(GET, "/console/organizations/{organization_id}/billing/budgets/{budget_id}",
              Browser(OrgBudget(ManageBilling)), organizations::billing::budgets::read),
        route(POST, "/console/organizations/{organization_id}/billing/budgets/{budget_id}",
              Browser(OrgBudget(ManageBilling)), organizations::billing::budgets::update),
        route(GET, "/console/organizations/{organization_id}/billing/budgets/{budget_id}/delete",
              Browser(OrgBudget(ManageBilling)), organizations::billing::budgets::delete::read),
        route(POST, "/console/organizations/{organization_id}/billing/budgets/{budget_id}/delete",
              Browser(OrgBudget(ManageBilling)), organizations::billing::budgets::delete::create),
        route(GET, "/console/organizations/{organization_id}/billing/balance-alert",
              Browser(Org(ViewBilling)), organizations::billing::balance_alert::read),
        route(POST, "/console/organizations/{organization_id}/billing/balance-alert",
              Browser(Org(ManageBilling)), organizations::billing::balance_alert::create),
        route(GET, "/console/organizations/{organization_id}/limits",
              Browser(Org(View)), organizations::limits::read).in_navigation("Limits"),
    ]
}

#[rustfmt::skip]
fn of_payments() -> Vec<Route> {
    vec![
        route(GET, "/console/organizations/{organization_id}/billing/payments",
              Browser(Org(ViewBilling)), organizations::billing::payments::list),
        route(GET, "/console/organizations/{organization_id}/billing/payments/new",
              Browser(Org(ManageBilling)), organizations::billing::payments::new::read),
        route(POST, "/console/organizations/{organization_id}/billing/payments/new",
              Browser(Org(ManageBilling)), organizations::billing::payments::new::create),
        route(GET, "/console/organizations/{organization_id}/billing/payments/{payment_id}",
              Browser(OrgPayment(ViewBilling)), organizations::billing::payments::read),
        route(POST, "/console/organizations/{organization_id}/billing/invoices/{invoice_id}/pay",
              Browser(OrgInvoice(ManageBilling)), organizations::billing::invoices::pay::create),
        route(GET, "/console/organizations/{organization_id}/billing/card",
              Browser(Org(ViewBilling)), organizations::billing::card::read),
        route(POST, "/console/organizations/{organization_id}/billing/card",
              Browser(Org(ManageBilling)), organizations::billing::card::create),
        route(GET, "/console/organizations/{organization_id}/billing/card/remove",
              Browser(Org(ManageBilling)), organizations::billing::card::remove::read),
        route(POST, "/console/organizations/{organization_id}/billing/card/remove",
              Browser(Org(ManageBilling)), organizations::billing::card::remove::create),
        route(GET, "/console/organizations/{organization_id}/billing/auto-top-up",
              Browser(Org(ViewBilling)), organizations::billing::auto_top_up::read),
        route(POST, "/console/organizations/{organization_id}/billing/auto-top-up",
              Browser(Org(ManageBilling)), organizations::billing::auto_top_up::create),
    ]
}

#[rustfmt::skip]
fn of_webhooks() -> Vec<Route> {
    vec![
        route(GET, "/console/organizations/{organization_id}/webhooks",
              Browser(Org(ViewBilling)), organizations::webhooks::list).in_navigation("Webhooks"),
        route(GET, "/console/organizations/{organization_id}/webhooks/new",
              Browser(Org(ManageWebhooks)), organizations::webhooks::new::read),
        route(POST, "/console/organizations/{organization_id}/webhooks/new",
              Browser(Org(ManageWebhooks)), organizations::webhooks::new::create),
        route(GET, "/console/organizations/{organization_id}/webhooks/{webhook_id}",
              Browser(OrgWebhook(WebhookAction::Read)), organizations::webhooks::read),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::update),
        route(GET, "/console/organizations/{organization_id}/webhooks/{webhook_id}/rotate",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::rotate::read),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}/rotate",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::rotate::create),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}/test",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::test::create),
        route(GET, "/console/organizations/{organization_id}/webhooks/{webhook_id}/redeliver",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::redeliver::read),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}/redeliver",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::redeliver::create),
        route(GET, "/console/organizations/{organization_id}/webhooks/{webhook_id}/delete",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::delete::read),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}/delete",
              Browser(OrgWebhook(WebhookAction::Change)), organizations::webhooks::delete::create),
        route(GET, "/console/organizations/{organization_id}/webhooks/{webhook_id}/deliveries",
              Browser(OrgWebhook(WebhookAction::Read)), organizations::webhooks::deliveries::list),
        route(POST, "/console/organizations/{organization_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
              Browser(OrgDelivery), organizations::webhooks::deliveries::redeliver::create),
    ]
}

/// Audit log, settings and deletion of an organization.
#[rustfmt::skip]
fn of_settings() -> Vec<Route> {
    vec![
        route(GET, "/console/organizations/{organization_id}/audit-log",
              Browser(Org(ViewAuditLog)), organizations::audit_log::list).in_navigation("Audit log"),
        route(GET, "/console/organizations/{organization_id}/audit-log/csv",
              Browser(Org(ViewAuditLog)), organizations::audit_log::csv::read),
        route(GET, "/console/organizations/{organization_id}/settings",
              Browser(Org(Modify)), organizations::settings::read).in_navigation("Settings"),
        route(POST, "/console/organizations/{organization_id}/settings",
              Browser(Org(Modify)), organizations::settings::create),
        route(GET, "/console/organizations/{organization_id}/settings/second-factor",
              Browser(Org(Modify)), organizations::settings::second_factor::read),
        route(POST, "/console/organizations/{organization_id}/settings/second-factor",
              Browser(Org(Modify)), organizations::settings::second_factor::create),
        route(GET, "/console/organizations/{organization_id}/settings/sign-on",
              Browser(Org(Modify)), organizations::settings::sign_on::read),
        route(POST, "/console/organizations/{organization_id}/settings/sign-on",
              Browser(Org(Modify)), organizations::settings::sign_on::create),
        route(GET, "/console/organizations/{organization_id}/delete",
              Browser(Org(Delete)), organizations::delete::read),
        route(POST, "/console/organizations/{organization_id}/delete",
              Browser(Org(Delete)), organizations::delete::create),
    ]
}

#[rustfmt::skip]
fn of_projects() -> Vec<Route> {
    vec![
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}",
              Browser(Project::to(ProjectAction::View)), organizations::projects::read).in_navigation("Overview"),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys",
              Browser(Project::to(ManageApiKeys)), organizations::projects::api_keys::list).in_navigation("API keys"),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/new",
              Browser(Project::to(ManageApiKeys)), organizations::projects::api_keys::new::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/new",
              Browser(Project::to(ManageApiKeys)), organizations::projects::api_keys::new::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}",
              Browser(KeyAction::Read), organizations::projects::api_keys::read),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/edit",
              Browser(KeyAction::Update), organizations::projects::api_keys::edit::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/edit",
              Browser(KeyAction::Update), organizations::projects::api_keys::edit::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
              Browser(KeyAction::Rotate), organizations::projects::api_keys::rotate::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate",
              Browser(KeyAction::Rotate), organizations::projects::api_keys::rotate::create),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation",
              Browser(KeyAction::EndRotation), organizations::projects::api_keys::end_rotation::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/delete",
              Browser(KeyAction::Delete), organizations::projects::api_keys::delete::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/delete",
              Browser(KeyAction::Delete), organizations::projects::api_keys::delete::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/playground",
              Browser(Project::to(CallModels)), organizations::projects::playground::read).in_navigation("Playground"),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/playground",
              Browser(Project::to(CallModels)), organizations::projects::playground::create),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/playground/stream",
              Browser(Project::to(CallModels)), organizations::projects::playground::stream::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/usage",
              Browser(Project::to(ViewUsage)), organizations::projects::usage::read).in_navigation("Usage"),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/usage/csv",
              Browser(Project::to(ViewUsage)), organizations::projects::usage::csv::read),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/members",
              Browser(Project::to(ProjectAction::ViewMembers)),
              organizations::projects::members::list).in_navigation("Members"),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/members/new",
              Browser(Project::to(ManageMembers)), organizations::projects::members::new::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/members/new",
              Browser(Project::to(ManageMembers)), organizations::projects::members::new::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
              Browser(ProjectMember::Managed), organizations::projects::members::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/members/{member_id}",
              Browser(ProjectMember::Managed), organizations::projects::members::update),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/members/{member_id}/remove",
              Browser(ProjectMember::ManagedOrLeaving), organizations::projects::members::remove::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/members/{member_id}/remove",
              Browser(ProjectMember::ManagedOrLeaving), organizations::projects::members::remove::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/settings",
              Browser(Project::to(ProjectAction::Modify)),
              organizations::projects::settings::read).in_navigation("Settings"),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/settings",
              Browser(Project::to(ProjectAction::Modify)), organizations::projects::settings::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/delete",
              Browser(Project::to(ProjectAction::Delete)), organizations::projects::delete::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/delete",
              Browser(Project::to(ProjectAction::Delete)), organizations::projects::delete::create),
    ]
}

#[rustfmt::skip]
fn of_installation() -> Vec<Route> {
    use installation::{audit, catalog, invoices, mail, margins, organizations, settings, users};
    vec![
        route(GET, "/console/installation", Browser(Operator::Read), installation::read).in_navigation("Overview"),
        route(GET, "/console/installation/users", Browser(Operator::Read), users::list).in_navigation("Accounts"),
        route(GET, "/console/installation/users/{user_id}", Browser(Operator::Read), users::read),
        route(GET, "/console/installation/users/{user_id}/disable", Browser(Operator::Write), users::disable::read),
        route(POST, "/console/installation/users/{user_id}/disable", Browser(Operator::Write), users::disable::create),
        route(GET, "/console/installation/users/{user_id}/enable", Browser(Operator::Write), users::enable::read),
        route(POST, "/console/installation/users/{user_id}/enable", Browser(Operator::Write), users::enable::create),
        route(GET, "/console/installation/users/{user_id}/end-sessions",
              Browser(Operator::Write), users::end_sessions::read),
        route(POST, "/console/installation/users/{user_id}/end-sessions",
              Browser(Operator::Write), users::end_sessions::create),
        route(GET, "/console/installation/users/{user_id}/reset-second-factor",
              Browser(Operator::Write), users::reset_second_factor::read),
        route(POST, "/console/installation/users/{user_id}/reset-second-factor",
              Browser(Operator::Write), users::reset_second_factor::create),
        route(GET, "/console/installation/organizations",
              Browser(Operator::Read), organizations::list).in_navigation("Organizations"),
        route(GET, "/console/installation/organizations/{organization_id}",
              Browser(Operator::Read), organizations::read),
        route(GET, "/console/installation/organizations/{organization_id}/credit",
              Browser(Operator::Write), organizations::credit::read),
        route(POST, "/console/installation/organizations/{organization_id}/credit",
              Browser(Operator::Write), organizations::credit::create),
        route(GET, "/console/installation/organizations/{organization_id}/credit-limit",
              Browser(Operator::Write), organizations::credit_limit::read),
        route(POST, "/console/installation/organizations/{organization_id}/credit-limit",
              Browser(Operator::Write), organizations::credit_limit::create),
        route(GET, "/console/installation/invoices",
              Browser(Operator::Read), invoices::list).in_navigation("Open invoices"),
        route(GET, "/console/installation/invoices/{invoice_id}/mark-paid",
              Browser(Operator::Write), invoices::mark_paid::read),
        route(POST, "/console/installation/invoices/{invoice_id}/mark-paid",
              Browser(Operator::Write), invoices::mark_paid::create),
        route(GET, "/console/installation/invoices/{invoice_id}/void",
              Browser(Operator::Write), invoices::void::read),
        route(POST, "/console/installation/invoices/{invoice_id}/void",
              Browser(Operator::Write), invoices::void::create),
        route(GET, "/console/installation/margins", Browser(Operator::Read), margins::list).in_navigation("Margins"),
        route(GET, "/console/installation/catalog", Browser(Operator::Read), catalog::read).in_navigation("Catalog"),
        route(POST, "/console/installation/catalog/reload", Browser(Operator::Write), catalog::reload::create),
        route(GET, "/console/installation/mail", Browser(Operator::Read), mail::list).in_navigation("E-mail"),
        route(POST, "/console/installation/mail/retry", Browser(Operator::Write), mail::retry::create),
        route(POST, "/console/installation/mail/test", Browser(Operator::Write), mail::test::create),
        route(GET, "/console/installation/audit", Browser(Operator::Read), audit::list).in_navigation("Audit trail"),
        route(GET, "/console/installation/settings",
              Browser(Operator::Read), settings::read).in_navigation("Configuration"),
    ]
}

/// Returns the routes of static files, and of paths without a page.
#[rustfmt::skip]
fn others() -> Vec<Route> {
    vec![
        route(GET, "/console/assets/{hash}/{name}", Asset, assets::read),
        route(GET, "/console/{*path}", Open(Public::Unlimited), home::not_found),
    ]
}
