//! Members of a project.

use serde_json::json;
use tollkeeper::tenants::roles::OrganizationRole::Member;
use tollkeeper::tenants::roles::ProjectRole::{self, Admin, Viewer};

use support::console::hidden;
use support::on_each_database;
use support::world::{Place, TestUser, World};

fn members(place: &Place) -> String {
    format!("/console/organizations/{}/projects/{}/members", place.organization, place.project)
}

fn member(place: &Place, user: &TestUser) -> String {
    format!("{}/{}", members(place), user.id)
}

async fn colleague(world: &World, place: &Place, name: &str, role: Option<ProjectRole>) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, Member).await;
    if let Some(role) = role {
        world.join_project(place, &user, role).await;
    }
    world.clock.advance_ms(1);
    user
}

#[on_each_database]
async fn member_is_added_from_the_organization(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = colleague(&world, &place, "bob", Some(Admin)).await;
    let cy = colleague(&world, &place, "cy", None).await;
    let stranger = world.user("stranger").await;
    let browser = world.browser(bob.id).await;
    let list = members(&place);
    let page = browser.page(&world, &list).await;
    assert!(page.contains("ada@") && page.contains("bob@") && page.contains("2 members"), "{page}");
    assert!(!page.contains("cy@") && page.contains("Add a member"), "{page}");
    let new = format!("{list}/new");
    let page = browser.page(&world, &new).await;
    assert!(page.contains("cy@") && !page.contains("stranger@") && !page.contains("ada@"), "{page}");
    assert!(page.contains("value=\"developer\"") && !page.contains("value=\"owner\""), "{page}");
    assert!(!page.contains("/members/invite"), "a member can't invite");
    assert!(browser.page(&world, &format!("{new}?search=nobody")).await.contains("Nothing matches."));

    let nobody = browser.post(&world, &new, &[("role", "viewer")]).send().await;
    assert_eq!(
        (nobody.status, nobody.text.contains("Person can&#39;t be empty.")),
        (400, true),
        "{}",
        nobody.text
    );
    let cy_id = cy.id.to_string();
    let form = [("user_id", cy_id.as_str()), ("role", "developer")];
    assert_eq!(browser.done(&world, &new, &form).await, format!("{list}?done=project_member_added"));
    assert_eq!(browser.done(&world, &new, &form).await, format!("{list}?done=project_member_there"));
    assert!(browser.page(&world, &format!("{list}?role=developer")).await.contains("cy@"));
    assert!(
        browser
            .page(&world, &new)
            .await
            .contains("All members of the organization are already in this project.")
    );
    let stranger_id = stranger.id.to_string();
    let form = [("user_id", stranger_id.as_str()), ("role", "viewer")];
    assert_eq!(browser.post(&world, &new, &form).send().await.status, 403);

    // A developer sees the members, but can't manage them.
    let developer = world.browser(cy.id).await;
    let page = developer.page(&world, &list).await;
    assert!(page.contains("bob@") && !page.contains("Add a member") && !page.contains("Remove"), "{page}");
    for path in [new.clone(), member(&place, &bob)] {
        assert_eq!(developer.get(&world, &path).send().await.status, 403, "{path}");
    }
    let outside = world.browser(stranger.id).await;
    assert_eq!(outside.get(&world, &list).send().await.status, 403);
}

#[on_each_database]
async fn role_of_a_project_member_is_changed_and_ends(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let other = world.place(&ada, "Other").await;
    let bob = colleague(&world, &place, "bob", Some(Admin)).await;
    let cy = colleague(&world, &place, "cy", Some(Viewer)).await;
    world.key(&bob, &place, &json!({"name": "Checkout", "permissions": ["chat"]})).await;
    let (browser, admin) = (world.browser(ada.id).await, world.browser(bob.id).await);
    let path = member(&place, &cy);
    let version = hidden(&browser.page(&world, &path).await, "version");
    let form = |role| [("version", version.as_str()), ("role", role)];
    for _ in 0..2 {
        let done = browser.done(&world, &path, &form("owner")).await;
        assert_eq!(done, format!("{}?done=role_changed", members(&place)));
    }
    assert_eq!(browser.post(&world, &path, &form("viewer")).send().await.status, 409);
    let page = admin.page(&world, &path).await;
    assert!(page.contains("Only an owner can change"), "{page}");
    let version = hidden(&browser.page(&world, &path).await, "version");
    let form = [("version", version.as_str()), ("role", "developer")];
    assert_eq!(admin.post(&world, &path, &form).send().await.status, 403);
    let wrong = browser.post(&world, &path, &[("version", &version), ("role", "")]).send().await;
    assert_eq!((wrong.status, wrong.text.contains("Role can&#39;t be empty.")), (400, true));
    assert_eq!(browser.get(&world, &member(&other, &cy)).send().await.status, 404);

    let path = format!("{}/remove", member(&place, &bob));
    let page = browser.page(&world, &path).await;
    assert!(page.contains("Remove bob from Acme project?") && page.contains("Checkout"), "{page}");
    browser.done(&world, &path, &[]).await;
    assert_eq!(browser.post(&world, &path, &[]).send().await.status, 404, "sent twice");
    let leaving = world.browser(cy.id).await;
    let path = format!("{}/remove", member(&place, &cy));
    assert!(leaving.page(&world, &path).await.contains("Leave Acme project?"));
    let done = leaving.done(&world, &path, &[]).await;
    assert_eq!(done, format!("/console/organizations/{}?done=project_left", place.organization));
    assert!(leaving.page(&world, &done).await.contains("You left the project."));
    assert_eq!(leaving.get(&world, &members(&place)).send().await.status, 403);
}
