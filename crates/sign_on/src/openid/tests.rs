use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;
use crate::settings::tests::settings;

const ISSUER: &str = "https://id.example.com/";
const NONCE: &str = "n-0S6_WzA2Mj";

fn now() -> Time {
    Time::parse("2026-03-10T12:00:00Z").unwrap()
}

#[allow(clippy::disallowed_methods, reason = "keys of tests")]
fn random() -> SystemRandom {
    SystemRandom::new()
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A key of a provider.
enum Key {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    fn p256() -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random());
        Self::P256(pair.unwrap())
    }

    fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&random()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": kid, "x": x, "y": y})
            }
            Self::Ed25519(pair) => {
                let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": kid, "x": x})
            }
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", encode(header), encode(claims));
        let signature = match self {
            Self::P256(pair) => pair.sign(&random(), text.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
        };
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn key_set(keys: &[Value]) -> CoreJsonWebKeySet {
    serde_json::from_value(json!({ "keys": keys })).unwrap()
}

fn good() -> Value {
    let seconds = now().unix_seconds();
    json!({"iss": ISSUER, "sub": "248289761001", "aud": "tollkeeper", "exp": seconds + 300, "iat": seconds, "nonce": NONCE})
}

/// Returns the valid claims with these changes; null removes a claim.
fn with(changes: &Value) -> Value {
    let mut claims = good();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn check(keys: &CoreJsonWebKeySet, token: &str) -> Result<Map<String, Value>, TokenError> {
    verify(&settings(ISSUER, &[]), keys, token, Use::Identity { nonce: NONCE }, now())
}

#[test]
fn good_tokens_are_taken() {
    let (p256, ed25519) = (Key::p256(), Key::ed25519());
    let keys = key_set(&[p256.jwk("a"), ed25519.jwk("b")]);
    let by_p256 = p256.sign(&json!({"alg": "ES256", "kid": "a"}), &good());
    let by_ed25519 = ed25519.sign(&json!({"alg": "EdDSA", "kid": "b", "typ": "JWT"}), &good());
    let seconds = now().unix_seconds();
    for token in [
        by_p256,
        by_ed25519,
        p256.sign(&json!({"alg": "ES256"}), &good()),
        p256.sign(&json!({"alg": "ES256"}), &with(&json!({"aud": ["tollkeeper"], "azp": "tollkeeper"}))),
        p256.sign(&json!({"alg": "ES256"}), &with(&json!({"aud": ["x", "tollkeeper"], "azp": "tollkeeper"}))),
        p256.sign(&json!({"alg": "ES256"}), &with(&json!({"iat": seconds + 299, "exp": seconds + 1}))),
    ] {
        assert_eq!(check(&keys, &token).map(|claims| claims["sub"].clone()), Ok(json!("248289761001")));
    }
}

#[test]
fn tokens_with_wrong_claims_are_refused() {
    let key = Key::p256();
    let keys = key_set(&[key.jwk("a")]);
    let seconds = now().unix_seconds();
    for changes in [
        json!({"iss": null}),
        json!({"iss": "https://id.example.com"}),
        json!({"iss": "https://ID.example.com/"}),
        json!({"iss": "https://evil.example/"}),
        json!({"aud": null}),
        json!({"aud": "other"}),
        json!({"aud": []}),
        json!({"aud": ["tollkeeper", "other"]}),
        json!({"aud": ["tollkeeper", "other"], "azp": "other"}),
        json!({"azp": "other"}),
        json!({"azp": null, "aud": ["other"]}),
        json!({"nonce": null}),
        json!({"nonce": "another"}),
        json!({"nonce": ""}),
        json!({"exp": null}),
        json!({"exp": seconds}),
        json!({"exp": seconds - 60}),
        json!({"iat": null}),
        json!({"iat": seconds - 301}),
        json!({"iat": seconds + 301}),
        json!({"nbf": seconds + 301}),
        json!({"sub": null}),
        json!({"sub": 248_289_761_001_i64}),
    ] {
        let token = key.sign(&json!({"alg": "ES256", "kid": "a"}), &with(&changes));
        assert!(matches!(check(&keys, &token), Err(TokenError::Refused(_))), "{changes}");
    }
}

#[test]
fn tokens_with_wrong_signatures_are_refused() {
    let (key, other) = (Key::p256(), Key::p256());
    let jwk = key.jwk("a");
    let keys = key_set(std::slice::from_ref(&jwk));
    let header = json!({"alg": "ES256", "kid": "a"});
    let token = key.sign(&header, &good());
    // No signature at all.
    let none = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&good()));
    // HMAC signatures whose secret is the public key, which everyone knows, or the client's own secret.
    let mut shared = Vec::new();
    for secret in [jwk["x"].as_str().unwrap().as_bytes(), jwk.to_string().as_bytes(), b"secret"] {
        let text = format!("{}.{}", encode(&json!({"alg": "HS256", "kid": "a"})), encode(&good()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        shared.push(format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref())));
    }
    let (text, signature) = token.rsplit_once('.').unwrap();
    let admin = with(&json!({"sub": "1"}));
    let forged = format!("{}.{}.{signature}", encode(&header), encode(&admin));
    let wrong = [
        none,
        format!("{}.{}.{signature}", encode(&json!({"alg": "none", "kid": "a"})), encode(&good())),
        format!("{}.{}.{signature}", encode(&json!({"alg": "ES256K", "kid": "a"})), encode(&good())),
        format!("{}.{}.{signature}", encode(&json!({"alg": "RS256", "kid": "a"})), encode(&good())),
        forged,
        format!("{text}."),
        text.to_owned(),
        format!("{text}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        other.sign(&header, &good()),
        key.sign(&json!({"alg": "ES256", "kid": "a", "crit": ["x"], "x": 1}), &good()),
        key.sign(&json!({"alg": "ES256", "kid": "a", "cty": "JWT"}), &good()),
        key.sign(&json!({"alg": "ES256", "kid": "a", "typ": "at+jwt"}), &good()),
        key.sign(&json!({"alg": "ES256", "kid": "a", "typ": "logout+jwt"}), &good()),
        // A token that contains its own key.
        other.sign(&json!({"alg": "ES256", "kid": "a", "jwk": other.jwk("a")}), &good()),
        String::new(),
        "..".to_owned(),
        "a.b.c".to_owned(),
    ];
    for token in wrong.into_iter().chain(shared) {
        assert!(check(&keys, &token).is_err(), "{token}");
    }
    assert_eq!(
        check(&keys, &other.sign(&json!({"alg": "ES256", "kid": "b"}), &good())),
        Err(TokenError::UnknownKey)
    );
    assert_eq!(check(&key_set(&[]), &token), Err(TokenError::UnknownKey));
    // A key that isn't for signatures, and two keys without a `kid` that distinguishes them.
    let mut encrypts = jwk.clone();
    encrypts["use"] = json!("enc");
    assert!(check(&key_set(&[encrypts]), &token).is_err());
    let nameless = key.sign(&json!({"alg": "ES256"}), &good());
    assert!(check(&key_set(&[jwk, other.jwk("b")]), &nameless).is_err());
}

#[test]
fn a_token_of_a_login_is_no_logout_and_the_other_way_round() {
    let key = Key::p256();
    let keys = key_set(&[key.jwk("a")]);
    let acme = settings(ISSUER, &[]);
    let events = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    let claims = with(&json!({"nonce": null, "events": events, "jti": "j1"}));
    let header = json!({"alg": "ES256", "kid": "a", "typ": "logout+jwt"});
    let token = key.sign(&header, &claims);
    let read = verify(&acme, &keys, &token, Use::Logout, now()).unwrap();
    let logout = crate::logout::Logout::of_claims(ISSUER, &read).unwrap();
    assert_eq!((logout.subject.as_str(), logout.token_id.as_str()), ("248289761001", "j1"));
    assert!(check(&keys, &token).is_err());
    assert!(verify(&acme, &keys, &key.sign(&header, &good()), Use::Logout, now()).is_err(), "it has a nonce");
    // A logout token must have the right type, unless the settings allow another type.
    let any = crate::settings::Settings { takes_any_logout_type: true, ..acme.clone() };
    for (typ, strict, lenient) in [
        (json!("logout+jwt"), true, true),
        (json!("Logout+JWT"), true, true),
        (json!("application/logout+jwt"), true, true),
        (json!("APPLICATION/logout+jwt"), true, true),
        (json!("JWT"), false, true),
        (json!("at+jwt"), false, false),
        (json!("logout"), false, false),
        (json!("application/x/logout+jwt"), false, false),
        (Value::Null, false, true),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "a"});
        if !typ.is_null() {
            header["typ"] = typ.clone();
        }
        let token = key.sign(&header, &claims);
        let taken = |settings| verify(settings, &keys, &token, Use::Logout, now()).is_ok();
        assert_eq!((taken(&acme), taken(&any)), (strict, lenient), "{typ}");
    }
    for changes in [json!({"events": null}), json!({"events": {}}), json!({"jti": null}), json!({"jti": ""})]
    {
        let mut claims = claims.clone();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let token = key.sign(&header, &claims);
        let read = verify(&acme, &keys, &token, Use::Logout, now()).unwrap();
        assert!(crate::logout::Logout::of_claims(ISSUER, &read).is_err(), "{changes}");
    }
}

#[test]
fn optional_claims_of_odd_types_are_left_out() {
    let key = Key::p256();
    let keys = key_set(&[key.jwk("a")]).clone();
    let acme = settings(ISSUER, &[]);
    let header = json!({"alg": "ES256", "kid": "a"});
    for odd in [json!(["ada"]), json!(7), json!({"a": 1}), json!(true), json!(1.5)] {
        let mut claims = good();
        for name in [
            "name",
            "given_name",
            "preferred_username",
            "email",
            "email_verified",
            "picture",
            "locale",
            "updated_at",
            "address",
            "phone_number",
            "amr",
            "acr",
            "auth_time",
            "hd",
            "name#de",
            "at_hash",
            "groups",
        ] {
            claims[name] = odd.clone();
        }
        claims["email_verified"] = json!("true");
        claims["auth_time"] = json!("yesterday");
        let read = verify(&acme, &keys, &key.sign(&header, &claims), Use::Identity { nonce: NONCE }, now());
        let identity = Identity::of_claims(&acme, &read.unwrap()).unwrap();
        assert_eq!(identity.subject, "248289761001");
        assert_eq!((identity.username, identity.full_name, identity.email), (None, None, None), "{odd}");
        assert!(!identity.is_email_verified && !identity.has_passed_second_factor, "{odd}");
        assert_eq!((identity.hosted_domain, identity.authenticated_at), (None, None), "{odd}");
    }
    // The decisive claims must have the right types.
    for changes in [
        json!({"sub": ["1"]}),
        json!({"iss": [ISSUER]}),
        json!({"aud": 1}),
        json!({"exp": "tomorrow"}),
        json!({"iat": "now"}),
        json!({"nonce": [NONCE]}),
        json!({"azp": ["tollkeeper"]}),
    ] {
        assert!(check(&keys, &key.sign(&header, &with(&changes))).is_err(), "{changes}");
    }
}

#[test]
fn signature_is_over_all_claims() {
    let key = Key::p256();
    let keys = key_set(&[key.jwk("a")]);
    let token = key.sign(&json!({"alg": "ES256", "kid": "a"}), &with(&json!({"email": "ada@example.com"})));
    assert!(check(&keys, &token).is_ok());
    // The library doesn't get the address, but a changed address is still refused.
    let parts: Vec<&str> = token.split('.').collect();
    let other = encode(&with(&json!({"email": "eve@example.com"})));
    assert!(check(&keys, &format!("{}.{other}.{}", parts[0], parts[2])).is_err());
    assert!(check(&keys, &format!("{token}.x")).is_err());
}
