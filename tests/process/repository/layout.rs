//! The layout of the tree: a handler's Rust path has the words of its URL path, and its file is named by
//! that.

use std::path::PathBuf;

use http::Method;
use tollkeeper::api::routes::{self, Route};
use tollkeeper::web::route::{ErrorShape, Listener};

/// Returns the words of a path: `/v1/organizations/{id}/projects` gives `organizations::projects`, without
/// `/v1` and parameters.
fn words(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != "v1" && !part.starts_with('{'));
    parts.map(|part| part.trim_start_matches('.').replace('-', "_")).collect()
}

/// Machine-readable documents, with paths defined by external standards.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/openapi.json", "openapi::read"),
    ("/.well-known/jwks.json", "well_known::jwks"),
    ("/metrics", "service::metrics::metrics"),
    ("/healthz", "service::health::healthz"),
    ("/readyz", "service::health::readyz"),
];

/// Rows of the console that aren't separate pages.
const CONSOLE_EXCEPTIONS: &[(&str, &str)] = &[
    ("/", "home::redirect"),
    ("/console", "home::read"),
    ("/console/", "home::read"),
    ("/console/{*path}", "home::not_found"),
    // These begin a sign-on, and share their words with the page before them.
    ("/console/sign-in/{provider_id}", "sign_in::provider::read"),
    ("/console/reauthenticate/{provider_id}", "reauthenticate::provider::read"),
];

/// Returns the paths that the handler of a page of the console may have: the words of its URL, and a verb by its
/// method.
fn allowed_in_console(route: &Route) -> Vec<String> {
    if let Some((_, handler)) = CONSOLE_EXCEPTIONS.iter().find(|(path, _)| *path == route.path) {
        return vec![(*handler).to_owned()];
    }
    let base = words(route.path.strip_prefix("/console").unwrap()).join("::");
    let verbs: &[&str] = match route.method {
        Method::GET => &["list", "read"],
        Method::POST if route.path.ends_with('}') => &["update"],
        Method::POST => &["create"],
        _ => &[],
    };
    verbs.iter().map(|verb| format!("{base}::{verb}")).collect()
}

#[test]
fn console_handler_is_in_the_file_of_its_path() {
    for route in tollkeeper::console::routes::table() {
        let allowed = allowed_in_console(&route);
        assert!(
            allowed.iter().any(|path| path == route.handler),
            "{route:?}: {} isn't one of {allowed:?}",
            route.handler
        );
        let (module, function) = route.handler.rsplit_once("::").unwrap();
        let file = format!("crates/console/src/{}.rs", module.replace("::", "/"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("pub async fn {function}(")), "{file} has no handler {function}");
    }
}

fn allowed(route: &Route) -> Vec<String> {
    if let Some((_, handler)) = EXCEPTIONS.iter().find(|(path, _)| *path == route.path) {
        return vec![(*handler).to_owned()];
    }
    let words = words(route.path);
    // The pages for people are separate from the answers for programs.
    let is_page = route.listener == Listener::Public && route.content_type == "text/html";
    let root = if is_page { "pages::" } else { "" };
    let base = format!("{root}{}", words.join("::"));
    let verbs: &[&str] = match route.method {
        Method::GET => &["list", "read"],
        Method::POST => &["create"],
        Method::PUT => &["update"],
        Method::DELETE if route.path.ends_with('}') => &["delete"],
        Method::DELETE => &["delete_all"],
        _ => &[],
    };
    // A path that ends in a verb or in a report's name is the handler itself; where an operation has its own
    // file, the file and the function share the name.
    let mut allowed = vec![base.clone(), format!("{base}::{}", words.last().unwrap())];
    allowed.extend(verbs.iter().map(|verb| format!("{base}::{verb}")));
    allowed
}

#[test]
fn handler_path_mirrors_url() {
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
fn handler_is_in_the_file_of_its_path() {
    for route in routes::table() {
        let (module, function) = route.handler.rsplit_once("::").unwrap();
        let file = format!("crates/api/src/{}.rs", module.replace("::", "/"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("pub async fn {function}(")), "{file} has no handler {function}");
    }
}

#[test]
fn errors_of_pages_are_pages() {
    for route in routes::table() {
        let is_page = route.content_type == "text/html";
        assert_eq!(route.error_shape() == ErrorShape::Page, is_page, "{route:?}");
    }
}

#[test]
fn routes_are_unique() {
    let mut seen = std::collections::HashSet::new();
    for route in routes::table() {
        assert!(seen.insert((route.method.clone(), route.path)), "{route:?} stands twice");
    }
}

/// The rows of the contract that exist (docs/contract/README.md#pages). A change that adds an endpoint adds
/// its line here first.
const CONTRACT: &str = "
POST /v1/auth/register
POST /v1/auth/verify-email
POST /v1/auth/resend-verification
POST /v1/auth/login
POST /v1/auth/refresh-token
POST /v1/auth/forgot-password
POST /v1/auth/reset-password
POST /v1/auth/change-password
POST /v1/auth/change-email
GET /v1/auth/me
PUT /v1/auth/me
POST /v1/auth/logout
GET /v1/auth/sessions
DELETE /v1/auth/sessions
DELETE /v1/auth/sessions/{session_id}
GET /v1/auth/second-factor
POST /v1/auth/totp
POST /v1/auth/totp/confirm
DELETE /v1/auth/totp
POST /v1/auth/recovery-codes
GET /v1/auth/passkeys
POST /v1/auth/passkeys/options
POST /v1/auth/passkeys
PUT /v1/auth/passkeys/{passkey_id}
DELETE /v1/auth/passkeys/{passkey_id}
POST /v1/auth/passkey-login/options
POST /v1/auth/passkey-login
POST /v1/auth/reauthenticate/options
POST /v1/auth/reauthenticate
GET /v1/auth/providers
GET /v1/auth/connections
DELETE /v1/auth/connections/{connection_id}
POST /v1/organizations
GET /v1/organizations
GET /v1/organizations/{organization_id}
PUT /v1/organizations/{organization_id}
DELETE /v1/organizations/{organization_id}
POST /v1/organizations/{organization_id}/invitations
GET /v1/organizations/{organization_id}/invitations
DELETE /v1/organizations/{organization_id}/invitations/{invitation_id}
POST /v1/organizations/{organization_id}/invitations/{invitation_id}/resend
GET /v1/organizations/{organization_id}/members
PUT /v1/organizations/{organization_id}/members/{member_id}
DELETE /v1/organizations/{organization_id}/members/{member_id}
GET /v1/organizations/{organization_id}/audit-log
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
POST /v1/organizations/{organization_id}/projects/{project_id}/api-keys/{key_id}/end-rotation
GET /v1/organizations/{organization_id}/billing/summary
GET /v1/organizations/{organization_id}/billing/invoices
GET /v1/organizations/{organization_id}/billing/invoices/{invoice_id}
GET /v1/organizations/{organization_id}/billing/credits
GET /v1/organizations/{organization_id}/billing/movements
GET /v1/organizations/{organization_id}/billing/export
POST /v1/organizations/{organization_id}/billing/budgets
GET /v1/organizations/{organization_id}/billing/budgets
GET /v1/organizations/{organization_id}/billing/budgets/{budget_id}
PUT /v1/organizations/{organization_id}/billing/budgets/{budget_id}
DELETE /v1/organizations/{organization_id}/billing/budgets/{budget_id}
GET /v1/organizations/{organization_id}/billing/balance-alert
PUT /v1/organizations/{organization_id}/billing/balance-alert
POST /v1/organizations/{organization_id}/billing/payments
GET /v1/organizations/{organization_id}/billing/payments
GET /v1/organizations/{organization_id}/billing/payments/{payment_id}
PUT /v1/organizations/{organization_id}/billing/payment-method
DELETE /v1/organizations/{organization_id}/billing/payment-method
GET /v1/organizations/{organization_id}/billing/auto-top-up
PUT /v1/organizations/{organization_id}/billing/auto-top-up
POST /v1/billing/stripe/events
GET /v1/organizations/{organization_id}/limits
GET /v1/organizations/{organization_id}/billing/usage
GET /v1/organizations/{organization_id}/projects/{project_id}/usage
GET /v1/billing/pricing
POST /v1/organizations/{organization_id}/webhooks
GET /v1/organizations/{organization_id}/webhooks
GET /v1/organizations/{organization_id}/webhooks/{webhook_id}
PUT /v1/organizations/{organization_id}/webhooks/{webhook_id}
DELETE /v1/organizations/{organization_id}/webhooks/{webhook_id}
POST /v1/organizations/{organization_id}/webhooks/{webhook_id}/rotate
POST /v1/organizations/{organization_id}/webhooks/{webhook_id}/test
POST /v1/organizations/{organization_id}/webhooks/{webhook_id}/redeliver
GET /v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries
POST /v1/organizations/{organization_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver
GET /v1/models
GET /v1/models/{model_id}
POST /v1/chat/completions
POST /v1/completions
POST /v1/embeddings
POST /v1/responses
POST /v1/messages
POST /v1/messages/count_tokens
";

#[test]
fn table_has_the_contracts_routes_in_order() {
    let rows: Vec<_> = routes::table()
        .iter()
        .filter(|route| route.path.starts_with("/v1/"))
        .map(|route| format!("{} {}", route.method, route.path.replace("{*", "{")))
        .collect();
    assert_eq!(rows, CONTRACT.trim().lines().collect::<Vec<_>>());
}

/// Collects every `.rs` file below this folder, with its text.
fn sources(folder: &std::path::Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Returns whether the `*` between these two texts selects all columns: `SELECT *`, `t.*`, `RETURNING *`, `a,
/// *`. The `*` of a count, a product or a Rust dereference doesn't.
fn is_every_column(before: &str, after: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '}');
    if let Some(table) = before.strip_suffix('.') {
        return table.ends_with(is_word);
    }
    let last = before.trim_end();
    let ends_there = after.starts_with([' ', '\n', '"', ',', ')']);
    ["SELECT", "DISTINCT", "RETURNING", "ALL"].iter().any(|word| last.ends_with(word))
        || last.ends_with(',') && ends_there
}

/// A statement is prepared once. After a migration adds a column, PostgreSQL refuses a prepared statement
/// with `*` and fails its transaction: a server that runs on through the upgrade would answer with 503.
#[test]
fn no_statement_selects_all_columns() {
    for (text, is_found) in [
        ("SELECT * FROM t", true),
        ("SELECT DISTINCT\n    * FROM t", true),
        ("SELECT t.a, u.* FROM t", true),
        ("SELECT a, * FROM t", true),
        ("UPDATE t SET a = 1 RETURNING *", true),
        ("{t}.*", true),
        ("SELECT COUNT(*), SUM(a * b), a.b FROM t", false),
        ("between(a, *b, 0..*c)", false),
    ] {
        let mut stars = text.match_indices('*');
        let found = stars.any(|(at, _)| is_every_column(&text[..at], &text[at + 1..]));
        assert_eq!(found, is_found, "{text}");
    }
    let mut files = Vec::new();
    for folder in ["src", "crates"] {
        sources(std::path::Path::new(folder), &mut files);
    }
    assert!(files.iter().any(|(file, _)| file.ends_with("store/projects/listing.rs")), "{}", files.len());
    for (file, text) in files {
        // A `*` in a comment selects nothing.
        let blanked =
            |line: &str| if line.trim_start().starts_with("//") { String::new() } else { line.to_owned() };
        let text = text.lines().map(blanked).collect::<Vec<_>>().join("\n");
        for (at, _) in text.match_indices('*') {
            let line = text[..at].lines().count();
            assert!(
                !is_every_column(&text[..at], &text[at + 1..]),
                "{file}:{line}: name the columns that are read"
            );
        }
    }
}

/// Looking for tests takes the compiler seconds in each crate, so a crate without any declares it. This test
/// finds a crate that has got some since.
#[test]
fn crates_that_have_tests_run_them() {
    let crates = std::fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path());
    for folder in crates.chain([PathBuf::from(".")]) {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        let sources: String = files.into_iter().map(|(_, text)| text).collect();
        let is_example = |line: &str| line.trim_start().starts_with("///") && line.contains("```");
        let of_this = |has: bool| if has { "has" } else { "has no" };
        let has_examples = sources.lines().any(is_example);
        assert_eq!(
            has_examples,
            !manifest.contains("\ndoctest = false"),
            "{folder:?} {} examples: change `doctest` in its manifest",
            of_this(has_examples)
        );
        let has_tests =
            sources.contains("#[test]") || sources.contains("#[tokio::test") || sources.contains("proptest!");
        assert_eq!(
            has_tests,
            !manifest.contains("\ntest = false"),
            "{folder:?} {} tests: change `test` in its manifest",
            of_this(has_tests)
        );
    }
}
