//! Properties of all pages: headers, size and escaped text.

use std::sync::LazyLock;

use http::Method;
use tollkeeper::api::invoice_page::CONTENT_SECURITY_POLICY;
use tollkeeper::console::routes;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::console::Browser;
use support::http::Answer;
use support::world::World;
use support::{Database, on_each_database};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

static INVOICE_POLICY: LazyLock<String> =
    LazyLock::new(|| format!("{}; frame-ancestors 'none'", *CONTENT_SECURITY_POLICY));

/// Checks the headers that every answer of the console has.
pub fn check_headers(answer: &Answer, path: &str) {
    // The document of an invoice has its own style sheet, and therefore its own policy.
    let is_document = path.contains("/invoices/invoice_") && answer.status == 200;
    let policy = if is_document { INVOICE_POLICY.as_str() } else { POLICY };
    for (name, value) in [
        ("content-security-policy", policy),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), microphone=(), geolocation=(), publickey-credentials-get=(self), publickey-credentials-create=(self)",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(answer.header(name), value, "{path}");
        assert_eq!(answer.headers.get_all(name).iter().count(), 1, "{path}: {name}");
    }
    let is_asset = path.starts_with("/console/assets/") && answer.status == 200;
    let cache = if is_asset { "public, max-age=31536000, immutable" } else { "no-store" };
    assert_eq!(answer.header("cache-control"), cache, "{path}");
    assert!(answer.header("x-request-id").starts_with("req_"), "{path}");
    let is_csv = path.ends_with("/csv") || path.ends_with("/billing/export");
    let is_file = answer.status == 200 && (is_csv || path == "/console/account/data");
    if is_file {
        assert!(answer.header("content-disposition").starts_with("attachment; filename="), "{path}");
        let kind = if is_csv { "text/csv; charset=utf-8" } else { "application/json" };
        assert_eq!(answer.header("content-type"), kind, "{path}");
    } else if !is_asset && !is_document && answer.status != 303 {
        check_html(answer, path);
    }
}

fn check_html(answer: &Answer, path: &str) {
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{path}");
    let html = &answer.text;
    assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">"), "{path}: {html}");
    assert_eq!(html.matches("<h1>").count(), 1, "{path}: {html}");
    assert_eq!(html.matches("<main ").count(), 1, "{path}: {html}");
    for inline in ["<style", " style=", "<script>", " onclick=", " onsubmit=", "javascript:"] {
        assert!(!html.contains(inline), "{path}: {inline}: {html}");
    }
    // Errors use the form's labels, not the names of the API.
    assert!(!html.contains("aria-invalid") || !html.contains('`'), "{path}: {html}");
}

/// Checks that a page isn't too large.
pub fn check_size(answer: &Answer, path: &str) {
    assert!(answer.text.len() < 50_000, "{path} has {} bytes", answer.text.len());
}

/// Fills these ids into a path of the table of routes.
fn with_ids(path: &str, ids: &[(&str, &str)]) -> String {
    ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(&format!("{{{name}}}"), id))
}

/// Returns the paths of all pages, for these ids.
pub fn page_paths(ids: &[(&str, &str)]) -> Vec<String> {
    let gets = routes::table().into_iter().filter(|route| route.method == Method::GET);
    let pages = gets.filter(|route| route.content_type == "text/html" && !route.path.contains("{*"));
    pages.map(|route| with_ids(route.path, ids)).filter(|path| !path.contains('{')).collect()
}

/// Returns the links of a page's side navigation: path and label.
pub fn side_links(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("<nav class=\"side\"").skip(1).map(|part| part.split("</nav>").next().unwrap());
    let links = parts.flat_map(|part| part.split("<a href=\"").skip(1));
    links
        .map(|link| {
            let (path, rest) = link.split_once('"').unwrap();
            (path, rest.split_once('>').unwrap().1.split_once('<').unwrap().0)
        })
        .collect()
}

#[on_each_database]
async fn navigation_has_the_pages_that_a_role_may_open(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let ids = [("organization_id", place.organization.as_str()), ("project_id", place.project.as_str())];
    let mut people = vec![ada];
    for (name, role, in_project) in [
        ("bob", OrganizationRole::Admin, None),
        ("cy", OrganizationRole::Member, Some(ProjectRole::Developer)),
        ("dan", OrganizationRole::Member, Some(ProjectRole::Viewer)),
    ] {
        let user = world.user(name).await;
        world.join_organization(&place, &user, role).await;
        if let Some(role) = in_project {
            world.join_project(&place, &user, role).await;
        }
        people.push(user);
    }
    let organization = format!("/console/organizations/{}", place.organization);
    let project = format!("{organization}/projects/{}", place.project);
    let pages: Vec<_> =
        routes::navigation().iter().map(|page| (with_ids(page.path, &ids), page.label.unwrap())).collect();
    for person in &people {
        let browser = world.browser(person.id).await;
        let (mut of_organization, mut of_project) = (Vec::new(), Vec::new());
        for (path, label) in &pages {
            let status = browser.get(&world, path).send().await.status;
            let section = if path.starts_with(&project) { &mut of_project } else { &mut of_organization };
            match status {
                200 => section.push((path.as_str(), *label)),
                403 | 404 => {}
                other => panic!("{path}: {other}"),
            }
        }
        assert_eq!(side_links(&browser.page(&world, &organization).await), of_organization);
        let both = [of_project, of_organization].concat();
        assert_eq!(side_links(&browser.page(&world, &project).await), both);
    }
}

#[on_each_database]
fn strict_transport_security_is_sent_over_https_only(database: Database) {
    for (url, hsts, expected) in [
        ("https://console.example", "true", "max-age=31536000"),
        ("https://console.example", "false", ""),
        ("http://console.example", "true", ""),
    ] {
        let settings = [("TOLLKEEPER_PUBLIC_URL", url), ("TOLLKEEPER_CONSOLE__HSTS", hsts)];
        database.run(&settings, async |world| {
            for path in ["/", "/console/sign-in", "/console/organizations", "/console/nothing"] {
                let answer = Browser::signed_out().get(&world, path).send().await;
                assert_eq!(answer.header("strict-transport-security"), expected, "{url} {path}");
            }
            assert_eq!(world.get("/healthz").send().await.header("strict-transport-security"), "");
        });
    }
}

#[on_each_database(&[("TOLLKEEPER_CONSOLE__ENABLED", "false")])]
async fn console_can_be_switched_off(world: World) {
    for path in ["/", "/console", "/console/sign-in"] {
        assert_eq!(world.get(path).send().await.status, 404, "{path}");
    }
}

#[on_each_database(&[("TOLLKEEPER_PUBLIC_URL", "https://a.example/toll")])]
async fn links_begin_with_the_path_of_the_public_url(world: World) {
    let answer = Browser::signed_out().get(&world, "/console/organizations?page=2").send().await;
    let sign_in = "/toll/console/sign-in?next=/console/organizations%3Fpage%3D2";
    assert_eq!((answer.status, answer.header("location")), (303, sign_in));
    let page = Browser::signed_out().page(&world, "/console/sign-in").await;
    let links = page.split(['"', '\'']).filter(|part| part.starts_with('/'));
    for link in links {
        assert!(link.starts_with("/toll/console/"), "{link}");
    }
}

#[on_each_database]
async fn files_are_kept_for_ever_under_their_hash(world: World) {
    let page = Browser::signed_out().page(&world, "/console/sign-in").await;
    let files: Vec<_> = page.split('"').filter(|part| part.starts_with("/console/assets/")).collect();
    assert!(files.len() >= 4, "{page}");
    let mut sizes = 0;
    for file in files {
        let answer = Browser::signed_out().get(&world, file).send().await;
        assert_eq!(answer.status, 200, "{file}");
        check_headers(&answer, file);
        sizes += answer.text.len();
        let [_, _, _, hash, name] = file.split('/').collect::<Vec<_>>().try_into().unwrap();
        let other = format!("/console/assets/{}/{name}", hash.replace(|c: char| c.is_ascii_hexdigit(), "0"));
        assert_eq!(Browser::signed_out().get(&world, &other).send().await.status, 404, "{other}");
    }
    assert!(sizes < 24_000, "{sizes} bytes");
}

#[on_each_database]
async fn page_of_a_list_needs_one_statement_more_than_its_json(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "acme").await;
    for name in ["other", "third"] {
        world.place(&ada, name).await;
    }
    let browser = world.browser(ada.id).await;
    let (organization, project) = (&place.organization, &place.project);
    for path in [
        "/organizations".to_owned(),
        format!("/organizations/{organization}/projects"),
        format!("/organizations/{organization}/members"),
        format!("/organizations/{organization}/projects/{project}/members"),
        format!("/organizations/{organization}/projects/{project}/api-keys"),
    ] {
        let (page, json) = (format!("/console{path}"), format!("/v1{path}"));
        // The time of a session's last use is stored at most once per minute.
        browser.page(&world, &page).await;
        let statements = [browser.get(&world, &page), world.get(&json).bearer(&ada.access_token)];
        let mut counts = Vec::new();
        for call in statements {
            let before = world.app.db.statement_count();
            assert_eq!(call.send().await.status, 200, "{path}");
            counts.push(world.app.db.statement_count() - before);
        }
        assert_eq!(counts[0], counts[1] + 1, "{path} on {}", world.backend);
    }
}
