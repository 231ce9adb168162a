//! Links on other sites can't start a sign-on, and no user is switched to another account without confirming
//! it.

use http::Method;
use serde_json::json;

use super::{START, connected, person, sessions, username, with_provider};
use support::identity_provider::Jar;
use support::world::PASSWORD;
use support::{Database, on_each_database};

const NEW: &str = "/console/account/connections/new/acme";
const PROVE: &str = "/console/reauthenticate/acme";

/// Each row: `Sec-Fetch-Site`, `Referer`, and whether a sign-on begins.
const FROM: [(Option<&str>, Option<&str>, bool); 9] = [
    (Some("same-origin"), None, true),
    (Some("same-site"), None, false),
    (Some("cross-site"), None, false),
    // An address that was typed, or a bookmark.
    (Some("none"), None, false),
    (Some("cross-site"), Some("http://127.0.0.1:8080/console/sign-in"), false),
    // Older browsers.
    (None, Some("http://127.0.0.1:8080/console/sign-in"), true),
    (None, Some("http://127.0.0.1:9999/console/sign-in"), false),
    (None, Some("https://evil.example/http://127.0.0.1:8080/"), false),
    (None, None, false),
];

#[on_each_database]
fn only_our_pages_begin_a_sign_on(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        world.user("ada").await;
        let mut ada = Jar::default();
        ada.sign_in(&world, "ada@example.com", PASSWORD).await;
        let pages = [
            (START, "/console/sign-in", Jar::default()),
            (NEW, "/console/account/connections", ada.clone()),
            (PROVE, "/console/reauthenticate", ada),
        ];
        for (path, page, jar) in pages {
            for (site, referer, begins) in FROM {
                let mut call = world.call(Method::GET, path).header("sec-fetch-mode", "navigate");
                for (name, value) in [("sec-fetch-site", site), ("referer", referer)] {
                    if let Some(value) = value {
                        call = call.header(name, value);
                    }
                }
                let mut jar = jar.clone();
                let answer = jar.send(call).await;
                let location = answer.header("location");
                assert_eq!(
                    location.starts_with(&provider.issuer),
                    begins,
                    "{path} {site:?} {referer:?}: {location}"
                );
                assert_eq!(jar.0.contains_key("tollkeeper-sign-on"), begins, "{path} {site:?} {referer:?}");
                // Otherwise, the redirect is to the page with the link.
                assert!(begins || location == page, "{path} {site:?} {referer:?}: {location}");
            }
        }
    });
}

/// A sign-in never redirects to the start of a sign-on, even if a link contains its path.
#[on_each_database]
fn sign_in_leads_to_no_beginning(database: Database) {
    with_provider(database, "", async |world, _, _| {
        world.user("ada").await;
        for next in [START, NEW, PROVE, "/console/sign-in/acme/callback?code=x"] {
            let mut jar = Jar::default();
            let form = [("email", "ada@example.com"), ("password", PASSWORD), ("next", next)];
            let answer = jar.post(&world, "/console/sign-in", &form).await;
            assert_eq!((answer.status, answer.header("location")), (303, "/console/"), "{next}");
        }
    });
}

#[on_each_database]
fn sign_on_of_another_person_leaves_who_is_signed_in(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let (bob, _) = (world.user("bob").await, world.user("ada").await);
        world.connection(bob.id, &provider.issuer, "7").await;
        let mut jar = Jar::default();
        jar.sign_in(&world, "ada@example.com", PASSWORD).await;
        let before = sessions(&world).await;
        // A user with an account, a user with the address of another account, and a user without either.
        for claims in
            [person("7", "bob@example.com"), person("8", "bob@example.com"), person("9", "new@example.com")]
        {
            let answer = provider.sign_on(&world, &mut jar, START, &claims).await;
            assert_eq!(answer.status, 400, "{claims}: {}", answer.text);
            assert!(answer.text.contains("Sign out first"), "{}", answer.text);
            assert_eq!(username(&world, &mut jar).await, "ada");
        }
        assert_eq!(sessions(&world).await, before);
        assert_eq!(connected(&world, &provider.issuer, "9").await, None);
        // Users can sign on again as themselves, for instance on a page that requires it.
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        jar.post(&world, "/console/account/connections/confirm", &[]).await;
        let answer = provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/"), "{}", answer.text);
        assert_eq!(username(&world, &mut jar).await, "ada");
    });
}

/// A victim's browser has the attacker's session at the provider: the page shows the attacker's name, and
/// nothing is connected without a confirmation.
#[on_each_database]
fn strangers_identity_gets_no_way_into_an_account(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        world.user("victim").await;
        let mut jar = Jar::default();
        // The provider hasn't verified the address.
        let claims = json!({"sub": "mallory", "email": "victim@example.com"});
        let answer = provider.sign_on(&world, &mut jar, START, &claims).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert!(!jar.0.contains_key("tollkeeper-connection"));
        let answer = jar.sign_in(&world, "victim@example.com", PASSWORD).await;
        assert_eq!(answer.header("location"), "/console/");
        assert_eq!(connected(&world, &provider.issuer, "mallory").await, None);
        // The victim clicked, but the attacker is signed in at the provider.
        let claims = json!({"sub": "mallory", "email": "mallory@evil.example", "name": "Mallory"});
        provider.sign_on(&world, &mut jar, NEW, &claims).await;
        let page = jar.get(&world, "/console/account/connections/confirm").await.text;
        assert!(page.contains("mallory@evil.example") && page.contains("Mallory"), "{page}");
        assert_eq!(connected(&world, &provider.issuer, "mallory").await, None);
    });
}

/// The browser is signed in here as the attacker, and at the provider as the victim, whose groups give a role: the page
/// names both, and the attacker's account gets no role by itself.
#[on_each_database]
fn strangers_account_gets_no_role_of_another_person_unasked(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let (owner, mallory) = (world.user("owner").await, world.user("mallory").await);
        let place = world.place(&owner, "Acme").await;
        let roles = format!(
            "provision = \"any\"\norganization = \"{}\"\ngroups_claim = \"groups\"\nroles = {{ admins = \"admin\" }}",
            place.organization
        );
        file.write(&world, &[("acme", &provider.issuer, &roles)]);
        let mut jar = Jar::default();
        jar.sign_in(&world, "mallory@example.com", PASSWORD).await;
        let mut claims = person("v", "victim@corp.example");
        claims["groups"] = json!(["admins"]);
        let answer = provider.sign_on(&world, &mut jar, NEW, &claims).await;
        assert_eq!(answer.header("location"), "/console/account/connections/confirm", "{}", answer.text);
        let page = jar.get(&world, "/console/account/connections/confirm").await.text;
        assert!(page.contains("victim@corp.example") && page.contains("mallory@example.com"), "{page}");
        assert_eq!(connected(&world, &provider.issuer, "v").await, None);
        let organizations = jar.who(&world).await.unwrap()["organizations"].clone();
        assert_eq!(organizations, json!([]), "{}", mallory.id);
        // Neither does a sign-on, which leaves the session as well.
        let answer = provider.sign_on(&world, &mut jar, START, &claims).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert_eq!(jar.who(&world).await.unwrap()["organizations"], json!([]));
    });
}
