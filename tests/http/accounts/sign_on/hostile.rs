//! Hostile providers, browsers and networks: none of their sign-ons opens a session.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use super::{FILE, START, person, sessions, with_provider};
use support::identity_provider::{CLIENT_SECRET, IdentityProvider, Jar, ProvidersFile, Reply, SigningKey};
use support::world::{World, runtime};
use support::{Database, on_each_database};

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn shared_signature(secret: &[u8], header: &Value, claims: &Value) -> String {
    let text = format!("{}.{}", encode(header), encode(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

/// A function that makes a token from valid claims.
type MakeToken<'a> = &'a dyn Fn(&Value) -> String;

/// Signs on with the token that `token` makes from valid claims; returns the status and the page.
async fn answer_with(
    world: &World,
    provider: &IdentityProvider,
    token: impl FnOnce(Value) -> String,
) -> (u16, String) {
    let mut jar = Jar::default();
    let asked = jar.begin(world, START).await;
    provider.set_token(&token(provider.claims(world, &asked["nonce"], &json!({}))));
    let answer = jar.get(world, &provider.callback(&asked)).await;
    assert!(!jar.0.contains_key("tollkeeper") || answer.status == 303);
    (answer.status, answer.text)
}

#[on_each_database]
fn no_token_that_isnt_good_is_taken(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        world.connection(ada.id, &provider.issuer, "1").await;
        let before = sessions(&world).await;
        let now = world.clock.now().unix_seconds();
        for changes in [
            json!({"iss": "https://evil.example"}),
            json!({"iss": format!("{}/", provider.issuer)}),
            json!({"aud": "other"}),
            json!({"aud": ["tollkeeper", "other"]}),
            json!({"azp": "other"}),
            json!({"nonce": "another"}),
            json!({"nonce": null}),
            json!({"exp": now}),
            json!({"iat": now - 301}),
            json!({"iat": now + 301}),
            json!({"sub": ""}),
            json!({"sub": null}),
            json!({"sub": "x".repeat(256)}),
        ] {
            let answer = answer_with(&world, provider, |mut claims| {
                for (name, value) in changes.as_object().unwrap() {
                    claims[name] = value.clone();
                }
                provider.sign(&claims)
            });
            assert_eq!(answer.await.0, 400, "{changes}");
        }
        let (other, jwk) = (SigningKey::new("first"), provider.key.jwk());
        let hs256 = json!({"alg": "HS256", "kid": "first"});
        let tokens: [(&str, MakeToken<'_>); 7] = [
            ("none", &|claims| format!("{}.{}.", encode(&json!({"alg": "none"})), encode(claims))),
            ("public key", &|claims| shared_signature(jwk.to_string().as_bytes(), &hs256, claims)),
            ("client secret", &|claims| shared_signature(CLIENT_SECRET.as_bytes(), &hs256, claims)),
            ("another key", &|claims| other.sign(&json!({"alg": "ES256", "kid": "first"}), claims)),
            ("its own key", &|claims| other.sign(&json!({"alg": "ES256", "jwk": other.jwk()}), claims)),
            ("unknown kid", &|claims| provider.key.sign(&json!({"alg": "ES256", "kid": "second"}), claims)),
            ("another type", &|claims| {
                provider.key.sign(&json!({"alg": "ES256", "typ": "logout+jwt"}), claims)
            }),
        ];
        for (name, make) in tokens {
            assert_eq!(answer_with(&world, provider, |claims| make(&claims)).await.0, 400, "{name}");
        }
        assert_eq!(answer_with(&world, provider, |_| "x".to_owned()).await.0, 400);
        assert_eq!(sessions(&world).await, before);
        // For comparison, a valid token is accepted.
        assert_eq!(answer_with(&world, provider, |claims| provider.sign(&claims)).await.0, 303);
        assert_eq!(sessions(&world).await, before + 1);
    });
}

#[on_each_database]
fn answers_that_this_browser_doesnt_wait_for_are_refused(database: Database) {
    let file = ProvidersFile::new();
    database.run(&[(FILE, &file.path())], async |world| {
        let (acme, evil) = (IdentityProvider::start().await, IdentityProvider::start().await);
        file.write(&world, &[("acme", &acme.issuer, ""), ("evil", &evil.issuer, "")]);
        let ada = world.user("ada").await;
        world.connection(ada.id, &acme.issuer, "1").await;
        let before = sessions(&world).await;
        let mut jar = Jar::default();
        let asked = jar.begin(&world, START).await;
        acme.set_token(&acme.sign(&acme.claims(&world, &asked["nonce"], &json!({}))));
        let callback = acme.callback(&asked);
        // Another browser, and a browser that waits for another answer.
        assert_eq!(Jar::default().get(&world, &callback).await.status, 400);
        let mut other = Jar::default();
        other.begin(&world, START).await;
        assert_eq!(other.get(&world, &callback).await.status, 400);
        // Another provider's callback, in both directions.
        let crossed = callback.replace("/acme/", "/evil/");
        assert_eq!(jar.clone().get(&world, &crossed).await.status, 400);
        let mut at_evil = Jar::default();
        let asked_evil = at_evil.begin(&world, "/console/sign-in/evil").await;
        let crossed = evil.callback(&asked_evil).replace("/evil/", "/acme/");
        assert_eq!(at_evil.get(&world, &crossed).await.status, 400);
        // A mix-up attack: the answer contains another issuer, or no issuer.
        let honest = query_of(&callback, "iss");
        for wrong in [callback.replace(&honest, "https%3A%2F%2Fevil%2Eexample"), without(&callback, "iss")] {
            assert_eq!(jar.clone().get(&world, &wrong).await.status, 400, "{wrong}");
        }
        for wrong in [
            without(&callback, "state"),
            without(&callback, "code"),
            format!("{callback}&state=x"),
            format!("{callback}&code=x"),
            format!("{callback}&error=access_denied"),
            callback.replace("state=", "state=x"),
        ] {
            assert_eq!(jar.clone().get(&world, &wrong).await.status, 400, "{wrong}");
        }
        assert_eq!(jar.clone().click(&world, "/console/sign-in/nobody").await.status, 404);
        // After ten minutes the sign-on has expired.
        world.clock.advance_ms(10 * 60_000);
        acme.set_token(&acme.sign(&acme.claims(&world, &asked["nonce"], &json!({}))));
        assert_eq!(jar.clone().get(&world, &callback).await.status, 400);
        world.clock.advance_ms(-10 * 60_000);
        acme.set_token(&acme.sign(&acme.claims(&world, &asked["nonce"], &json!({}))));
        assert_eq!(sessions(&world).await, before);
        // For comparison, the correct answer is accepted once: a copy of the browser's cookies can't be used
        // afterward.
        let mut copy = jar.clone();
        assert_eq!(jar.get(&world, &callback).await.status, 303);
        assert_eq!(copy.get(&world, &callback).await.status, 400);
        assert_eq!(sessions(&world).await, before + 1);
    });
}

fn query_of(url: &str, name: &str) -> String {
    let pair = url.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")));
    pair.unwrap().to_owned()
}

fn without(url: &str, name: &str) -> String {
    let (path, query) = url.split_once('?').unwrap();
    let kept: Vec<_> = query.split('&').filter(|pair| !pair.starts_with(&format!("{name}="))).collect();
    format!("{path}?{}", kept.join("&"))
}

#[on_each_database]
fn of_64_answers_at_once_one_opens_a_session(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut jar = Jar::default();
        let asked = jar.begin(&world, START).await;
        let claims = provider.claims(&world, &asked["nonce"], &person("1", "ada@example.com"));
        provider.set_token(&provider.sign(&claims));
        let callback = provider.callback(&asked);
        let calls = (0..64).map(|_| {
            let mut jar = jar.clone();
            let (world, callback) = (&world, &callback);
            async move { jar.get(world, callback).await.status }
        });
        let statuses = futures_util::future::join_all(calls).await;
        assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
        assert_eq!(sessions(&world).await, 1);
    });
}

#[on_each_database]
fn of_many_first_sign_ons_at_once_one_makes_the_account(database: Database) {
    with_provider(database, "provision = \"any\"", async |world, provider, _| {
        let mut browsers = Vec::new();
        for number in 0..8 {
            let mut jar = Jar::default();
            let asked = jar.begin(&world, START).await;
            let claims = provider.claims(&world, &asked["nonce"], &person("1", "ada@example.com"));
            let code = format!("code{number}");
            provider.set_token_of(&code, &provider.sign(&claims));
            browsers.push((jar, provider.callback(&asked).replace("c0de", &code)));
        }
        let calls = browsers.into_iter().map(|(mut jar, callback)| {
            let world = &world;
            async move { jar.get(world, &callback).await.status }
        });
        let statuses = futures_util::future::join_all(calls).await;
        assert_eq!(statuses, [303; 8]);
        let (users,): (i64,) = tollkeeper::db::sql("SELECT COUNT(*) FROM users")
            .one(&mut world.app.db.read().await.unwrap())
            .await
            .unwrap();
        assert_eq!((users, sessions(&world).await), (1, 8));
    });
}

#[on_each_database]
fn keys_may_change_at_any_time_and_are_asked_for_once_a_minute(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        world.connection(ada.id, &provider.issuer, "1").await;
        assert_eq!(answer_with(&world, provider, |claims| provider.sign(&claims)).await.0, 303);
        let asked_before = provider.requests("/keys").len();
        let second = SigningKey::new("second");
        provider.set_keys(&[provider.key.jwk(), second.jwk()]);
        let by_second = |claims: Value| second.sign(&json!({"alg": "ES256", "kid": "second"}), &claims);
        assert_eq!(answer_with(&world, provider, by_second).await.0, 303);
        assert_eq!(provider.requests("/keys").len(), asked_before + 1);
        // Tokens with unknown keys don't cause repeated requests for the keys.
        let unknown = |claims: Value| second.sign(&json!({"alg": "ES256", "kid": "third"}), &claims);
        for _ in 0..3 {
            assert_eq!(answer_with(&world, provider, unknown).await.0, 400);
        }
        assert_eq!(provider.requests("/keys").len(), asked_before + 1);
        world.clock.advance_ms(60_000);
        assert_eq!(answer_with(&world, provider, unknown).await.0, 400);
        assert_eq!(provider.requests("/keys").len(), asked_before + 2);
        // A signature by a withdrawn key is no longer accepted.
        provider.set_keys(&[second.jwk()]);
        world.clock.advance_ms(60 * 60_000);
        assert_eq!(answer_with(&world, provider, |claims| provider.sign(&claims)).await.0, 400);
        assert_eq!(answer_with(&world, provider, by_second).await.0, 303);
    });
}

#[on_each_database]
fn the_secret_and_the_code_go_to_the_token_endpoint_only(database: Database) {
    with_provider(database, "", async |world, provider, _| {
        let ada = world.user("ada").await;
        world.connection(ada.id, &provider.issuer, "1").await;
        let mut jar = Jar::default();
        let started = jar.click(&world, START).await;
        let url = started.header("location").to_owned();
        assert!(!url.contains(CLIENT_SECRET) && url.contains("code_challenge_method=S256"), "{url}");
        let cookie = started.header("set-cookie");
        assert!(cookie.contains("HttpOnly; SameSite=Lax; Max-Age=600"), "{cookie}");
        let asked = support::identity_provider::query(&url);
        // The values that the browser keeps are sealed.
        for name in ["state", "nonce"] {
            assert!(!cookie.contains(&asked[name]), "{cookie}");
        }
        provider.set_token(&provider.sign(&provider.claims(&world, &asked["nonce"], &json!({}))));
        assert_eq!(jar.get(&world, &provider.callback(&asked)).await.status, 303);
        let requests = provider.requests("/token");
        let [request] = requests.as_slice() else { panic!("{requests:?}") };
        let credential =
            base64::engine::general_purpose::STANDARD.encode(format!("tollkeeper:{CLIENT_SECRET}"));
        assert!(request.contains(&format!("authorization: Basic {credential}")), "{request}");
        assert!(request.contains("code_verifier=") && request.contains("code=c0de"), "{request}");
    });
}

/// Invalid documents are refused, and the status of the providers file shows the error.
#[test]
fn documents_that_are_no_good_are_refused() {
    runtime().block_on(async {
        let file = ProvidersFile::new();
        let world = World::new("sqlite", None, &[(FILE, &file.path())]).await;
        let provider = IdentityProvider::start().await;
        let good = provider.metadata();
        let with = |name: &str, value: Value| {
            let mut metadata = good.clone();
            metadata[name] = value;
            Reply::json(&metadata)
        };
        let redirect =
            Reply { status: 302, head: format!("location: {}/x\r\n", provider.issuer), ..Reply::json(&good) };
        provider.set("/x", Reply::json(&good));
        let cases = [
            ("second issuer", with("issuer", json!("https://evil.example"))),
            ("issuer with a slash", with("issuer", json!(format!("{}/", provider.issuer)))),
            ("issuer in capitals", with("issuer", json!(provider.issuer.to_uppercase()))),
            ("no https", with("token_endpoint", json!("http://evil.example/token"))),
            ("no https for browsers", with("authorization_endpoint", json!("http://evil.example/authorize"))),
            ("a file", with("jwks_uri", json!("file:///etc/passwd"))),
            ("no JSON", Reply { body: b"<html>".to_vec(), ..Reply::json(&good) }),
            ("an array", Reply { body: b"[]".to_vec(), ..Reply::json(&good) }),
            ("status", Reply { status: 404, ..Reply::json(&good) }),
            ("redirect", redirect),
            ("huge", Reply { body: vec![b' '; 300 * 1024], ..Reply::json(&good) }),
            ("slow", Reply { delay: Duration::from_secs(8), ..Reply::json(&good) }),
        ];
        for (number, (name, reply)) in cases.into_iter().enumerate() {
            provider.set("/.well-known/openid-configuration", reply);
            // Changed settings, so that nothing of the previous case is cached.
            file.write(&world, &[("acme", &provider.issuer, &format!("session_hours = {}", number + 20))]);
            let answer = Jar::default().click(&world, START).await;
            assert_eq!(answer.status, 502, "{name}: {}", answer.text);
        }
        // The same for the keys, and for the answer with tokens.
        provider.set("/.well-known/openid-configuration", Reply::json(&good));
        provider.set("/keys", Reply { body: vec![b' '; 300 * 1024], ..Reply::json(&good) });
        file.write(&world, &[("acme", &provider.issuer, "session_hours = 50")]);
        assert_eq!(Jar::default().click(&world, START).await.status, 502);
        provider.set_keys(&[provider.key.jwk()]);
        file.write(&world, &[("acme", &provider.issuer, "session_hours = 51")]);
        let mut jar = Jar::default();
        let asked = jar.begin(&world, START).await;
        for reply in [
            Reply {
                status: 302,
                head: "location: https://evil.example\r\n".to_owned(),
                ..Reply::json(&json!({}))
            },
            Reply { body: vec![b' '; 300 * 1024], ..Reply::json(&json!({})) },
            Reply { status: 500, ..Reply::json(&json!({})) },
            Reply { status: 400, ..Reply::json(&json!({"error": "invalid_grant"})) },
            Reply::json(&json!({"access_token": "x", "token_type": "Bearer"})),
            Reply::json(&json!({"id_token": "x"})),
        ] {
            provider.set("/token", reply);
            let status = jar.clone().get(&world, &provider.callback(&asked)).await.status;
            assert!([400, 502].contains(&status), "{status}");
        }
        assert_eq!(sessions(&world).await, 0);
    });
}
