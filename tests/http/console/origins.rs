//! Checks of the site that a request comes from.

use std::fmt::Write;

use http::Method;

use support::console::Browser;
use support::http::Call;
use support::on_each_database;
use support::world::World;

const SITES: [&str; 5] = ["same-origin", "same-site", "cross-site", "none", "absent"];
const ORIGINS: [&str; 5] = ["own", "other port", "null", "other", "absent"];

/// The status of a form by `Sec-Fetch-Site` (rows) and `Origin` (columns).
const FORMS: &str = "
            | own | other port | null | other | absent
same-origin | 303 | 303 | 303 | 303 | 303
same-site   | 403 | 403 | 403 | 403 | 403
cross-site  | 403 | 403 | 403 | 403 | 403
none        | 403 | 403 | 403 | 403 | 403
absent      | 303 | 403 | 403 | 403 | 403
";

/// The status of a page that a link opens, which may be on any site.
const LINKS: &str = "
            | own | other port | null | other | absent
same-origin | 200 | 200 | 200 | 200 | 200
same-site   | 200 | 200 | 200 | 200 | 200
cross-site  | 200 | 200 | 200 | 200 | 200
none        | 200 | 200 | 200 | 200 | 200
absent      | 200 | 200 | 200 | 200 | 200
";

fn with_origin(call: Call, site: &str, origin: &str, own: &str) -> Call {
    let call = if site == "absent" { call } else { call.header("sec-fetch-site", site) };
    match origin {
        "own" => call.header("origin", own),
        "other port" => call.header("origin", "http://127.0.0.1:9999"),
        "other" => call.header("origin", "https://evil.example"),
        "absent" => call,
        origin => call.header("origin", origin),
    }
}

async fn table(world: &World, browser: &Browser, method: &Method) -> String {
    let own = &world.app.api.public_url;
    let mut table = format!("\n            | {}", ORIGINS.join(" | "));
    for site in SITES {
        write!(table, "\n{site:11}").unwrap();
        for origin in ORIGINS {
            let path =
                if *method == Method::GET { "/console/organizations" } else { "/console/organizations/new" };
            let call = browser.sends(world.call(method.clone(), path));
            let call = with_origin(call, site, origin, own);
            let name = format!("{site} {origin}");
            let call = if *method == Method::GET {
                call.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document")
            } else {
                call.form(&[("name", &name)])
            };
            write!(table, " | {}", call.send().await.status).unwrap();
        }
    }
    table + "\n"
}

#[on_each_database]
async fn form_comes_from_a_page_of_the_console(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    assert_eq!(table(&world, &browser, &Method::POST).await, FORMS);
    assert_eq!(table(&world, &browser, &Method::GET).await, LINKS);
}

#[on_each_database]
async fn origin_is_checked_before_the_cookie_and_the_body(world: World) {
    for path in ["/console/sign-in", "/console/sign-out", "/console/register", "/console/organizations/new"] {
        let call = world.call(Method::POST, path).header("sec-fetch-site", "cross-site");
        let answer = call.header("content-type", "text/plain").raw("x".repeat(1_000_000)).send().await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text.contains("This came from another page"), "{path}: {}", answer.text);
        assert!(!answer.text.contains("<form"), "input from other origins isn't kept: {}", answer.text);
    }
}

#[on_each_database]
async fn pages_are_not_embedded_or_loaded_by_others(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    for (site, mode, dest, status) in [
        ("none", "navigate", "document", 200),
        ("cross-site", "navigate", "document", 200),
        ("cross-site", "navigate", "iframe", 403),
        ("same-origin", "navigate", "iframe", 403),
        ("same-site", "navigate", "object", 403),
        ("cross-site", "no-cors", "embed", 403),
        ("same-site", "no-cors", "script", 403),
        ("same-site", "cors", "empty", 403),
        ("cross-site", "no-cors", "image", 403),
        ("same-origin", "cors", "empty", 200),
    ] {
        let call = browser.sends(world.get("/console/organizations"));
        let call = call.header("sec-fetch-site", site).header("sec-fetch-mode", mode);
        let answer = call.header("sec-fetch-dest", dest).send().await;
        assert_eq!(answer.status, status, "{site} {mode} {dest}");
    }
}

#[on_each_database]
async fn header_that_stands_twice_is_no_proof(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    let own = world.app.api.public_url.clone();
    let post =
        || browser.sends(world.call(Method::POST, "/console/organizations/new")).form(&[("name", "x")]);
    let twice = post().header("sec-fetch-site", "same-origin").header("sec-fetch-site", "cross-site");
    assert_eq!(twice.send().await.status, 403);
    let twice = post().header("origin", &own).header("origin", "https://evil.example");
    assert_eq!(twice.send().await.status, 403);
}

#[on_each_database(&[("TOLLKEEPER_PUBLIC_URL", "https://console.example")])]
async fn this_machine_is_reached_by_every_name(world: World) {
    let sign_out = |host: &str, origin: &str| {
        world.call(Method::POST, "/console/sign-out").header("host", host).header("origin", origin).form(&[])
    };
    for (host, origin, status) in [
        ("console.example", "https://console.example", 303),
        ("console.example", "http://console.example", 403),
        ("localhost:8080", "http://localhost:8080", 303),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 303),
        ("[::1]:8080", "http://[::1]:8080", 303),
        ("localhost:8080", "http://127.0.0.1:8080", 403),
        ("localhost:8080", "http://localhost:8081", 403),
        ("10.0.0.1:8080", "http://10.0.0.1:8080", 403),
        ("evil.example", "http://evil.example", 403),
    ] {
        assert_eq!(sign_out(host, origin).send().await.status, status, "{host} {origin}");
    }
}
