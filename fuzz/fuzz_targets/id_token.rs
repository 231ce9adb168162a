//! Checks that no text is accepted as an ID token without a signature by the provider's key. A signed token
//! is accepted only with the right issuer, audience, nonce and time.

#![cfg_attr(feature = "engine", no_main)]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fuzz::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use tollkeeper::clock::Time;
use tollkeeper::kernel::secrets::Secret;
use tollkeeper::sign_on::read_id_token;
use tollkeeper::sign_on::settings::{Kind, Link, Provision, Settings};

const ISSUER: &str = "https://id.example.com";
const NONCE: &str = "nonce";
const NOW_S: i64 = 1_773_144_000;

struct Provider {
    pair: Ed25519KeyPair,
    keys: String,
    settings: Settings,
}

static PROVIDER: LazyLock<Provider> = LazyLock::new(|| {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("a key");
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "a", "x": x}]});
    let settings = Settings {
        id: "acme".to_owned(),
        name: "Acme".to_owned(),
        kind: Kind::OpenId,
        issuer: ISSUER.to_owned(),
        client_id: "tollkeeper".to_owned(),
        client_secret: Secret::new("secret"),
        scopes: vec!["openid".to_owned()],
        domains: Vec::new(),
        membership: None,
        provision: Provision::None,
        link: Link::Confirm,
        takes_verified_as_text: false,
        trusts_second_factor: true,
        acr_values: Vec::new(),
        session_hours: 12,
        takes_logouts: false,
        takes_any_logout_type: false,
    };
    Provider { pair, keys: keys.to_string(), settings }
});

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A random text.
    Any(&'a str),
    /// A random header and random claims, with a signature by the provider.
    Signed { header: &'a [u8], claims: &'a [u8] },
    /// Claims similar to valid ones.
    Claims {
        issuer: Option<&'a str>,
        audience: Option<&'a str>,
        nonce: Option<&'a str>,
        issued_s: i32,
        left_s: i32,
        subject: &'a str,
    },
}

fn sign(header: &[u8], claims: &[u8]) -> String {
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = PROVIDER.pair.sign(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

fn is_taken(token: &str) -> bool {
    let now = Time::from_unix_ms(NOW_S * 1_000);
    let identity = read_id_token(&PROVIDER.settings, &PROVIDER.keys, token, NONCE, now);
    if let Some(identity) = &identity {
        assert!(!identity.subject.is_empty() && identity.issuer == ISSUER);
        assert!(identity.email.is_some() || !identity.is_email_verified);
    }
    identity.is_some()
}

fuzz_target!(|input: Input| match input {
    // A random text has no valid signature.
    Input::Any(text) => assert!(!is_taken(text)),
    Input::Signed { header, claims } => {
        is_taken(&sign(header, claims));
    }
    Input::Claims { issuer, audience, nonce, issued_s, left_s, subject } => {
        let (issued, left) = (i64::from(issued_s), i64::from(left_s));
        let claims = json!({
            "iss": issuer.unwrap_or(ISSUER),
            "aud": audience.unwrap_or("tollkeeper"),
            "nonce": nonce.unwrap_or(NONCE),
            "iat": NOW_S + issued,
            "exp": NOW_S + left,
            "sub": subject,
        });
        let is_good = issuer.is_none_or(|issuer| issuer == ISSUER)
            && audience.is_none_or(|audience| audience == "tollkeeper")
            && nonce.is_none_or(|nonce| nonce == NONCE)
            && (-300..=300).contains(&issued)
            && left > 0
            && (1..=255).contains(&subject.chars().count())
            && !subject.chars().any(char::is_control);
        let token = sign(b"{\"alg\":\"EdDSA\",\"kid\":\"a\"}", claims.to_string().as_bytes());
        assert_eq!(is_taken(&token), is_good, "{claims}");
    }
});
