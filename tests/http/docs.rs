//! The API reference as pages: everything in the OpenAPI document is on one of them.

mod examples;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::Value;
use tollkeeper::api::openapi;

use support::http::Answer;
use support::on_each_database;
use support::world::World;

/// Returns the document of a test's server.
fn document(world: &World) -> Value {
    openapi::document(&(world.app.api.table)(), &world.app.api.public_url, &world.app.api.service_url)
}

/// Returns all pages by path, the overview first.
async fn pages(world: &World) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    for tag in document(world)["tags"].as_array().unwrap() {
        let path = format!("/docs/{}", tag["name"].as_str().unwrap().to_lowercase().replace(' ', "-"));
        let answer = world.get(&path).send().await;
        assert_eq!(answer.status, 200, "{path}");
        check_page(&answer);
        pages.insert(path, answer.text);
    }
    let overview = world.get("/docs").send().await;
    assert_eq!(overview.status, 200);
    check_page(&overview);
    pages.insert("/docs".to_owned(), overview.text);
    pages
}

/// Returns the pages about tools by path, the overview first.
async fn tools(world: &World) -> BTreeMap<String, String> {
    let all = world.get("/docs/tools").send().await;
    assert_eq!(all.status, 200);
    check_page(&all);
    let list = all.text.split_once("<h2 id=\"tools\">").unwrap().1.split("</ul>").next().unwrap();
    let mut pages = BTreeMap::new();
    for rest in list.split("<li><a href=\"").skip(1) {
        let path = format!("/docs/{}", rest.split('"').next().unwrap());
        let answer = world.get(&path).send().await;
        assert_eq!(answer.status, 200, "{path}");
        check_page(&answer);
        pages.insert(path, answer.text);
    }
    pages.insert("/docs/tools".to_owned(), all.text);
    pages
}

/// Checks the parts that all pages have in common.
fn check_page(answer: &Answer) {
    let cache = if answer.status == 200 { "public, max-age=300" } else { "no-store" };
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", cache),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    let style = answer.text.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, style.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    assert_eq!(answer.header("content-security-policy"), policy);
    assert!(answer.text.starts_with("<!doctype html>\n<html lang=\"en\">"));
    let tags = || answer.text.split('<').skip(1).map(|rest| rest.split('>').next().unwrap());
    assert!(!tags().any(|tag| tag.starts_with("script")), "a script");
    for word in ["style=", "src=", " on"] {
        assert!(!tags().any(|tag| tag.contains(word) && !tag.contains(" content")), "{word}");
    }
    assert_eq!(answer.text.matches("<h1>").count(), 1);
}

/// Returns the operations of the document by their id.
fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
    operations.map(|one| (one["operationId"].as_str().unwrap().to_owned(), one)).collect()
}

/// Returns the section of each operation by its id.
fn sections(pages: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for (path, page) in pages.iter().filter(|(path, _)| *path != "/docs") {
        for rest in page.split("<section id=\"").skip(1) {
            let (id, rest) = rest.split_once('"').unwrap();
            let section = rest.split("</section>").next().unwrap();
            let before = sections.insert(id.to_owned(), section.to_owned());
            assert!(before.is_none(), "{id} is on {path} and on another page");
        }
    }
    sections
}

/// Reverses the escapes of HTML.
fn unescaped(html: &str) -> String {
    let pairs = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    pairs.into_iter().fold(html.to_owned(), |text, (escaped, character)| text.replace(escaped, character))
}

/// Returns the text of a piece of HTML, with code between backticks.
fn words(html: &str) -> String {
    let html = html.replace("<code>", "`").replace("</code>", "`");
    let text: String = html.split('<').enumerate().fold(String::new(), |text, (number, part)| {
        let part = if number == 0 { part } else { part.split_once('>').map_or("", |(_, rest)| rest) };
        text + part
    });
    unescaped(&text)
}

#[on_each_database]
async fn every_operation_stands_on_one_page(world: World) {
    let (document, pages) = (document(&world), pages(&world).await);
    let (operations, sections) = (operations(&document), sections(&pages));
    assert_eq!(operations.keys().collect::<Vec<_>>(), sections.keys().collect::<Vec<_>>());
    for (id, operation) in &operations {
        let section = &sections[id];
        assert!(pages["/docs"].contains(&format!("#{id}\"")), "{id} isn't on the overview");
        let text = words(section);
        let summary = operation["summary"].as_str().unwrap();
        assert!(text.contains(summary), "{id}: {summary}");
        let description = operation["description"].as_str().unwrap();
        for paragraph in description.split("\n\n").filter(|text| !text.starts_with("Access: ")) {
            assert!(text.contains(paragraph), "{id}: {paragraph}\n{text}");
        }
        let callers = operation["x-access"]["callers"].as_str().unwrap();
        assert!(text.contains(callers), "{id}: {callers}");
        for code in operation["x-error-codes"].as_array().unwrap() {
            let code = code.as_str().unwrap();
            assert!(section.contains(&format!("../docs#error-{code}\"><code>{code}</code>")), "{id}: {code}");
        }
    }
}

/// Returns the last names of the fields that a piece of HTML describes.
fn names(html: &str) -> BTreeSet<&str> {
    let terms = html.split("<dt><code>").skip(1);
    terms.map(|rest| rest.split("</code>").next().unwrap().rsplit('.').next().unwrap()).collect()
}

/// Collects the names of all properties in a value.
fn property_names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(properties) = members.get("properties").and_then(Value::as_object) {
                found.extend(properties.keys().cloned());
                assert!(
                    properties
                        .values()
                        .all(|one| one.get("$ref").is_some() || one.get("description").is_some())
                );
            }
            for (_, member) in members.iter().filter(|(name, _)| !name.starts_with("example")) {
                property_names(member, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| property_names(item, found)),
        _ => {}
    }
}

#[on_each_database]
async fn every_field_and_code_is_described(world: World) {
    let (document, pages) = (document(&world), pages(&world).await);
    let sections = sections(&pages);
    for (id, operation) in operations(&document) {
        let found = names(&sections[&id]);
        for parameter in operation["parameters"].as_array().unwrap() {
            let name = parameter["name"].as_str().unwrap();
            assert!(found.contains(name), "{id}: {name}");
            assert!(parameter["description"].is_string(), "{id}: {name}");
        }
        let mut due = BTreeSet::new();
        property_names(&operation["requestBody"], &mut due);
        for name in due {
            assert!(found.contains(name.as_str()), "{id}: {name}");
        }
    }
    // Answers and errors consist of these schemas.
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (schema, value) in schemas {
        let mut due = BTreeSet::new();
        property_names(value, &mut due);
        let is_described = |page: &String| due.iter().all(|name| names(page).contains(name.as_str()));
        assert!(due.is_empty() || pages.values().any(is_described), "{schema}: {due:?}");
    }
    let overview = &pages["/docs"];
    for code in tollkeeper::error::Code::ALL {
        let row = format!("id=\"error-{}\"", code.as_str());
        let row = overview.split_once(&row).unwrap_or_else(|| panic!("no {row}")).1;
        let row = words(row.split("</div>").next().unwrap());
        assert!(row.contains(code.message()) && row.contains(code.status().as_str()), "{row}");
    }
}

/// `tests/clients/real` runs the instructions of the pages.
#[on_each_database]
async fn each_tool_has_a_page(world: World) {
    let source = include_str!("../../docs/tools.md");
    let pages = tools(&world).await;
    let titles = source.split("\n## ").skip(1).filter(|section| section.contains("\nVersion "));
    let titles: Vec<_> = titles.map(|section| section.lines().next().unwrap()).collect();
    assert_eq!((titles.len(), pages.len()), (20, 21));
    for title in titles {
        let name = title.to_lowercase().replace(' ', "-").replace('\'', "");
        let text = words(&pages[&format!("/docs/{name}")]);
        assert!(text.contains(&world.app.api.public_url), "{title}: {text}");
        assert!(text.contains(title) && text.contains("Version "), "{title}: {text}");
    }
    let all = words(&pages["/docs/tools"]);
    assert!(all.contains("When something is wrong") && all.contains("402"), "{all}");
    let overview = world.get("/docs").send().await.text;
    assert!(overview.contains("href=\"docs/tools\""));
}

#[on_each_database]
async fn links_resolve(world: World) {
    let mut pages = pages(&world).await;
    pages.extend(tools(&world).await);
    let unknown = world.get("/docs/nothing").send().await;
    assert_eq!(unknown.status, 404);
    check_page(&unknown);
    pages.insert("/docs/nothing".to_owned(), unknown.text);
    let mut count = 0;
    for (path, page) in &pages {
        for rest in page.split(" href=\"").skip(1) {
            let href = rest.split('"').next().unwrap();
            let (target, anchor) = href.split_once('#').unwrap_or((href, ""));
            let folder = path.rsplit_once('/').unwrap().0;
            let target = match target.strip_prefix("../") {
                _ if target.is_empty() => path.clone(),
                Some(target) => format!("/{target}"),
                None => format!("{folder}/{target}"),
            };
            if target == "/openapi.json" {
                assert_eq!(world.get(&target).send().await.status, 200);
                continue;
            }
            let page = pages.get(&target).unwrap_or_else(|| panic!("{path} links to {href}"));
            let anchors = page.matches(&format!("id=\"{anchor}\"")).count();
            assert!(
                anchor.is_empty() || anchors == 1,
                "{path} links to {href}, which exists {anchors} times"
            );
            count += 1;
        }
    }
    assert!(count > 1_000, "only {count} links");
}

#[on_each_database]
async fn other_requests_are_refused_with_pages(world: World) {
    for path in ["/docs/%3Cscript%3E", "/docs/API%20keys", "/docs/Accounts"] {
        let answer = world.get(path).send().await;
        assert_eq!(answer.status, 404, "{path}");
        check_page(&answer);
        assert!(answer.text.contains("Subject not found"), "{}", answer.text);
    }
    let below = world.get("/docs/accounts/login").send().await;
    assert_eq!((below.status, below.header("content-type")), (404, "text/html; charset=utf-8"));
    let posted = world.call(Method::POST, "/docs").send().await;
    assert_eq!((posted.status, posted.header("allow")), (405, "GET,HEAD"));
    let head = world.call(Method::HEAD, "/docs/accounts").send().await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    let service = support::http::Call::new(&world.service, Method::GET, "/docs").send().await;
    assert_eq!(service.status, 404, "the reference is on the public listener");
}
