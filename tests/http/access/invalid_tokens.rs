//! Sends every kind of invalid token to every route that requires a token: each is refused with 401 first.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use ring::hmac;
use serde_json::json;
use tollkeeper::accounts::jwt::{Claims, Keyset, SigningKey, TokenKind};
use tollkeeper::api::routes::{self, Route};
use tollkeeper::clock::HOUR_MS;
use tollkeeper::db::sql;
use tollkeeper::ids::SessionId;
use tollkeeper::web::route::Listener;

use support::console::Browser;
use support::http::Call;
use support::on_each_database;
use support::world::{TestUser, World};

/// A credential that must be refused: its description and the whole header.
struct Attack {
    what: &'static str,
    authorization: String,
}

fn encode(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// Returns the attacks on routes that take this kind of token.
async fn attacks(world: &World, victim: &TestUser, kind: TokenKind) -> Vec<Attack> {
    let keyset = world.app.accounts.keyset().await.unwrap();
    let cookie = &world.browser(victim.id).await.cookie;
    let (good, other_kinds) = match kind {
        TokenKind::Access => (&victim.access_token, [&victim.refresh_token, cookie]),
        TokenKind::Refresh => (&victim.refresh_token, [&victim.access_token, cookie]),
        TokenKind::Browser => (cookie, [&victim.access_token, &victim.refresh_token]),
    };
    let claims = || {
        let url = &world.app.api.public_url;
        keyset.verify(good, kind, url, url, world.clock.now()).unwrap()
    };
    let signed = |change: fn(&mut Claims)| {
        let mut claims = claims();
        change(&mut claims);
        keyset.sign(kind, &claims)
    };
    let [header, payload, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let header_text = String::from_utf8(URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    let stranger = Keyset::new(Arc::new(SigningKey::generate(&world.app.random).unwrap().0), &[]);
    let strangers = stranger.sign(kind, &claims());
    let strangers_signature = strangers.rsplit('.').next().unwrap();
    let public_key = keyset.jwks()["keys"][0]["x"].as_str().unwrap().to_owned();
    let hs256 = |secret: &[u8]| {
        let head = encode(&header_text.replace("EdDSA", "HS256"));
        let text = format!("{head}.{payload}");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let other_header =
        |from: &str, to: &str| format!("{}.{payload}.{signature}", encode(&header_text.replace(from, to)));
    let flipped = {
        let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
        bytes[63] ^= 0x80;
        format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(bytes))
    };
    let tokens = [
        ("garbage", "garbage".to_owned()),
        ("dots", "..".to_owned()),
        ("an empty signature", format!("{header}.{payload}.")),
        ("no signature", format!("{header}.{payload}")),
        ("no payload", format!("{header}..{signature}")),
        ("a fourth part", format!("{good}.x")),
        ("padding", format!("{good}=")),
        ("one bit of the signature", flipped),
        ("another kind of token", other_kinds[0].clone()),
        ("the third kind of token", other_kinds[1].clone()),
        ("another key", strangers.clone()),
        ("another key under our kid", format!("{header}.{payload}.{strangers_signature}")),
        ("alg none", format!("{}.{payload}.", encode(&header_text.replace("EdDSA", "none")))),
        ("alg None with a signature", other_header("EdDSA", "None")),
        ("HS256 with the public key's bytes", hs256(&URL_SAFE_NO_PAD.decode(&public_key).unwrap())),
        ("HS256 with the public key's text", hs256(public_key.as_bytes())),
        ("HS256 with nothing", hs256(b"")),
        ("another typ", other_header("+jwt", "+JWT")),
        ("no typ", encode("{\"alg\":\"EdDSA\"}") + &format!(".{payload}.{signature}")),
        ("crit", other_header("}", ",\"crit\":[\"exp\"]}")),
        (
            "an embedded key (jwk)",
            other_header("}", &format!(",\"jwk\":{{\"kty\":\"OKP\",\"x\":\"{public_key}\"}}}}")),
        ),
        ("jku", other_header("}", ",\"jku\":\"http://127.0.0.1/keys\"}")),
        ("a kid that is a path", other_header("\"kid\":\"", "\"kid\":\"../")),
        ("expired", signed(|claims| claims.exp = claims.iat - 1)),
        ("ends this second", signed(|claims| claims.exp = claims.iat)),
        ("from the future", signed(|claims| claims.iat += 3_600)),
        ("wrong iss", signed(|claims| claims.iss = "https://evil.example".into())),
        ("empty iss", signed(|claims| claims.iss.clear())),
        ("iss with an additional slash", signed(|claims| claims.iss.push('/'))),
        ("wrong aud", signed(|claims| claims.aud = "https://evil.example".into())),
        ("empty aud", signed(|claims| claims.aud.clear())),
        ("a session that never existed", {
            let mut claims = claims();
            claims.sid = SessionId::new(world.clock.now(), &world.app.random);
            keyset.sign(kind, &claims)
        }),
        ("another user's session", {
            let other = world.user(&format!("other-{kind:?}").to_lowercase()).await;
            let mut claims = claims();
            claims.sid = other.session_id;
            keyset.sign(kind, &claims)
        }),
        ("a logged-out session", {
            let gone = world.user(&format!("gone-{kind:?}").to_lowercase()).await;
            world.post("/v1/auth/logout", &json!({})).bearer(&gone.access_token).data().await;
            world.token(kind, gone.id, gone.session_id, 60).await
        }),
        ("a deleted user", {
            let gone = world.user(&format!("deleted-{kind:?}").to_lowercase()).await;
            let mut tx = world.app.db.write().await.unwrap();
            sql("DELETE FROM users WHERE id = $1").bind(gone.id).execute(&mut tx).await.unwrap();
            tx.commit().await.unwrap();
            world.token(kind, gone.id, gone.session_id, 60).await
        }),
        ("longer than any token", format!("{header}.{}.{signature}", "A".repeat(5_000))),
    ];
    let mut attacks: Vec<_> = tokens
        .into_iter()
        .map(|(what, token)| Attack { what, authorization: format!("Bearer {token}") })
        .collect();
    for (what, authorization) in [
        ("nothing", String::new()),
        ("another scheme", format!("Basic {good}")),
        ("no scheme", good.clone()),
        ("a scheme alone", "Bearer".to_owned()),
    ] {
        attacks.push(Attack { what, authorization });
    }
    attacks
}

fn call(world: &World, route: &Route) -> Call {
    let path = route.path.replace("{*model_id}", "svc-1").replace(['{', '}'], "");
    let router = if route.listener == Listener::Service { &world.service } else { &world.public };
    let call = Call::new(router, route.method.clone(), &path);
    if route.method == Method::GET { call } else { call.json(&json!({})) }
}

#[on_each_database]
async fn every_route_refuses_invalid_tokens(world: World) {
    let victim = world.user("victim").await;
    let access = attacks(&world, &victim, TokenKind::Access).await;
    let refresh = attacks(&world, &victim, TokenKind::Refresh).await;
    let mut cases = 0;
    for route in routes::table().iter().filter(|route| route.access.scheme.is_some()) {
        let attacks = if route.access.scheme == Some("refreshToken") { &refresh } else { &access };
        for attack in attacks {
            let call = call(&world, route);
            let call = match attack.authorization.as_str() {
                "" => call,
                header => call.header("authorization", header),
            };
            let answer = call.send().await;
            assert_eq!(answer.status, 401, "{route:?}: {}: {}", attack.what, answer.text);
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{}", attack.what);
            cases += 1;
        }
    }
    assert!(cases > 700, "only {cases} cases");
    // The same attacks in the console's cookie.
    for attack in attacks(&world, &victim, TokenKind::Browser).await {
        let Some(cookie) = attack.authorization.strip_prefix("Bearer ") else { continue };
        let browser = Browser { cookie: cookie.to_owned() };
        let answer = browser.get(&world, "/console/organizations").send().await;
        assert_eq!(answer.status, 303, "{}: {}", attack.what, answer.text);
        assert!(answer.header("location").starts_with("/console/sign-in"), "{}", attack.what);
        let answer = browser.post(&world, "/console/organizations/new", &[("name", "x")]).send().await;
        assert_eq!(answer.status, 401, "{}: {}", attack.what, answer.text);
        cases += 1;
    }
    assert!(cases > 740, "only {cases} cases");
    // The victim's own token still works.
    world.get("/v1/auth/me").bearer(&victim.access_token).data().await;
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(world.get("/v1/auth/me").bearer(&victim.access_token).refused().await.0, 401);
}
