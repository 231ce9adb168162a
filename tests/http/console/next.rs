//! Sign-in redirects only to pages of the console.

use support::on_each_database;
use support::world::World;
use tollkeeper::console::links;

/// Values of `next`, and whether sign-in redirects to them.
const VECTORS: [(&str, bool); 36] = [
    ("/console", true),
    ("/console/", true),
    ("/console?page=2", true),
    ("/console/organizations", true),
    ("/console/organizations/org_01h2xcejqtf2nbrexx3vqjhp41/projects?search=a%20b&page=2", true),
    ("/console/organizations/new?a=https:%2F%2Fevil.example", true),
    ("", false),
    ("/", false),
    ("console", false),
    ("/v1/organizations", false),
    ("/consolewhatever", false),
    ("/console.evil.example", false),
    ("/console@evil.example", false),
    ("//evil.example", false),
    ("//evil.example/console", false),
    ("/console//evil.example", false),
    ("/console/a//b", false),
    ("/console?next=//evil.example", false),
    ("https://evil.example/console", false),
    ("http:/console", false),
    ("javascript:alert(1)", false),
    ("\\console", false),
    ("/\\evil.example", false),
    ("/console\\evil.example", false),
    ("/console/..\\..\\evil", false),
    ("/console/../v1/auth/me", false),
    ("/console/%2e%2e/v1/auth/me", false),
    ("/console/%2E./x", false),
    ("/console/./x", false),
    ("/console/a b", false),
    ("/console/a\tb", false),
    ("/console/a\nlocation: https://evil.example", false),
    ("/console/\u{7f}", false),
    ("/console/é", false),
    ("/console/a#b", false),
    (" /console", false),
];

#[on_each_database]
async fn sign_in_leads_to_pages_of_the_console_only(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    let long = format!("/console/{}", "a".repeat(2_000));
    for (next, is_followed) in VECTORS.iter().copied().chain([(long.as_str(), false)]) {
        assert_eq!(links::next(next).is_some(), is_followed, "{next}");
        let path = format!("/console/sign-in?next={}", links::query_value(next));
        let answer = browser.get(&world, &path).send().await;
        let expected = if is_followed { next } else { "/console/" };
        assert_eq!((answer.status, answer.header("location")), (303, expected), "{next:?}");
    }
}

#[on_each_database]
async fn page_of_a_signed_out_person_is_kept_for_after_sign_in(world: World) {
    let browser = support::console::Browser::signed_out();
    for (path, location) in [
        ("/console", "/console/sign-in"),
        ("/console/", "/console/sign-in"),
        (
            "/console/organizations?search=a%26b",
            "/console/sign-in?next=/console/organizations%3Fsearch%3Da%2526b",
        ),
        (
            "/console/organizations?done=signed_out%22",
            "/console/sign-in?next=/console/organizations%3Fdone%3Dsigned_out%2522",
        ),
        ("/console/organizations//x", "/console/sign-in"),
    ] {
        let answer = browser.get(&world, path).send().await;
        if path.contains("//") {
            assert_eq!(answer.status, 404, "{path}");
        } else {
            assert_eq!((answer.status, answer.header("location")), (303, location), "{path}");
        }
    }
}
