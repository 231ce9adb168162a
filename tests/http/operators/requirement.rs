//! Organizations and servers that require a second factor.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::tenants::roles::{OrganizationRole, ProjectRole};

use support::http::Call;
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

const REQUIRED: (u16, &str) = (403, "second_factor_enrolment_required");

async fn is_required(call: Call, what: &str) {
    let answer = call.send().await;
    assert_eq!((answer.status, answer.code().as_str()), REQUIRED, "{what}");
}

fn set(world: &World, place: &Place, bearer: &str, value: bool) -> Call {
    let body = json!({"settings": {"require_second_factor": value}});
    world.call(Method::PUT, &place.organization_path()).bearer(bearer).json(&body)
}

/// Creates an organization of Ada, who has a second factor. Bob, who has none, is an admin of it and a
/// project owner.
async fn scene(world: &World) -> (TestUser, TestUser, Place) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    world.join_organization(&place, &bob, OrganizationRole::Admin).await;
    world.join_project(&place, &bob, ProjectRole::Owner).await;
    world.add_authenticator(&ada.access_token).await;
    (ada, bob, place)
}

#[on_each_database]
async fn members_without_a_factor_get_in_nowhere_and_keys_go_on(world: World) {
    let (ada, bob, place) = scene(&world).await;
    let eve = world.user("eve").await;
    let (key_id, key) = world.key(&bob, &place, &json!({"name": "Prod"})).await;
    let changed = set(&world, &place, &ada.access_token, true).data().await;
    assert_eq!(changed["settings"]["require_second_factor"], true);

    let (organization, project) = (place.organization_path(), place.project_path());
    for path in [
        organization.clone(),
        format!("{organization}/members"),
        format!("{organization}/projects"),
        format!("{organization}/invitations"),
        format!("{organization}/billing/summary"),
        project.clone(),
        format!("{project}/usage"),
        format!("{project}/members"),
        format!("{project}/api-keys"),
        format!("{project}/api-keys/{key_id}"),
    ] {
        is_required(world.get(&path).bearer(&bob.access_token), &path).await;
        world.get(&path).bearer(&ada.access_token).data().await;
        let stranger = world.get(&path).bearer(&eve.access_token).refused().await;
        assert_eq!(stranger, (403, "insufficient_role".to_owned()), "strangers learn nothing");
    }
    for (method, path, body) in [
        (Method::POST, format!("{organization}/projects"), json!({"name": "Other"})),
        (
            Method::POST,
            format!("{organization}/invitations"),
            json!({"email": "x@example.com", "role": "member"}),
        ),
        (Method::PUT, format!("{organization}/members/{}", bob.id), json!({"role": "member"})),
        (Method::DELETE, format!("{organization}/members/{}", bob.id), json!({})),
        (Method::DELETE, format!("{project}/api-keys/{key_id}"), json!({})),
        (Method::PUT, format!("{project}/members/{}", bob.id), json!({"role": "viewer"})),
    ] {
        is_required(world.call(method, &path).bearer(&bob.access_token).json(&body), &path).await;
    }
    let chat = json!({"model": "svc-1", "messages": [{"role": "user", "content": "Hi"}]});
    let call = world.post("/v1/chat/completions", &chat).bearer(&bob.access_token);
    let call = call.header("openai-organization", &place.organization);
    is_required(call.header("openai-project", &place.project), "a model call").await;
    let question = json!({"credential": bob.access_token, "operation": "chat", "model": "svc-1", "max_tokens": 9,
        "organization_id": place.organization, "project_id": place.project});
    let answer = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!(answer["code"], REQUIRED.1, "{answer}");
    // The list contains the organization's name, and a key of the same user still works.
    let list = world.get("/v1/organizations").bearer(&bob.access_token).data().await;
    assert_eq!(list["organizations"][0]["name"], "Acme");
    world.post("/v1/chat/completions", &chat).bearer(&key).bare().await;
    world.get(&project).bearer(&key).data().await;

    world.add_authenticator(&bob.access_token).await;
    world.get(&project).bearer(&bob.access_token).data().await;
    set(&world, &place, &ada.access_token, false).data().await;
}

#[on_each_database]
async fn an_owner_in_person_who_has_one_requires_it(world: World) {
    let (ada, bob, place) = scene(&world).await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "Prod"})).await;
    let role = (403, "insufficient_role".to_owned());
    assert_eq!(set(&world, &place, &bob.access_token, true).refused().await, role, "an admin");
    assert_eq!(set(&world, &place, &key, true).refused().await, role, "a key of an owner");
    let carl = world.user("carl").await;
    world.join_organization(&place, &carl, OrganizationRole::Owner).await;
    is_required(set(&world, &place, &carl.access_token, true), "an owner without a second factor").await;
    world.clock.advance_ms(15 * MINUTE_MS);
    let stale = set(&world, &place, &ada.access_token, true).refused().await;
    assert_eq!(stale, (403, "reauthentication_required".to_owned()));
    // A request that changes nothing needs no proof.
    set(&world, &place, &ada.access_token, false).data().await;
    let fresh = world.session(ada.id).await;
    set(&world, &place, &fresh.access_token, true).data().await;
    let read = world.get(&place.organization_path()).bearer(&ada.access_token).data().await;
    assert_eq!(read["settings"]["require_second_factor"], true);
}

#[on_each_database]
async fn console_shows_the_name_and_the_way_to_a_factor(world: World) {
    let (ada, bob, place) = scene(&world).await;
    let settings = format!("/console/organizations/{}/settings", place.organization);
    let asking = format!("{settings}/second-factor");
    let owner = world.browser(ada.id).await;
    assert!(owner.page(&world, &settings).await.contains(">optional<"));
    assert!(owner.page(&world, &asking).await.contains("Require a second factor"));
    let to = owner.done(&world, &asking, &[("is_required", "true")]).await;
    assert_eq!(to, format!("{settings}?done=organization_changed"));

    let browser = world.browser(bob.id).await;
    for path in ["", "/projects", "/members", "/billing", "/settings"] {
        let path = format!("/console/organizations/{}{path}", place.organization);
        let answer = browser.get(&world, &path).send().await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text.contains("Acme requires a second factor."), "{}", answer.text);
        assert!(answer.text.contains("href=\"/console/account/second-factor\""));
        assert!(
            !answer.text.contains("Acme project") && !answer.text.contains("class=\"side\""),
            "{}",
            answer.text
        );
    }
    let answer = browser.get(&world, &asking).send().await;
    assert_eq!(answer.status, 403);
    // Without a recent proof, the user is redirected to the page that asks for one, and then back.
    world.clock.advance_ms(15 * MINUTE_MS);
    let stale = owner.get(&world, &asking).send().await;
    let next = format!("/console/reauthenticate?next={asking}");
    assert_eq!((stale.status, stale.header("location")), (303, next.as_str()));
    let stale = owner.post(&world, &asking, &[("is_required", "false")]).send().await;
    assert_eq!((stale.status, stale.header("location")), (303, next.as_str()));
}

#[on_each_database]
fn everyone_may_be_asked_for_one(database: Database) {
    let settings = [("TOLLKEEPER_SIGN_IN__REQUIRE_SECOND_FACTOR", "everyone")];
    database.run(&settings, async |world| {
        let ada = world.user("ada").await;
        let token = &ada.access_token;
        for path in ["/v1/organizations", "/v1/models"] {
            is_required(world.get(path).bearer(token), path).await;
        }
        is_required(world.post("/v1/organizations", &json!({"name": "Acme"})).bearer(token), "create").await;
        let browser = world.browser(ada.id).await;
        let page = browser.get(&world, "/console/organizations").send().await;
        assert_eq!((page.status, page.text.contains("Add a second factor")), (403, true));
        // Users can still open their own accounts, because otherwise no one could add a factor.
        let me: Value = world.get("/v1/auth/me").bearer(token).data().await;
        assert_eq!(me["user"]["username"], "ada");
        browser.page(&world, "/console/account/second-factor").await;
        world.add_authenticator(token).await;
        world.post("/v1/organizations", &json!({"name": "Acme"})).bearer(token).data().await;
    });
}
