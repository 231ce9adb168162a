//! Members of an organization and invitations.

use serde_json::json;
use tollkeeper::clock::MINUTE_MS;
use tollkeeper::tenants::roles::OrganizationRole::{Admin, Member};
use tollkeeper::tenants::roles::ProjectRole::Developer;

use support::console::{Browser, assert_escaped, hidden};
use support::http::Answer;
use support::on_each_database;
use support::world::{Place, TestUser, World};

fn members(place: &Place) -> String {
    format!("/console/organizations/{}/members", place.organization)
}

fn member(place: &Place, user: &TestUser) -> String {
    format!("{}/{}", members(place), user.id)
}

async fn joined(
    world: &World,
    place: &Place,
    name: &str,
    role: tollkeeper::tenants::roles::OrganizationRole,
) -> TestUser {
    let user = world.user(name).await;
    world.join_organization(place, &user, role).await;
    world.clock.advance_ms(1);
    user
}

/// Checks status and heading of a page with an error.
fn assert_error(answer: &Answer, status: u16, words: &str) {
    assert_eq!((answer.status, answer.text.contains(words)), (status, true), "{words}: {}", answer.text);
    assert!(answer.text.len() < 50_000);
}

#[on_each_database]
async fn list_shows_what_the_role_may_do(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (bob, cy) = (joined(&world, &place, "bob", Admin).await, joined(&world, &place, "cy", Member).await);
    let stranger = world.user("stranger").await;
    let browser = world.browser(ada.id).await;
    let page = browser.page(&world, &members(&place)).await;
    for part in ["ada", "bob@example.com", "cy@example.com", "Invite a person", "Leave", "3 members", "You"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.len() < 50_000);
    let found = async |query: &str| {
        let page = browser.page(&world, &format!("{}?{query}", members(&place))).await;
        ["wide\">ada@", "wide\">bob@", "wide\">cy@", "Nothing matches."].map(|part| page.contains(part))
    };
    assert_eq!(found("search=B%4FB&role=").await, [false, true, false, false]);
    assert_eq!(found("role=member").await, [false, false, true, false]);
    assert_eq!(found("role=owner&search=cy").await, [false, false, false, true]);

    // A member sees the other members, and may leave.
    let browser = world.browser(cy.id).await;
    let page = browser.page(&world, &members(&place)).await;
    assert!(page.contains("bob@example.com") && page.contains(&format!("{}/remove", member(&place, &cy))));
    for part in ["Invite a person", "Invitations", "Audit log", "Settings", "Remove"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    let refused = browser.get(&world, &member(&place, &bob)).send().await;
    assert_error(&refused, 403, "Your role in Acme is member");
    assert!(refused.text.contains("An owner of the organization can change this: ada."), "{}", refused.text);
    for path in ["invite", "invitations"] {
        assert_eq!(browser.get(&world, &format!("{}/{path}", members(&place))).send().await.status, 403);
    }
    // Users outside the organization see nothing.
    let browser = world.browser(stranger.id).await;
    let refused = browser.get(&world, &members(&place)).send().await;
    assert_eq!(refused.status, 403);
    assert!(!refused.text.contains("that: ada") && !refused.text.contains("Acme"), "{}", refused.text);
}

#[on_each_database]
async fn role_is_changed_once_and_conflicts_are_shown(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (bob, cy) = (joined(&world, &place, "bob", Admin).await, joined(&world, &place, "cy", Member).await);
    let other = world.place(&bob, "Other").await;
    let browser = world.browser(ada.id).await;
    let path = member(&place, &cy);
    let page = browser.page(&world, &path).await;
    let version = hidden(&page, "version");
    let form = |role| [("version", version.as_str()), ("role", role)];
    for _ in 0..2 {
        // A form that is sent twice makes one change.
        let done = browser.done(&world, &path, &form("admin")).await;
        assert_eq!(done, format!("{}?done=role_changed", members(&place)));
    }
    assert!(
        browser
            .page(&world, &format!("{}?done=role_changed", members(&place)))
            .await
            .contains("The role is changed.")
    );
    let conflict = browser.post(&world, &path, &form("owner")).send().await;
    assert_error(&conflict, 409, "admin");
    let version = hidden(&conflict.text, "version");
    browser.done(&world, &path, &[("version", &version), ("role", "owner")]).await;
    let wrong = browser.post(&world, &path, &[("version", &version), ("role", "king")]).send().await;
    assert_eq!(wrong.status, 409, "{}", wrong.text);
    let version = hidden(&browser.page(&world, &path).await, "version");
    let wrong = browser.post(&world, &path, &[("version", &version), ("role", "")]).send().await;
    assert_error(&wrong, 400, "Role can&#39;t be empty.");

    // An admin can't change or remove an owner.
    let admin = world.browser(bob.id).await;
    let page = admin.page(&world, &member(&place, &ada)).await;
    assert!(page.contains("Only an owner can change") && !page.contains("<select"), "{page}");
    let page = admin.page(&world, &format!("{}/remove", member(&place, &ada))).await;
    assert!(page.contains("Your role does not allow this.") && !page.contains("class=\"bad\""), "{page}");
    let version = hidden(&admin.page(&world, &member(&place, &bob)).await, "version");
    let form = [("version", version.as_str()), ("role", "owner")];
    assert_eq!(admin.post(&world, &member(&place, &bob), &form).send().await.status, 403);
    // A member of another organization isn't found in this one.
    let missing = admin.get(&world, &member(&other, &cy)).send().await;
    assert_error(&missing, 404, "Page not found");
}

/// An unattended session makes no owner, and asks for a proof that leads back.
#[on_each_database]
async fn old_session_makes_no_owner(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let cy = joined(&world, &place, "cy", Member).await;
    let mut browser = world.browser(ada.id).await;
    let path = member(&place, &cy);
    world.clock.advance_ms(15 * MINUTE_MS);
    let version = hidden(&browser.page(&world, &path).await, "version");
    let form = [("version", version.as_str()), ("role", "owner")];
    let again = "/console/reauthenticate";
    let answer = browser.post(&world, &path, &form).send().await;
    assert_eq!((answer.status, answer.header("location").split('?').next()), (303, Some(again)));
    let organizations = world.get("/v1/organizations").bearer(&cy.access_token).data().await;
    assert_eq!(organizations["organizations"][0]["role"], "member", "{organizations}");
    let proof = [("password", support::world::PASSWORD), ("next", path.as_str())];
    let answer = browser.post(&world, again, &proof).send().await;
    assert_eq!(answer.header("location"), path, "{}", answer.text);
    browser.take(&answer);
    browser.done(&world, &path, &form).await;
}

#[on_each_database]
async fn asking_page_says_what_goes_and_what_goes_on(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let other = world.place(&ada, "Other").await;
    let cy = joined(&world, &place, "cy", Admin).await;
    world.join_project(&place, &cy, Developer).await;
    world.join_organization(&other, &cy, Admin).await;
    world.key(&cy, &place, &json!({"name": "Checkout", "permissions": ["chat"]})).await;
    world.key(&cy, &other, &json!({"name": "Elsewhere", "permissions": ["chat"]})).await;
    world.key(&ada, &place, &json!({"name": "Of Ada", "permissions": ["chat"]})).await;
    let browser = world.browser(ada.id).await;
    let path = format!("{}/remove", member(&place, &cy));
    let page = browser.page(&world, &path).await;
    for part in ["Remove cy from Acme?", "Acme project", "as developer", "Checkout", "can still call models"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("Elsewhere") && !page.contains("Of Ada"), "{page}");
    let done = browser.done(&world, &path, &[]).await;
    assert!(browser.page(&world, &done).await.contains("The member is removed."));
    assert!(!browser.page(&world, &members(&place)).await.contains("cy@"));
    assert_eq!(browser.post(&world, &path, &[]).send().await.status, 404, "sent twice");

    // The last owner can't be removed, and the page explains that.
    let own = format!("{}/remove", member(&place, &ada));
    let page = browser.page(&world, &own).await;
    assert!(page.contains("This is the last owner") && !page.contains("<button class=\"bad\""), "{page}");
    let refused = browser.post(&world, &own, &[]).send().await;
    assert_error(&refused, 409, "Make another member an owner first");
    assert!(browser.page(&world, &member(&place, &ada)).await.contains("the last owner of the organization"));
    // Other members can leave.
    let leaving = world.browser(cy.id).await;
    let path = format!("{}/remove", member(&other, &cy));
    assert!(leaving.page(&world, &path).await.contains("Leave Other?"));
    let done = leaving.done(&world, &path, &[]).await;
    assert_eq!(done, "/console/organizations?done=organization_left");
    assert!(leaving.page(&world, &done).await.contains("You left the organization."));
    assert_eq!(leaving.get(&world, &members(&other)).send().await.status, 403);
}

fn mails(world: &World) -> usize {
    std::fs::read_dir(world.data_dir.join("mail")).map_or(0, Iterator::count)
}

async fn send_mail(world: &World) -> usize {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    mails(world)
}

#[on_each_database]
async fn invitation_is_sent_again_and_withdrawn(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = joined(&world, &place, "bob", Admin).await;
    let (browser, admin) = (world.browser(ada.id).await, world.browser(bob.id).await);
    let (invite, list) = (format!("{}/invite", members(&place)), format!("{}/invitations", members(&place)));
    assert!(browser.page(&world, &list).await.contains("Pending invitations appear here."));
    let page = browser.page(&world, &invite).await;
    assert!(
        page.contains("<option value=\"member\" selected>") && page.contains("value=\"owner\""),
        "{page}"
    );
    assert!(!admin.page(&world, &invite).await.contains("value=\"owner\""), "an admin can't add owners");

    // The page that shows a mistake keeps the typed values.
    let fields = [("email", "guest@"), ("role", "admin"), ("message", "Come <b>soon</b> \"now\"")];
    let wrong = browser.post(&world, &invite, &fields).send().await;
    assert_error(&wrong, 400, "id=\"email-mistake\"");
    assert!(
        wrong.text.contains("value=\"guest@\"") && wrong.text.contains("<option value=\"admin\" selected>")
    );
    assert_escaped(&wrong.text, "Come <b>soon</b> \"now\"");
    let fields = [("email", "guest@example.com"), ("role", "admin"), ("message", "")];
    let done = browser.done(&world, &invite, &fields).await;
    let page = browser.page(&world, &done).await;
    assert!(page.contains("Invitation sent.") && page.contains("guest@example.com"), "{page}");
    // Two requests create one invitation, and the page links to it.
    let again = browser.post(&world, &invite, &fields).send().await;
    assert_error(&again, 409, "This address already has an open invitation.");
    assert!(again.text.contains(&format!("{list}?status=pending")), "{}", again.text);
    let member = [("email", "bob@example.com"), ("role", "member")];
    assert_error(&browser.post(&world, &invite, &member).send().await, 409, "This user is already a member.");
    let owner = [("email", "x@example.com"), ("role", "owner")];
    assert_eq!(admin.post(&world, &invite, &owner).send().await.status, 403);

    // Resending sends one e-mail, regardless of how often the form is sent.
    let before = send_mail(&world).await;
    world.clock.advance_ms(60_000);
    let page = browser.page(&world, &list).await;
    let expires_at = hidden(&page, "expires_at");
    let id = page.split("/invitations/inv_").nth(1).unwrap().split('/').next().unwrap();
    let path = format!("{list}/inv_{id}");
    let resend = format!("{path}/resend");
    let fields = [("expires_at", expires_at.as_str())];
    assert_eq!(browser.done(&world, &resend, &fields).await, format!("{list}?done=invitation_resent"));
    let second = browser.done(&world, &resend, &fields).await;
    assert_eq!(second, format!("{list}?done=invitation_resent_before"));
    assert_eq!(send_mail(&world).await, before + 1);
    assert_ne!(hidden(&browser.page(&world, &list).await, "expires_at"), expires_at);
    assert_eq!(browser.post(&world, &resend, &[]).send().await.status, 400);

    // The filters of the list, and a withdrawal.
    for (status, is_there) in [("pending", true), ("expired", false)] {
        let page = browser.page(&world, &format!("{list}?status={status}")).await;
        assert_eq!((page.contains("guest@"), page.contains("Nothing matches.")), (is_there, !is_there));
    }
    let done = browser.done(&world, &format!("{path}/withdraw"), &[]).await;
    assert_eq!(done, format!("{list}?done=invitation_withdrawn"));
    assert_eq!(browser.post(&world, &format!("{path}/withdraw"), &[]).send().await.status, 404);
    assert!(!browser.page(&world, &list).await.contains("guest@"));
}

#[on_each_database]
async fn invitations_to_a_role_beyond_ones_own_are_only_shown(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let bob = joined(&world, &place, "bob", Admin).await;
    let owner = tollkeeper::tenants::roles::OrganizationRole::Owner;
    let id = world.insert_invitation(&place, ("g@example.com", "g@example.com"), owner, ada.id).await;
    let list = format!("{}/invitations", members(&place));
    let admin = world.browser(bob.id).await;
    let page = admin.page(&world, &list).await;
    assert!(page.contains("g@example.com") && !page.contains("/resend"), "{page}");
    let withdraw = format!("{list}/{id}/withdraw");
    assert_eq!(admin.post(&world, &withdraw, &[]).send().await.status, 403);
    let other = world.place(&bob, "Other").await;
    let elsewhere = format!("{}/invitations/{id}/withdraw", members(&other));
    assert_eq!(admin.post(&world, &elsewhere, &[]).send().await.status, 404);
    let stranger: Browser = world.browser(world.user("eve").await.id).await;
    assert_eq!(stranger.get(&world, &list).send().await.status, 403);
}
