//! The table of the console's routes: one row a page and method.
//!
//! A row has the same access as the operation of the API that does the same, in [`Browser`]; pages that need no
//! session have theirs in [`Open`].

use http::Method;

use api::gate::{Browser, KeyAction, Open, Org, Person, Project, Public};
use api::routes::Route;
use tenants::roles::OrganizationAction::{ManageProjects, View};
use tenants::roles::ProjectAction::{self, ManageApiKeys};
use web::route::route;

use crate::assets::{self, Asset};
use crate::{error_pages, forgot_password, home, organizations, register, sign_in, sign_out};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Returns the whole table.
pub fn table() -> Vec<Route> {
    pages().into_iter().map(|route| route.with_pages(error_pages::PAGES)).collect()
}

#[rustfmt::skip]
fn pages() -> Vec<Route> {
    vec![
        // Into the console
        route(GET, "/",                              Open(Public::Unlimited), home::redirect),
        route(GET, "/console",                       Browser(Person),         home::read),
        route(GET, "/console/",                      Browser(Person),         home::read),
        route(GET, "/console/sign-in",               Open(Public::Unlimited), sign_in::read),
        route(POST, "/console/sign-in",              Open(Public::Login),     sign_in::create),
        route(GET, "/console/register",              Open(Public::Unlimited), register::read),
        route(POST, "/console/register",             Open(Public::Register),  register::create),
        route(GET, "/console/forgot-password",       Open(Public::Unlimited), forgot_password::read),
        route(POST, "/console/forgot-password",      Open(Public::Login),     forgot_password::create),
        route(POST, "/console/sign-out",             Open(Public::Unlimited), sign_out::create),
        // Organizations
        route(GET, "/console/organizations",         Browser(Person),         organizations::list),
        route(GET, "/console/organizations/new",     Browser(Person),         organizations::new::read),
        route(POST, "/console/organizations/new",    Browser(Person),         organizations::new::create),
        route(GET, "/console/organizations/{organization_id}", Browser(Org(View)), organizations::read),
        // Projects
        route(GET, "/console/organizations/{organization_id}/projects", Browser(Org(View)), organizations::projects::list),
        route(GET, "/console/organizations/{organization_id}/projects/new",
              Browser(Org(ManageProjects)), organizations::projects::new::read),
        route(POST, "/console/organizations/{organization_id}/projects/new",
              Browser(Org(ManageProjects)), organizations::projects::new::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}",
              Browser(Project::to(ProjectAction::View)), organizations::projects::read),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/settings",
              Browser(Project::to(ProjectAction::Modify)), organizations::projects::settings::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/settings",
              Browser(Project::to(ProjectAction::Modify)), organizations::projects::settings::create),
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/delete",
              Browser(Project::to(ProjectAction::Delete)), organizations::projects::delete::read),
        route(POST, "/console/organizations/{organization_id}/projects/{project_id}/delete",
              Browser(Project::to(ProjectAction::Delete)), organizations::projects::delete::create),
        // API keys
        route(GET, "/console/organizations/{organization_id}/projects/{project_id}/api-keys",
              Browser(Project::to(ManageApiKeys)), organizations::projects::api_keys::list),
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
        // Files of the pages, and paths without a page
        route(GET, "/console/assets/{hash}/{name}",  Asset,                   assets::read),
        route(GET, "/console/{*path}",               Open(Public::Unlimited), home::not_found),
    ]
}
