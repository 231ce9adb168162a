//! The layout of the tree: a handler's Rust path has the words of its URL path, and its file is named after
//! them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use http::Method;
use tollkeeper::api::routes::{self, Route};
use tollkeeper::web::route::{ErrorShape, Listener};

/// Returns the words of a URL path without `/v1` and parameters: `/v1/organizations/{id}/projects` becomes
/// `organizations` and `projects`.
fn words(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != "v1" && !part.starts_with('{'));
    parts.map(|part| part.trim_start_matches('.').replace('-', "_")).collect()
}

/// Paths that don't follow the rule: machine-readable documents and probes.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/openapi.json", "openapi::read"),
    ("/.well-known/jwks.json", "well_known::jwks"),
    ("/metrics", "service::metrics::metrics"),
    ("/healthz", "service::health::healthz"),
    ("/readyz", "service::health::readyz"),
];

/// Routes of the console that aren't separate pages, and their handlers.
const CONSOLE_EXCEPTIONS: &[(&str, &str)] = &[
    ("/", "home::redirect"),
    ("/console", "home::read"),
    ("/console/", "home::read"),
    ("/console/{*path}", "home::not_found"),
    // These start a sign-in with a provider, and share their words with the page before them.
    ("/console/sign-in/{provider_id}", "sign_in::provider::read"),
    ("/console/reauthenticate/{provider_id}", "reauthenticate::provider::read"),
];

/// Returns the Rust paths that the handler of a console page may have: the words of its URL, and a verb that
/// fits its method.
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
    // Pages for users are separate from answers for programs.
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
    // A path that ends in a verb or in the name of a report is the handler itself. If an operation has its
    // own file, the file and the function have the same name.
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

/// Returns the operations that the pages of the contract describe, for instance in the line
/// "`POST /v1/organizations` · a person" below a heading.
fn documented_operations() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("docs/contract").unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.starts_with('`')) {
            let mut methods = Vec::new();
            // A path may have several methods: "`GET`, `PUT /v1/…`".
            for code in line.split('`').skip(1).step_by(2) {
                let (method, path) = code.split_once(' ').unwrap_or((code, ""));
                if !["GET", "POST", "PUT", "DELETE"].contains(&method) {
                    break;
                }
                methods.push(method);
                if !path.is_empty() {
                    found.extend(methods.drain(..).map(|method| format!("{method} {path}")));
                }
            }
        }
    }
    found
}

#[test]
fn table_has_the_contracts_operations() {
    let is_ours = |path: &str| path.starts_with("/v1/") || path.starts_with("/service/");
    let rows: BTreeSet<_> = routes::table()
        .iter()
        .filter(|route| is_ours(route.path))
        .map(|route| format!("{} {}", route.method, route.path.replace("{*", "{")))
        .collect();
    let mut documented = documented_operations();
    documented.retain(|operation| operation.split_once(' ').is_some_and(|(_, path)| is_ours(path)));
    assert_eq!(rows, documented);
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

/// Returns `true` if the `*` between these two texts selects all columns, as in `SELECT *`, `t.*`,
/// `RETURNING *` or `a, *`. The `*` of a count, a product or a Rust dereference doesn't.
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

/// Statements are prepared once. If a migration adds a column, PostgreSQL refuses a prepared statement with
/// `*` and fails its transaction. A server that runs during the upgrade would then answer 503.
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

/// The compiler needs seconds per crate to look for tests, so a crate without tests declares that in its
/// manifest. This test finds crates whose manifest is out of date.
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
