//! Projects in the console.

use serde_json::json;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use super::pages::{check_headers, check_size};
use support::billed::{Usage, charge};
use support::console::{Browser, hidden};
use support::on_each_database;
use support::world::{Place, TestUser, World};

fn projects(place: &Place) -> String {
    format!("/console/organizations/{}/projects", place.organization)
}

fn project(place: &Place) -> String {
    format!("{}/{}", projects(place), place.project)
}

async fn start(world: &World) -> (TestUser, Place, Browser) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let browser = world.browser(ada.id).await;
    (ada, place, browser)
}

#[on_each_database]
async fn project_is_made_found_and_shown_with_its_usage(world: World) {
    let (ada, place, browser) = start(&world).await;
    let new = format!("{}/new", projects(&place));
    assert!(browser.page(&world, &new).await.contains("Create the project"));
    let wrong = [
        ("name", ""),
        ("description", "For <b>all</b>"),
        ("settings.max_tokens", "many"),
        ("settings.temperature", "3"),
    ];
    let answer = browser.post(&world, &new, &wrong).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    check_headers(&answer, &new);
    for field in ["name", "settings.max_tokens", "settings.temperature"] {
        assert!(answer.text.contains(&format!("<a href=\"#{field}\">")), "{field}: {}", answer.text);
        assert!(answer.text.contains(&format!("id=\"{field}-mistake\"")), "{field}: {}", answer.text);
    }
    assert!(answer.text.contains("Name can&#39;t be empty."), "{}", answer.text);
    assert!(answer.text.contains("For &#60;b&#62;all&#60;/b&#62;"), "the input is kept: {}", answer.text);
    assert!(answer.text.contains("value=\"many\""), "numbers of tokens aren't secret: {}", answer.text);

    let unknown = [("name", "Search"), ("settings.model", "svc-9")];
    let answer = browser.post(&world, &new, &unknown).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.text.contains("Unknown model “svc-9”."), "{}", answer.text);

    let good = [
        ("name", "Search"),
        ("description", ""),
        ("visibility", "public"),
        ("settings.model", "svc-1"),
        ("settings.max_tokens", "100"),
        ("settings.temperature", "0.5"),
    ];
    let made = browser.done(&world, &new, &good).await;
    let page = browser.page(&world, &made).await;
    for text in [
        "The project is ready.",
        "<h1>Search</h1>",
        "<code>svc-1</code>",
        ">0.5<",
        "Public: all members of the",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let taken = browser.post(&world, &new, &good).send().await;
    assert_eq!(taken.status, 409);
    assert!(
        taken.text.contains("id=\"name-mistake\"") && taken.text.contains("value=\"100\""),
        "{}",
        taken.text
    );

    let list = browser.page(&world, &projects(&place)).await;
    assert!(list.contains(">Search</a>") && list.contains(">Acme project</a>"), "{list}");
    let found = browser.page(&world, &format!("{}?search=SEAR", projects(&place))).await;
    assert!(found.contains(">Search</a>") && !found.contains(">Acme project</a>"), "{found}");
    let nothing = browser.page(&world, &format!("{}?search=zzz", projects(&place))).await;
    assert!(nothing.contains("Nothing matches."), "{nothing}");

    let (key, _) = world.key(&ada, &place, &json!({"name": "<i>Checkout</i>"})).await;
    let day = world.clock.now().day();
    for day in [day, day.month_start().plus(-1)] {
        charge(
            &world,
            Usage { place: &place, key: &key, model: "svc-1", day, prompt: 1000, completion: 234 },
        )
        .await;
    }
    let page = browser.page(&world, &project(&place)).await;
    assert!(page.contains("<dt>Tokens this month</dt><dd>1,234</dd>"), "{page}");
    assert!(page.contains("<dt>Total tokens</dt><dd>2,468</dd>"), "{page}");
    assert!(page.contains("<dt>Total requests</dt><dd>2</dd>"), "{page}");
    assert!(page.contains("&#60;i&#62;Checkout&#60;/i&#62;</a>") && !page.contains("<i>"), "{page}");
}

#[on_each_database]
async fn settings_are_changed_and_conflicts_are_decided(world: World) {
    let (_, place, browser) = start(&world).await;
    let settings = format!("{}/settings", project(&place));
    let version = hidden(&browser.page(&world, &settings).await, "version");
    let fields =
        [("version", version.as_str()), ("name", "One"), ("description", "mine"), ("visibility", "private")];
    let place_of_it = browser.done(&world, &settings, &fields).await;
    let page = browser.page(&world, &place_of_it).await;
    assert!(page.contains("Changes saved.") && page.contains("<h1>One</h1>"), "{page}");

    // Sending the form again changes nothing.
    browser.done(&world, &settings, &fields).await;
    // Another change from the same form.
    let other = [("version", version.as_str()), ("name", "Two"), ("description", "mine")];
    let answer = browser.post(&world, &settings, &other).send().await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    check_headers(&answer, &settings);
    for text in ["<td class=\"lines\">Two</td><td class=\"lines\">One</td>", "Use mine", "Keep theirs"] {
        assert!(answer.text.contains(text), "{text}: {}", answer.text);
    }
    assert!(!answer.text.contains("<th scope=\"row\">Description"), "the same: {}", answer.text);
    let page = browser.page(&world, &project(&place)).await;
    assert!(page.contains("<h1>One</h1>"), "{page}");
    // A new API key causes no conflict with the form.
    let ada = world.user("eve").await;
    world.join_organization(&place, &ada, OrganizationRole::Admin).await;
    world.key(&ada, &place, &json!({"name": "k"})).await;
    let version = hidden(&answer.text, "version");
    let mine = [("version", version.as_str()), ("name", "Two"), ("description", "mine")];
    browser.done(&world, &settings, &mine).await;
    assert!(browser.page(&world, &project(&place)).await.contains("<h1>Two</h1>"));

    let wrong = [("version", ""), ("name", "x".repeat(500).leak() as &str)];
    let answer = browser.post(&world, &settings, &wrong).send().await;
    assert_eq!(answer.status, 409, "a form without its version changes nothing");
    let version = hidden(&browser.page(&world, &settings).await, "version");
    let wrong = [("version", version.as_str()), ("name", ""), ("settings.model", "svc-9")];
    let answer = browser.post(&world, &settings, &wrong).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(hidden(&answer.text, "version"), version, "the form can be sent again");
    // A model that left the catalog stays selected until the user chooses another.
    let unchanged =
        [("version", version.as_str()), ("was.settings.model", "svc-9"), ("settings.model", "svc-9")];
    browser.done(&world, &settings, &unchanged).await;
}

#[on_each_database]
async fn project_is_deleted_by_its_name_and_as_it_was_shown(world: World) {
    let (ada, place, browser) = start(&world).await;
    world.key(&ada, &place, &json!({"name": "k"})).await;
    let delete = format!("{}/delete", project(&place));
    let page = browser.page(&world, &delete).await;
    assert!(page.contains("1 API key.") && page.contains("1 membership."), "{page}");
    let version = hidden(&page, "version");
    for name in ["", "acme"] {
        let answer = browser.post(&world, &delete, &[("version", &version), ("name", name)]).send().await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("id=\"name-mistake\""), "{}", answer.text);
    }
    world.key(&ada, &place, &json!({"name": "another"})).await;
    let answer =
        browser.post(&world, &delete, &[("version", &version), ("name", "Acme project")]).send().await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(
        answer.text.contains("Review it again.") && answer.text.contains("2 API keys."),
        "{}",
        answer.text
    );
    let version = hidden(&answer.text, "version");
    let gone = browser.done(&world, &delete, &[("version", &version), ("name", "Acme project")]).await;
    assert!(browser.page(&world, &gone).await.contains("The project, its API keys"));
    assert_eq!(browser.get(&world, &project(&place)).send().await.status, 404);
}

#[on_each_database]
async fn roles_are_offered_what_they_may_do(world: World) {
    let (ada, place, _) = start(&world).await;
    world.key(&ada, &place, &json!({"name": "Checkout"})).await;
    let [viewer, admin, member] = [world.user("vic").await, world.user("abe").await, world.user("mel").await];
    for user in [&viewer, &admin, &member] {
        world.join_organization(&place, user, OrganizationRole::Member).await;
    }
    world.join_project(&place, &viewer, ProjectRole::Viewer).await;
    world.join_project(&place, &admin, ProjectRole::Admin).await;
    let [viewer, admin, member] =
        [world.browser(viewer.id).await, world.browser(admin.id).await, world.browser(member.id).await];
    let page = viewer.page(&world, &project(&place)).await;
    for hidden in ["Checkout", "/api-keys", "/settings"] {
        assert!(!page.contains(hidden), "{hidden}: {page}");
    }
    let page = admin.page(&world, &project(&place)).await;
    assert!(
        page.contains("Checkout") && page.contains("/api-keys\"") && page.contains("/settings\""),
        "{page}"
    );
    let page = admin.page(&world, &format!("{}/settings", project(&place))).await;
    assert!(!page.contains("/delete"), "{page}");
    let list = viewer.page(&world, &projects(&place)).await;
    assert!(!list.contains("/projects/new") && list.contains(">viewer<"), "{list}");
    let list = member.page(&world, &projects(&place)).await;
    assert!(list.contains("You aren’t in any project yet."), "{list}");
    for (browser, path, status) in [
        (&viewer, "/settings", 403),
        (&viewer, "/api-keys", 403),
        (&admin, "/delete", 403),
        (&member, "", 403),
    ] {
        let path = format!("{}{path}", project(&place));
        let answer = browser.get(&world, &path).send().await;
        assert_eq!(answer.status, status, "{path}");
        check_headers(&answer, &path);
    }
    let stranger = world.user("eve").await;
    let elsewhere = world.place(&stranger, "Evil").await;
    let stranger = world.browser(stranger.id).await;
    let mixed = Place { organization: elsewhere.organization.clone(), project: place.project.clone() };
    for (path, status) in [
        (projects(&place), 403),
        (project(&place), 403),
        (project(&mixed), 404),
        (format!("{}/api-keys", project(&mixed)), 404),
    ] {
        assert_eq!(stranger.get(&world, &path).send().await.status, status, "{path}");
    }
}

#[on_each_database]
async fn long_lists_have_pages(world: World) {
    let (ada, place, browser) = start(&world).await;
    for number in 0..25 {
        world.key(&ada, &place, &json!({"name": format!("k{number:02}")})).await;
    }
    let keys = format!("{}/api-keys", project(&place));
    let answer = browser.get(&world, &format!("{keys}?search=k")).send().await;
    check_size(&answer, &keys);
    assert_eq!(answer.text.matches("<th scope=\"row\">").count(), 20, "{}", answer.text);
    assert!(
        answer.text.contains("25 keys, page 1 of 2") && answer.text.contains("?page=2&#38;search=k"),
        "{}",
        answer.text
    );
    let last = browser.page(&world, &format!("{keys}?page=2&search=k")).await;
    assert_eq!(last.matches("<th scope=\"row\">").count(), 5, "{last}");
}
