//! Sessions that sign-ons open: second factors, expiry, and logouts by the provider.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::accounts::store;
use tollkeeper::operators::users;
use tollkeeper::trail::{self, Filter, Trail};

use super::{START, connected, person, sessions, username, with_provider};
use support::http::Answer;
use support::identity_provider::{IdentityProvider, Jar, Reply};
use support::world::World;
use support::{Database, on_each_database};

const HOUR_MS: i64 = 3_600_000;
const SECOND_STEP: &str = "/console/sign-in/second-factor";

#[on_each_database]
fn the_local_second_factor_is_asked_after_a_provider(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        world.connection(ada.id, &provider.issuer, "1").await;
        let (app, _) = world.add_authenticator(&ada.access_token).await;
        let mut jar = Jar::default();
        let mut claims = person("1", "ada@example.com");
        claims["amr"] = json!(["mfa"]);
        let path = format!("{START}?next=/console/models");
        let answer = provider.sign_on(&world, &mut jar, &path, &claims).await;
        assert_eq!(answer.header("location"), format!("{SECOND_STEP}?next=/console/models"));
        assert!(jar.who(&world).await.is_none());
        let answer = jar.post(&world, SECOND_STEP, &[("one_time_code", "000000")]).await;
        assert_eq!(answer.status, 401, "{}", answer.text);
        let code = app.code(world.clock.now());
        let fields = [("one_time_code", code.as_str()), ("next", "/console/models")];
        let answer = jar.post(&world, SECOND_STEP, &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/models"), "{}", answer.text);
        assert_eq!(username(&world, &mut jar).await, "ada");
        // A sign-in can't be completed after its connection was removed.
        let mut other = Jar::default();
        provider.sign_on(&world, &mut other, START, &claims).await;
        let path = "/v1/auth/connections";
        let list = world.get(path).bearer(&ada.access_token).data().await;
        let id = list["connections"][0]["id"].as_str().unwrap();
        world.call(Method::DELETE, &format!("{path}/{id}")).bearer(&ada.access_token).data().await;
        world.clock.advance_ms(30_000);
        let code = app.code(world.clock.now());
        let answer = other.post(&world, SECOND_STEP, &[("one_time_code", &code)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console/sign-in"), "{}", answer.text);
        assert!(other.who(&world).await.is_none());
    });
}

#[on_each_database]
fn a_trusted_provider_has_asked_already(database: Database) {
    with_provider(database, "trusts_second_factor = true", async |world, provider, _| {
        let ada = world.user("ada").await;
        world.connection(ada.id, &provider.issuer, "1").await;
        world.add_authenticator(&ada.access_token).await;
        for (amr, location) in [(json!(["pwd"]), SECOND_STEP), (json!(["pwd", "mfa"]), "/console/")] {
            let mut claims = person("1", "ada@example.com");
            claims["amr"] = amr;
            let answer = provider.sign_on(&world, &mut Jar::default(), START, &claims).await;
            assert_eq!(answer.header("location"), location);
        }
    });
}

#[on_each_database]
fn sessions_of_a_provider_end_after_their_hours(database: Database) {
    with_provider(database, "provision = \"any\"\nsession_hours = 2", async |world, provider, _| {
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        world.clock.advance_ms(2 * HOUR_MS - 1_000);
        assert!(jar.who(&world).await.is_some());
        world.clock.advance_ms(2_000);
        assert!(jar.who(&world).await.is_none());
    });
}

/// Returns the claims of a valid logout token for a user.
pub(super) fn logout(world: &World, provider: &IdentityProvider, changes: &Value) -> Value {
    let events = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    let mut claims = provider.claims(world, "", &json!({"nonce": null, "events": events, "jti": "j1"}));
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

pub(super) async fn send_logout(world: &World, provider: &IdentityProvider, claims: &Value) -> Answer {
    let token = provider.key.sign(&json!({"alg": "ES256", "kid": "first", "typ": "logout+jwt"}), claims);
    // The request of a server, without a browser's headers.
    world.call(Method::POST, &format!("{START}/logout")).form(&[("logout_token", &token)]).send().await
}

#[on_each_database]
fn a_provider_ends_the_sessions_of_a_person(database: Database) {
    with_provider(
        database,
        "provision = \"any\"\nback_channel_logout = true",
        async |world, provider, file| {
            let (mut ada, mut bob) = (Jar::default(), Jar::default());
            provider.sign_on(&world, &mut ada, START, &person("1", "ada@example.com")).await;
            provider.sign_on(&world, &mut bob, START, &person("2", "bob@example.com")).await;
            for changes in [
                json!({"events": null}),
                json!({"events": {"other": {}}}),
                json!({"nonce": "n"}),
                json!({"jti": null}),
                json!({"sub": null}),
                json!({"aud": "other"}),
                json!({"iss": "https://evil.example"}),
                json!({"exp": world.clock.now().unix_seconds() - 1}),
                json!({"iat": world.clock.now().unix_seconds() - 600}),
            ] {
                let answer = send_logout(&world, provider, &logout(&world, provider, &changes)).await;
                assert_eq!(answer.status, 400, "{changes}: {}", answer.text);
            }
            // A token of another type or without a type is refused too.
            for header in [
                json!({"alg": "ES256", "kid": "first", "typ": "JWT"}),
                json!({"alg": "ES256", "kid": "first"}),
            ] {
                let token = provider.key.sign(&header, &logout(&world, provider, &json!({})));
                let call = world.call(Method::POST, &format!("{START}/logout"));
                assert_eq!(call.form(&[("logout_token", &token)]).send().await.status, 400, "{header}");
            }
            assert_eq!(sessions(&world).await, 2);
            let good = logout(&world, provider, &json!({}));
            let answer = send_logout(&world, provider, &good).await;
            assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"), "{}", answer.text);
            assert!(ada.who(&world).await.is_none() && bob.who(&world).await.is_some());
            // A logout token is valid once.
            provider.sign_on(&world, &mut ada, START, &person("1", "ada@example.com")).await;
            assert_eq!(send_logout(&world, provider, &good).await.status, 400);
            assert!(ada.who(&world).await.is_some());
            // Logouts by the provider work only if the configuration enables them.
            file.write(&world, &[("acme", &provider.issuer, "")]);
            let other = logout(&world, provider, &json!({"jti": "j2"}));
            assert_eq!(send_logout(&world, provider, &other).await.status, 404);
        },
    );
}

#[on_each_database]
fn a_person_without_a_password_proves_who_they_are_at_the_provider(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut jar = Jar::default();
        let ada = person("1", "ada@example.com");
        provider.sign_on(&world, &mut jar, START, &ada).await;
        let before = jar.0["tollkeeper"].clone();
        world.clock.advance_ms(16 * 60_000);
        let answer = jar.get(&world, "/console/account/second-factor/totp").await;
        let page = "/console/reauthenticate?next=/console/account/second-factor/totp";
        assert_eq!(answer.header("location"), page);
        let page = jar.get(&world, page).await.text;
        assert!(page.contains("Confirm with acme") && !page.contains("type=\"password\""), "{page}");
        let prove = "/console/reauthenticate/acme?next=/console/account/second-factor/totp";
        let asked = jar.clone().begin(&world, prove).await;
        assert_eq!((asked["max_age"].as_str(), asked["prompt"].as_str()), ("0", "login"));
        let now = world.clock.now().unix_seconds();
        // The time is missing or too early, or the subject is someone else.
        for (sub, auth_time) in [("1", json!(null)), ("1", json!(now - 61)), ("2", json!(now))] {
            let claims = json!({"sub": sub, "email": "bob@example.com", "email_verified": true, "auth_time": auth_time});
            let answer = provider.sign_on(&world, &mut jar, prove, &claims).await;
            assert_eq!(answer.status, 400, "{sub} {auth_time}: {}", answer.text);
        }
        assert_eq!(jar.0["tollkeeper"], before);
        let claims = json!({"sub": "1", "auth_time": now});
        let answer = provider.sign_on(&world, &mut jar, prove, &claims).await;
        assert_eq!(answer.header("location"), "/console/account/second-factor/totp", "{}", answer.text);
        assert_ne!(jar.0["tollkeeper"], before);
        assert_eq!(jar.get(&world, "/console/account/second-factor/totp").await.status, 200);
        // The previous session has ended.
        let mut stale = jar.clone();
        stale.0.insert("tollkeeper".to_owned(), before);
        assert!(stale.who(&world).await.is_none());
        assert_eq!(sessions(&world).await, 1);
    });
}

#[on_each_database]
fn a_sign_on_at_the_provider_of_long_ago_isnt_fresh(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut claims = person("1", "ada@example.com");
        claims["auth_time"] = json!(world.clock.now().unix_seconds() - 3600);
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &claims).await;
        let answer = jar.get(&world, "/console/account/second-factor/totp").await;
        assert!(answer.header("location").starts_with("/console/reauthenticate"), "{}", answer.text);
    });
}

#[on_each_database]
fn what_takes_a_password_says_that_there_is_none(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        let page = jar.get(&world, "/console/account/password").await.text;
        assert!(page.contains("Your account has no password"), "{page}");
        let id = super::connected(&world, &provider.issuer, "1").await.unwrap();
        let token = world.session(id).await.access_token;
        let new = "Violet-Kettle-Orbit-9";
        let body = json!({"current_password": "x", "new_password": new, "new_password_confirmation": new});
        for (path, body) in [
            ("/v1/auth/change-password", body),
            ("/v1/auth/change-email", json!({"new_email": "b@example.com", "password": "x"})),
            ("/v1/auth/reauthenticate", json!({"password": "x"})),
        ] {
            let refused = world.post(path, &body).bearer(&token).refused().await;
            assert_eq!(refused, (400, "no_password".to_owned()), "{path}");
        }
        // No password opens the account, not even an empty one.
        for password in ["", "x"] {
            let body = json!({"email": "ada@example.com", "password": password});
            let status = world.post("/v1/auth/login", &body).send().await.status;
            assert!([400, 401].contains(&status), "{status}");
        }
        // An e-mailed link sets a password.
        world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
        let token = world.mailed_token("ada@example.com").await;
        let body = json!({"token": token, "password": new, "password_confirmation": new});
        world.post("/v1/auth/reset-password", &body).data().await;
        world.post("/v1/auth/login", &json!({"email": "ada@example.com", "password": new})).data().await;
    });
}

#[on_each_database]
fn a_provider_that_doesnt_answer_keeps_nobody_from_the_password(database: Database) {
    with_provider(database, "", async |world, provider, file| {
        world.user("ada").await;
        provider.set("/.well-known/openid-configuration", Reply { status: 500, ..Reply::json(&json!({})) });
        file.write(&world, &[("acme", &provider.issuer, "session_hours = 3")]);
        let mut jar = Jar::default();
        let answer = jar.click(&world, START).await;
        assert_eq!(answer.status, 502, "{}", answer.text);
        assert!(jar.get(&world, "/console/sign-in").await.text.contains("Sign in with acme"));
        assert_eq!(jar.sign_in(&world, "ada@example.com", support::world::PASSWORD).await.status, 303);
        // Ten seconds later, the provider is requested again.
        provider.set("/.well-known/openid-configuration", Reply::json(&provider.metadata()));
        assert_eq!(jar.click(&world, START).await.status, 502);
        world.clock.advance_ms(10_000);
        assert_eq!(jar.click(&world, START).await.status, 303);
    });
}

#[on_each_database]
fn a_provider_opens_no_disabled_account_and_changes_nothing_of_it(database: Database) {
    let more = "link = \"verified_email\"\ndomains = [\"example.com\"]";
    with_provider(database, more, async |world, provider, _| {
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        let connection = world.connection(ada.id, &provider.issuer, "1").await;
        for user in [&ada, &bob] {
            users::disable(&world.app.operators, user.id, &Trail::operator()).await.unwrap();
        }
        // Bob isn't connected yet, but his address would connect him.
        for (subject, email) in [("1", "ada@example.com"), ("2", "bob@example.com")] {
            let mut jar = Jar::default();
            let answer = provider.sign_on(&world, &mut jar, START, &person(subject, email)).await;
            assert_eq!(answer.status, 403, "{}", answer.text);
            assert!(answer.text.contains("This account is disabled"), "{}", answer.text);
            assert!(jar.who(&world).await.is_none());
        }
        assert_eq!(sessions(&world).await, 0);
        assert_eq!(connected(&world, &provider.issuer, "2").await, None);
        let mut tx = world.app.db.read().await.unwrap();
        let of_ada = store::connections::of_user(&mut tx, ada.id).await.unwrap();
        assert_eq!(
            of_ada.iter().map(|row| (row.id, row.last_used_at)).collect::<Vec<_>>(),
            [(connection, None)]
        );
        let filter = Filter { action: "session.refused".to_owned(), limit: 100, ..Filter::default() };
        let refused = trail::list(&mut tx, &filter).await.unwrap();
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|entry| format!("{entry:?}").contains("account_disabled")), "{refused:?}");
        drop(tx);
        users::enable(&world.app.operators, ada.id, &Trail::operator()).await.unwrap();
        let mut jar = Jar::default();
        provider.sign_on(&world, &mut jar, START, &person("1", "ada@example.com")).await;
        assert_eq!(username(&world, &mut jar).await, "ada");
    });
}

#[on_each_database]
fn provider_whose_logout_tokens_have_another_type_may_be_taken(database: Database) {
    let settings = "provision = \"any\"\nback_channel_logout = true\nlogout_token_type = \"any\"";
    with_provider(database, settings, async |world, provider, _| {
        let mut ada = Jar::default();
        provider.sign_on(&world, &mut ada, START, &person("1", "ada@example.com")).await;
        let header = json!({"alg": "ES256", "kid": "first", "typ": "JWT"});
        let token = provider.key.sign(&header, &logout(&world, provider, &json!({})));
        let call = world.call(Method::POST, &format!("{START}/logout"));
        assert_eq!(call.form(&[("logout_token", &token)]).send().await.status, 200);
        assert!(ada.who(&world).await.is_none());
    });
}

#[on_each_database]
fn optional_claims_of_odd_types_keep_nobody_out(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut jar = Jar::default();
        let claims = json!({"sub": "1", "email": "ada@example.com", "email_verified": true, "preferred_username": ["ada"],
            "name": 7, "picture": {"url": "x"}, "locale": ["de"], "updated_at": "yesterday", "amr": "pwd", "acr": 1,
            "auth_time": "now", "phone_number": 123, "address": "here"});
        let answer = provider.sign_on(&world, &mut jar, START, &claims).await;
        assert_eq!(answer.header("location"), "/console/", "{}", answer.text);
        let who = jar.who(&world).await.unwrap();
        assert_eq!(who["user"]["email"], "ada@example.com");
        // A subject that isn't a string identifies no one.
        let answer = provider.sign_on(&world, &mut Jar::default(), START, &json!({"sub": 2})).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        // An address is verified only if `email_verified` is a boolean, not a string.
        let claims = json!({"sub": "3", "email": "bob@example.com", "email_verified": "true"});
        let mut bob = Jar::default();
        provider.sign_on(&world, &mut bob, START, &claims).await;
        assert!(bob.who(&world).await.is_none());
    });
}
