//! The setting that decides who may register: everyone, people with an invitation, or no one.

use http::Method;
use serde_json::json;
use tollkeeper::clock::DAY_MS;
use tollkeeper::tenants::roles::OrganizationRole;

use support::console::Browser;
use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, World};

fn register(world: &World, name: &str) -> Call {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    world.post("/v1/auth/register", &body)
}

const CLOSED: (u16, &str) = (403, "registration_closed");

async fn is_closed(call: Call) -> String {
    let answer = call.send().await;
    assert_eq!((answer.status, answer.code().as_str()), CLOSED);
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[on_each_database]
async fn everybody_registers_by_default(world: World) {
    register(&world, "ada").data().await;
    let page = Browser::signed_out().page(&world, "/console/sign-in").await;
    assert!(page.contains("/console/register"), "{page}");
}

#[on_each_database(&[("TOLLKEEPER_REGISTRATION", "closed")])]
async fn nobody_registers_where_it_is_closed(world: World) {
    let message = is_closed(register(&world, "ada")).await;
    assert!(message.contains("Ask your administrator"), "the message explains what to do: {message}");
    let browser = Browser::signed_out();
    let page = browser.page(&world, "/console/sign-in").await;
    assert!(!page.contains("/console/register"), "{page}");
    let page = browser.page(&world, "/console/register").await;
    assert!(page.contains("Sign-up is disabled.") && !page.contains("<form"), "{page}");
    let fields = [("email", "ada@example.com"), ("username", "ada"), ("password", PASSWORD)];
    let answer = browser.post(&world, "/console/register", &fields).send().await;
    assert_eq!(answer.status, 403);
    // An invitation changes nothing.
    let bob = world.user("bob").await;
    let place = world.place(&bob, "Acme").await;
    let address = ("ada@example.com", "ada@example.com");
    world.insert_invitation(&place, address, OrganizationRole::Member, bob.id).await;
    is_closed(register(&world, "ada")).await;
}

#[on_each_database(&[("TOLLKEEPER_REGISTRATION", "invited")])]
async fn an_open_invitation_lets_its_address_register(world: World) {
    let bob = world.user("bob").await;
    let place = world.place(&bob, "Acme").await;
    let message = is_closed(register(&world, "ada")).await;
    assert!(message.contains("invitation"), "{message}");
    let invite = async |name: &str| {
        let email = format!("{name}@example.com");
        let role = OrganizationRole::Member;
        world.insert_invitation(&place, (&email, &email), role, bob.id).await.to_string()
    };
    invite("ada").await;
    is_closed(register(&world, "eve")).await;
    let page = Browser::signed_out().page(&world, "/console/register").await;
    assert!(page.contains("You need an invitation") && page.contains("<form"), "{page}");
    register(&world, "ada").data().await;

    // Withdrawn and expired invitations don't count.
    let id = invite("carl").await;
    let path = format!("{}/invitations/{id}", place.organization_path());
    world.call(Method::DELETE, &path).bearer(&bob.access_token).data().await;
    is_closed(register(&world, "carl")).await;
    invite("dora").await;
    world.clock.advance_ms(DAY_MS);
    is_closed(register(&world, "dora")).await;
}
