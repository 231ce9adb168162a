//! Memberships that sign-ons create, change and end.

use serde_json::{Value, json};

use super::{START, person, with_provider};
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::world::{Place, TestUser, World};
use support::{Database, on_each_database};

/// Returns the settings of a provider whose groups map to roles in an organization.
fn settings(place: &Place, more: &str) -> String {
    format!(
        "provision = \"any\"\norganization = \"{}\"\ngroups_claim = \"groups\"\n\
         roles = {{ staff = \"member\", admins = \"admin\", boss = \"owner\" }}\nmap_owner = true\n{more}",
        place.organization
    )
}

/// Signs on a user with these groups, and returns their role.
async fn role(world: &World, provider: &IdentityProvider, sub: &str, groups: &Value) -> Option<String> {
    let mut claims = person(sub, &format!("person{sub}@example.org"));
    if !groups.is_null() {
        claims["groups"] = groups.clone();
    }
    let mut jar = Jar::default();
    let answer = provider.sign_on(world, &mut jar, START, &claims).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let data = jar.who(world).await.unwrap();
    data["organizations"][0]["role"].as_str().map(str::to_owned)
}

async fn set_up(
    world: &World,
    provider: &IdentityProvider,
    file: &ProvidersFile,
    more: &str,
) -> (TestUser, Place) {
    let owner = world.user("owner").await;
    let place = world.place(&owner, "acme").await;
    file.write(world, &[("acme", &provider.issuer, &settings(&place, more))]);
    (owner, place)
}

#[on_each_database]
fn groups_give_roles_at_each_sign_on(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        set_up(&world, provider, file, "").await;
        for (groups, expected) in [
            (json!(null), "member"),
            (json!(["staff", "admins"]), "admin"),
            // The claims contain no groups: nothing changes.
            (json!(null), "admin"),
            (json!({"admins": true}), "admin"),
            (json!([]), "member"),
            (json!(["boss"]), "owner"),
            (json!(["other"]), "member"),
        ] {
            assert_eq!(role(&world, provider, "1", &groups).await.as_deref(), Some(expected), "{groups}");
        }
    });
}

#[on_each_database]
fn an_exclusive_provider_ends_memberships(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        set_up(&world, provider, file, "exclusive = true").await;
        for (groups, expected) in [
            (json!([]), None),
            (json!(["staff"]), Some("member")),
            (json!(null), Some("member")),
            (json!(["other"]), None),
            (json!(null), None),
            (json!(["admins"]), Some("admin")),
        ] {
            assert_eq!(role(&world, provider, "1", &groups).await.as_deref(), expected, "{groups}");
        }
    });
}

#[on_each_database]
fn memberships_that_people_made_stay_as_they_are(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let (owner, _) = set_up(&world, provider, file, "exclusive = true").await;
        world.connection(owner.id, &provider.issuer, "boss").await;
        for groups in [json!([]), json!(["staff"]), json!(null)] {
            assert_eq!(role(&world, provider, "boss", &groups).await.as_deref(), Some("owner"), "{groups}");
        }
    });
}

#[on_each_database]
fn the_last_owner_stays(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let (owner, place) = set_up(&world, provider, file, "exclusive = true").await;
        assert_eq!(role(&world, provider, "1", &json!(["boss"])).await.as_deref(), Some("owner"));
        // Now the managed owner is the only owner.
        let path = format!("{}/members/{}", place.organization_path(), owner.id);
        world.call(http::Method::DELETE, &path).bearer(&owner.access_token).data().await;
        for groups in [json!([]), json!(["staff"])] {
            assert_eq!(role(&world, provider, "1", &groups).await.as_deref(), Some("owner"), "{groups}");
        }
    });
}

#[on_each_database]
fn an_organization_that_doesnt_exist_keeps_nobody_out(database: Database) {
    with_provider(
        database,
        "provision = \"any\"\norganization = \"org_01hzzzzzzzzzzzzzzzzzzzzzzz\"",
        async |world, provider, _| {
            assert_eq!(role(&world, provider, "1", &json!(null)).await, None);
        },
    );
}
