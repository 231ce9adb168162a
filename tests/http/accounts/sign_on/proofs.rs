//! Proofs of identity by password or passkey in a session that a provider opened: the new session still
//! belongs to the provider, and ends at the same time.

use serde_json::json;
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};

use super::required::Scene;
use super::sessions::{logout, send_logout};
use super::{START, person, with_provider};
use crate::console::passkeys::signed;
use support::identity_provider::{IdentityProvider, Jar, ProvidersFile};
use support::security_key::SecurityKey;
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const SETTINGS: &str = "session_hours = 2\nback_channel_logout = true";
const AGAIN: &str = "/console/reauthenticate";
const STEP: &str = "/console/sign-in/second-factor";

/// A kind of proof.
#[derive(Clone, Copy, Debug)]
enum By {
    Password,
    Passkey,
}

/// Creates an organization that requires the provider, and the browser in which Bob, who has a passkey, has
/// signed on.
async fn scene(
    world: &World,
    provider: &IdentityProvider,
    file: &ProvidersFile,
) -> (Scene, Jar, SecurityKey) {
    let scene = Scene::new(world, provider, file, SETTINGS).await;
    scene.set(world, &scene.ada.access_token, true).data().await;
    let browser = world.browser(scene.bob.id).await;
    let (key, added) = crate::console::passkeys::add(world, &browser, &[("name", "Laptop")]).await;
    assert_eq!(added.status, 303, "the password is still sufficient: {}", added.text);
    let mut bob = Jar::default();
    let answer = provider.sign_on(world, &mut bob, START, &person("7", "bob@example.com")).await;
    assert_eq!(answer.header("location"), "/console/", "{}", answer.text);
    (scene, bob, key)
}

async fn prove(world: &World, jar: &mut Jar, key: &mut SecurityKey, by: By) {
    let before = jar.0["tollkeeper"].clone();
    let answer = match by {
        By::Password => jar.post(world, AGAIN, &[("password", PASSWORD)]).await,
        By::Passkey => {
            let page = jar.get(world, AGAIN).await.text;
            let fields = signed(&page, key);
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            jar.post(world, &format!("{AGAIN}/passkey"), &fields).await
        }
    };
    assert_eq!(answer.status, 303, "{by:?}: {}", answer.text);
    assert_ne!(jar.0["tollkeeper"], before, "a new session");
}

/// Returns `true` if the browser may make changes that need a recent proof.
async fn is_fresh(world: &World, jar: &mut Jar) -> bool {
    jar.get(world, "/console/account/second-factor/totp").await.status == 200
}

#[on_each_database]
fn a_proof_moves_no_end_and_stays_in_the_organization(database: Database) {
    for by in [By::Password, By::Passkey] {
        with_provider(database, "", async |world, provider, file| {
            let (scene, mut bob, mut key) = scene(&world, provider, file).await;
            world.clock.advance_ms(HOUR_MS);
            assert!(!is_fresh(&world, &mut bob).await);
            prove(&world, &mut bob, &mut key, by).await;
            assert!(is_fresh(&world, &mut bob).await);
            assert_eq!(
                scene.overview(&world, &mut bob).await,
                200,
                "the session still belongs to the provider"
            );
            // The session ends two hours after the sign-on, regardless of proofs in between.
            world.clock.advance_ms(HOUR_MS - MINUTE_MS);
            prove(&world, &mut bob, &mut key, by).await;
            assert!(bob.who(&world).await.is_some());
            world.clock.advance_ms(MINUTE_MS);
            assert!(bob.who(&world).await.is_none(), "{by:?}");
        });
    }
}

#[on_each_database]
fn the_provider_ends_a_session_that_was_proved_again(database: Database) {
    for by in [By::Password, By::Passkey] {
        with_provider(database, "", async |world, provider, file| {
            let (_, mut bob, mut key) = scene(&world, provider, file).await;
            prove(&world, &mut bob, &mut key, by).await;
            prove(&world, &mut bob, &mut key, by).await;
            // Another session, opened with only the password, doesn't belong to the provider.
            let mut other = Jar::default();
            other.sign_in(&world, "bob@example.com", PASSWORD).await;
            let token = logout(&world, provider, &json!({"sub": "7"}));
            assert_eq!(send_logout(&world, provider, &token).await.status, 200);
            assert!(bob.who(&world).await.is_none(), "{by:?}");
            assert!(other.who(&world).await.is_some(), "{by:?}");
        });
    }
}

#[on_each_database]
fn a_session_of_a_password_has_thirty_days_after_a_proof(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let (scene, _, mut key) = scene(&world, provider, file).await;
        let mut jar = Jar::default();
        let fields = [("email", "bob@example.com"), ("password", PASSWORD), ("remember_me", "true")];
        jar.post(&world, "/console/sign-in", &fields).await;
        prove(&world, &mut jar, &mut key, By::Passkey).await;
        assert_eq!(scene.overview(&world, &mut jar).await, 403, "a passkey isn't a sign-on");
        world.clock.advance_ms(29 * 24 * HOUR_MS);
        assert!(jar.who(&world).await.is_some());
    });
}

#[on_each_database]
fn a_passkey_as_the_second_step_completes_the_sign_on(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        let scene = Scene::new(&world, provider, file, SETTINGS).await;
        scene.set(&world, &scene.ada.access_token, true).data().await;
        let browser = world.browser(scene.bob.id).await;
        let more = [("name", "x"), ("shown", "asked_after_password"), ("asked_after_password", "true")];
        let (mut key, added) = crate::console::passkeys::add(&world, &browser, &more).await;
        assert_eq!(added.status, 200, "the passkey is required after the password: {}", added.text);
        let begin = async || {
            let mut jar = Jar::default();
            let answer = provider.sign_on(&world, &mut jar, START, &person("7", "bob@example.com")).await;
            assert_eq!(answer.header("location"), STEP, "{}", answer.text);
            jar
        };
        let fields_of = |page: &str, key: &mut SecurityKey, more: &[(&str, &str)]| -> Vec<(String, String)> {
            let signed = signed(page, key);
            let pairs =
                signed.iter().map(|(name, value)| (*name, value.as_str())).chain(more.iter().copied());
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let send = async |jar: &mut Jar, fields: &[(String, String)]| {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            jar.post(&world, "/console/sign-in/passkey", &fields).await
        };
        let mut jar = begin().await;
        let page = jar.get(&world, STEP).await.text;
        let step = support::console::hidden(&page, "second_step");
        let fields = fields_of(&page, &mut key, &[("second_step", &step), ("remember_me", "true")]);
        let answer = send(&mut jar, &fields).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert!(
            answer.headers.get_all("set-cookie").iter().all(|set| !set.to_str().unwrap().contains("2592000"))
        );
        assert_eq!(scene.overview(&world, &mut jar).await, 200);
        world.clock.advance_ms(2 * HOUR_MS);
        assert!(jar.who(&world).await.is_none(), "the session expires like the provider's sessions");

        // Without the first step, sign-in starts again. On its own page, a passkey is a complete sign-in.
        let mut jar = begin().await;
        let page = jar.get(&world, STEP).await.text;
        let fields = fields_of(&page, &mut key, &[("second_step", "true")]);
        let mut stranger = Jar::default();
        let answer = send(&mut stranger, &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/sign-in"));
        assert!(stranger.who(&world).await.is_none());
        let page = Jar::default().get(&world, "/console/sign-in").await.text;
        let answer = send(&mut jar, &fields_of(&page, &mut key, &[])).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert_eq!(scene.overview(&world, &mut jar).await, 403);
        // A sign-in can't be completed if its connection was removed meanwhile.
        let mut jar = begin().await;
        let page = jar.get(&world, STEP).await.text;
        let fields = fields_of(&page, &mut key, &[("second_step", "true")]);
        let mut tx = world.app.db.write().await.unwrap();
        tollkeeper::db::sql("DELETE FROM connections").execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let answer = send(&mut jar, &fields).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(jar.who(&world).await.is_none());
    });
}
