//! Connections of an account, which its user adds and removes.

use http::Method;
use serde_json::json;
use tollkeeper::accounts::store;

use super::{START, connected, person, sessions, subjects, with_provider};
use crate::console::passkeys;
use support::console::{Browser, COOKIE};
use support::identity_provider::Jar;
use support::world::PASSWORD;
use support::{Database, on_each_database};

const NEW: &str = "/console/account/connections/new/acme";
const PAGE: &str = "/console/account/connections";
const CONFIRM: &str = "/console/account/connections/confirm";

#[on_each_database]
fn a_person_connects_and_disconnects(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        let mut jar = Jar::default();
        jar.sign_in(&world, "ada@example.com", PASSWORD).await;
        // The address that the provider claims doesn't matter.
        let claims = json!({"sub": "1", "email": "other@example.org"});
        let answer = provider.sign_on(&world, &mut jar, NEW, &claims).await;
        assert_eq!(answer.header("location"), CONFIRM, "{}", answer.text);
        // Nothing is connected until the user has seen and confirmed the identity at the provider.
        let page = jar.get(&world, CONFIRM).await.text;
        assert!(page.contains("ada@example.com") && page.contains("other@example.org"), "{page}");
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
        let answer = jar.post(&world, CONFIRM, &[]).await;
        assert_eq!(answer.header("location"), format!("{PAGE}?done=connected"), "{}", answer.text);
        assert!(!jar.0.contains_key("tollkeeper-connection"));
        let page = jar.get(&world, PAGE).await.text;
        assert!(page.contains("other@example.org") && page.contains("Disconnect"), "{page}");
        let path = "/v1/auth/connections";
        let list = world.get(path).bearer(&ada.access_token).data().await;
        let [connection] = list["connections"].as_array().unwrap().as_slice() else { panic!("{list}") };
        assert_eq!(
            (&connection["provider"], &connection["email"]),
            (&json!("acme"), &json!("other@example.org"))
        );
        // A session that the connection opened ends when the connection is removed.
        let mut other = Jar::default();
        provider.sign_on(&world, &mut other, START, &claims).await;
        assert!(other.who(&world).await.is_some());
        let id = connection["id"].as_str().unwrap();
        let answer = jar.post(&world, &format!("{PAGE}/{id}/delete"), &[]).await;
        assert_eq!(answer.header("location"), format!("{PAGE}?done=disconnected"), "{}", answer.text);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
        assert!(other.who(&world).await.is_none() && jar.who(&world).await.is_some());
        let again =
            world.call(Method::DELETE, &format!("{path}/{id}")).bearer(&ada.access_token).refused().await;
        assert_eq!(again, (404, "connection_not_found".to_owned()));
        let expected =
            ["A sign-in method was added to your account", "A sign-in method was removed from your account"];
        assert_eq!(subjects(&world, "ada@example.com").await, expected);
    });
}

#[on_each_database]
fn connecting_takes_a_fresh_session_of_the_same_person(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let bob = world.user("bob").await;
        world.user("ada").await;
        let mut jar = Jar::default();
        jar.sign_in(&world, "ada@example.com", PASSWORD).await;
        let asked = jar.begin(&world, NEW).await;
        // Meanwhile, another user has signed in with this browser.
        let mut swapped = jar.clone();
        let mut bobs = Jar::default();
        bobs.sign_in(&world, "bob@example.com", PASSWORD).await;
        swapped.0.insert("tollkeeper".to_owned(), bobs.0["tollkeeper"].clone());
        provider.set_token(&provider.sign(&provider.claims(&world, &asked["nonce"], &json!({}))));
        let answer = swapped.get(&world, &provider.callback(&asked)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        // The browser is no longer signed in.
        let mut out = jar.clone();
        out.0.remove("tollkeeper");
        assert_eq!(out.get(&world, &provider.callback(&asked)).await.status, 400);
        // The identity belongs to another account.
        world.connection(bob.id, &provider.issuer, "7").await;
        let answer = provider.sign_on(&world, &mut jar, NEW, &json!({"sub": "7"})).await;
        assert_eq!(answer.status, 409, "{}", answer.text);
        assert_eq!(connected(&world, &provider.issuer, "7").await, Some(bob.id));
        // The session is no longer fresh, either at the beginning or when the answer arrives.
        let asked = jar.begin(&world, NEW).await;
        world.clock.advance_ms(9 * 60_000);
        let mut late = jar.clone();
        world.clock.advance_ms(7 * 60_000);
        assert!(late.click(&world, NEW).await.header("location").starts_with("/console/reauthenticate"));
        provider.set_token(&provider.sign(&provider.claims(&world, &asked["nonce"], &json!({}))));
        assert_eq!(late.get(&world, &provider.callback(&asked)).await.status, 400);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
    });
}

#[on_each_database]
fn an_account_whose_address_isnt_verified_is_connected_with_nobody(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        world.unverified_user("ada").await;
        let mut jar = Jar::default();
        jar.sign_in(&world, "ada@example.com", PASSWORD).await;
        let answer = provider.sign_on(&world, &mut jar, NEW, &person("1", "ada@example.com")).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
    });
}

#[on_each_database]
fn the_last_way_in_stays(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, file| {
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        let ada = connected(&world, &provider.issuer, "1").await.unwrap();
        let token = world.session(ada).await.access_token;
        let list = world.get("/v1/auth/connections").bearer(&token).data().await;
        let path = format!("/v1/auth/connections/{}", list["connections"][0]["id"].as_str().unwrap());
        let remove = || world.call(Method::DELETE, &path).bearer(&token);
        assert_eq!(remove().refused().await, (409, "last_credential".to_owned()));
        // A connection to a provider that isn't configured doesn't count as a sign-in method.
        world.connection(ada, "https://gone.example", "1").await;
        assert_eq!(remove().refused().await, (409, "last_credential".to_owned()));
        file.write(&world, &[("acme", &provider.issuer, ""), ("gone", "https://gone.example", "")]);
        assert_eq!(sessions(&world).await, 2);
        remove().data().await;
        assert_eq!(sessions(&world).await, 1);
        assert_eq!(connected(&world, &provider.issuer, "1").await, None);
    });
}

#[on_each_database]
fn another_persons_connection_isnt_removed(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let (ada, eve) = (world.user("ada").await, world.user("eve").await);
        let id = world.connection(ada.id, &provider.issuer, "1").await;
        let path = format!("/v1/auth/connections/{id}");
        let refused = world.call(Method::DELETE, &path).bearer(&eve.access_token).refused().await;
        assert_eq!(refused, (404, "connection_not_found".to_owned()));
        world.clock.advance_ms(16 * 60_000);
        let refused = world.call(Method::DELETE, &path).bearer(&ada.access_token).refused().await;
        assert_eq!(refused, (403, "reauthentication_required".to_owned()));
        assert_eq!(connected(&world, &provider.issuer, "1").await, Some(ada.id));
    });
}

#[on_each_database]
fn providers_are_listed_for_programs(database: Database) {
    with_provider(database, "", async |world, _, _| {
        let list = world.get("/v1/auth/providers").data().await;
        let url = "http://127.0.0.1:8080/console/sign-in/acme";
        assert_eq!(list, json!({"providers": [{"id": "acme", "name": "acme", "sign_in_url": url}]}));
    });
}

#[on_each_database]
fn the_last_way_in_stays_whichever_it_is(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        let browser = Browser { cookie: jar.0[COOKIE].clone() };
        let id = connected(&world, &provider.issuer, "1").await.unwrap();
        let connection = {
            let mut tx = world.app.db.read().await.unwrap();
            store::connections::of_user(&mut tx, id).await.unwrap().remove(0).id
        };
        let disconnect = format!("{PAGE}/{connection}/delete");
        assert_eq!(browser.post(&world, &disconnect, &[]).send().await.status, 409);
        let (_, added) = passkeys::add(&world, &browser, &[("name", "Laptop")]).await;
        assert!([200, 303].contains(&added.status), "{}", added.text);
        let again = browser.page(&world, passkeys::AGAIN).await;
        assert!(again.contains("data-passkey") && !again.contains("type=\"password\""), "{again}");
        // A passkey is a sign-in method.
        assert_eq!(browser.done(&world, &disconnect, &[]).await, format!("{PAGE}?done=disconnected"));
        let passkey = {
            let mut tx = world.app.db.read().await.unwrap();
            store::passkeys::list(&mut tx, id).await.unwrap().remove(0).id
        };
        let remove = format!("/console/account/second-factor/passkeys/{passkey}/remove");
        let refused = browser.post(&world, &remove, &[]).send().await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        let mut tx = world.app.db.read().await.unwrap();
        assert_eq!(store::passkeys::list(&mut tx, id).await.unwrap().len(), 1);
        drop(tx);
        // Another connection is a sign-in method too.
        world.connection(id, &provider.issuer, "2").await;
        assert_eq!(browser.post(&world, &remove, &[]).send().await.status, 303);
    });
}
