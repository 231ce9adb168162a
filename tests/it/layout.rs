//! The law of the tree: a path's words are its handler's Rust path, and the file is where one looks for it.

use http::Method;
use tollkeeper::routes::{self, ErrorShape, Listener, Route};

/// `/v1/organizations/{id}/projects` → `organizations::projects`: `/v1` and parameters drop out.
fn words(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != "v1" && !part.starts_with('{'));
    parts.map(|part| part.trim_start_matches('.').replace('-', "_")).collect()
}

/// Documents for machines, whose paths are other people's standards.
const ELSEWHERE: &[(&str, &str)] = &[
    ("/openapi.json", "openapi::read"),
    ("/.well-known/jwks.json", "api::well_known::jwks"),
    ("/metrics", "service::metrics::metrics"),
    ("/healthz", "service::health::healthz"),
    ("/readyz", "service::health::readyz"),
];

fn allowed(route: &Route) -> Vec<String> {
    if let Some((_, handler)) = ELSEWHERE.iter().find(|(path, _)| *path == route.path) {
        return vec![(*handler).to_owned()];
    }
    let words = words(route.path);
    // What people see stands apart from what programs read.
    let root = match (route.listener, route.content_type) {
        (Listener::Service, _) => "",
        (_, "text/html") => "pages::",
        _ => "api::",
    };
    let base = format!("{root}{}", words.join("::"));
    let verbs: &[&str] = match route.method {
        Method::GET => &["list", "read"],
        Method::POST => &["create"],
        Method::PUT => &["update"],
        Method::DELETE => &["delete"],
        _ => &[],
    };
    // A path that ends in a verb or in a reading's name is the handler itself; where an operation has a file of its own,
    // the file and the function share the name.
    let mut allowed = vec![base.clone(), format!("{base}::{}", words.last().unwrap())];
    allowed.extend(verbs.iter().map(|verb| format!("{base}::{verb}")));
    allowed
}

#[test]
fn a_path_s_words_are_its_handler_s() {
    for route in routes::table() {
        let allowed = allowed(&route);
        assert!(
            allowed.iter().any(|path| path == route.handler),
            "{} {}: {} is none of {allowed:?}",
            route.method,
            route.path,
            route.handler
        );
    }
}

#[test]
fn a_handler_is_in_the_file_of_its_path() {
    for route in routes::table() {
        let (module, function) = route.handler.rsplit_once("::").unwrap();
        let file = format!("src/{}.rs", module.replace("::", "/"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("pub async fn {function}(")), "{file} has no handler {function}");
    }
}

#[test]
fn pages_fail_as_pages() {
    for route in routes::table() {
        let is_page = route.content_type == "text/html";
        assert_eq!(route.error_shape() == ErrorShape::Page, is_page, "{route:?}");
    }
}

#[test]
fn no_row_stands_twice() {
    let mut seen = std::collections::HashSet::new();
    for route in routes::table() {
        assert!(seen.insert((route.method.clone(), route.path)), "{route:?} stands twice");
    }
}

/// The rows of section 4 that exist. An issue that adds an endpoint adds its line here first.
const SECTION_4: &str = "
POST /v1/auth/register
POST /v1/auth/verify-email
POST /v1/auth/login
POST /v1/auth/refresh-token
POST /v1/auth/forgot-password
POST /v1/auth/reset-password
POST /v1/auth/change-password
GET /v1/auth/me
POST /v1/auth/logout
POST /v1/organizations
GET /v1/organizations
GET /v1/organizations/{organization_id}
PUT /v1/organizations/{organization_id}
DELETE /v1/organizations/{organization_id}
POST /v1/organizations/{organization_id}/invitations
GET /v1/organizations/{organization_id}/members
PUT /v1/organizations/{organization_id}/members/{member_id}
DELETE /v1/organizations/{organization_id}/members/{member_id}
POST /v1/organizations/{organization_id}/projects
GET /v1/organizations/{organization_id}/projects
GET /v1/organizations/{organization_id}/projects/{project_id}
PUT /v1/organizations/{organization_id}/projects/{project_id}
DELETE /v1/organizations/{organization_id}/projects/{project_id}
POST /v1/organizations/{organization_id}/projects/{project_id}/members
GET /v1/organizations/{organization_id}/projects/{project_id}/members
PUT /v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}
DELETE /v1/organizations/{organization_id}/projects/{project_id}/members/{member_id}
POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys
GET /v1/organizations/{organization_id}/projects/{project_id}/api-keys
GET /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}
PUT /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}
DELETE /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}
POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/rotate
GET /v1/organizations/{organization_id}/billing/summary
GET /v1/organizations/{organization_id}/billing/invoices
GET /v1/organizations/{organization_id}/billing/invoices/{invoice_id}
GET /v1/organizations/{organization_id}/billing/usage
GET /v1/organizations/{organization_id}/projects/{project_id}/usage
GET /v1/billing/pricing
GET /v1/models
GET /v1/models/{model_id}
";

#[test]
fn the_table_has_the_rows_of_the_contract_in_its_order() {
    let rows: Vec<_> = routes::table()
        .iter()
        .filter(|route| route.path.starts_with("/v1/"))
        .map(|route| format!("{} {}", route.method, route.path.replace("{*", "{")))
        .collect();
    assert_eq!(rows, SECTION_4.trim().lines().collect::<Vec<_>>());
}
