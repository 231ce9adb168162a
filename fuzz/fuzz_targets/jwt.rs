//! Checks that every accepted token equals the one that we would sign for its claims. This can be compared
//! because Ed25519 signatures are deterministic. Our tokens are accepted only with the right kind, issuer,
//! audience and time.

#![cfg_attr(feature = "engine", no_main)]

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fuzz::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use tollkeeper::accounts::jwt::{
    Claims, JwtError, Keyset, MAX_TOKEN_BYTES, SigningKey, TokenKind, VerifyingKey,
};
use tollkeeper::clock::Time;
use tollkeeper::ids::{SessionId, UserId};

const ISSUER: &str = "https://keys.example.org";
const AUDIENCE: &str = "platform";
/// The maximum time that the clock of another server may be ahead, in seconds.
const SKEW_S: i64 = 60;

/// The keys of a deployment after a rotation.
struct Keys {
    /// The current signing key. The old key is still accepted.
    today: Keyset,
    /// The old key, as when it was the signing key.
    before: Keyset,
    /// A key that isn't accepted.
    foreign: Keyset,
    /// The private key of `today`, for payloads that we would never sign.
    raw: Ed25519KeyPair,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let key = |seed: u8| {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key");
        let mut public = [0; 32];
        public.copy_from_slice(pair.public_key().as_ref());
        let kid = VerifyingKey::new(public).kid().to_owned();
        (Arc::new(SigningKey::from_private(&kid, &[seed; 32]).expect("a key")), public)
    };
    let ((new, _), (old, old_public), (foreign, _)) = (key(1), key(2), key(3));
    Keys {
        today: Keyset::new(new, &[old_public]),
        before: Keyset::new(old, &[]),
        foreign: Keyset::new(foreign, &[]),
        raw: Ed25519KeyPair::from_seed_unchecked(&[1; 32]).expect("a key"),
    }
});

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A random text.
    Any(&'a str),
    /// A header that we use and a payload of random bytes, with our signature.
    Signed { refresh: bool, payload: &'a [u8] },
    /// Our claims in another JSON notation, with our signature.
    Rewritten { said: TokenFields<'a>, from: &'a str, to: &'a str },
    /// A token that we signed, possibly changed, and verified at any time.
    Ours { said: TokenFields<'a>, signer: Signer, now_ms: i64, edits: Vec<Edit> },
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Signer {
    Today,
    Before,
    Foreign,
}

#[derive(Arbitrary, Debug)]
struct TokenFields<'a> {
    refresh: bool,
    iss: Option<&'a str>,
    aud: Option<&'a str>,
    jti: &'a str,
    sub: [u8; 16],
    sid: [u8; 16],
    iat: i64,
    lives_s: i64,
}

/// An edit of one character.
#[derive(Arbitrary, Debug)]
enum Edit {
    Replace(u16, char),
    Insert(u16, char),
    Remove(u16),
}

fuzz_target!(|input: Input| match input {
    Input::Any(text) => {
        for kind in [TokenKind::Access, TokenKind::Refresh] {
            judge(text, kind, Time::from_unix_ms(0)).ok();
        }
    }
    Input::Signed { refresh, payload } => {
        let token = sign_raw(kind(refresh), payload);
        judge(&token, kind(refresh), Time::from_unix_ms(0)).ok();
    }
    Input::Rewritten { said, from, to } => {
        let claims = claims(&said);
        let ours = KEYS.today.sign(kind(said.refresh), &claims);
        let payload = URL_SAFE_NO_PAD.decode(ours.split('.').nth(1).expect("a payload")).expect("base64");
        let payload = String::from_utf8(payload).expect("JSON").replacen(from, to, 1);
        let token = sign_raw(kind(said.refresh), payload.as_bytes());
        judge(&token, kind(said.refresh), Time::from_unix_ms(claims.iat.saturating_mul(1_000))).ok();
    }
    Input::Ours { said, signer, now_ms, edits } => ours(&said, signer, Time::from_unix_ms(now_ms), &edits),
});

fn ours(said: &TokenFields, signer: Signer, now: Time, edits: &[Edit]) {
    let (kind, other) = match said.refresh {
        true => (TokenKind::Refresh, TokenKind::Access),
        false => (TokenKind::Access, TokenKind::Refresh),
    };
    let claims = claims(said);
    let signer_keys = match signer {
        Signer::Today => &KEYS.today,
        Signer::Before => &KEYS.before,
        Signer::Foreign => &KEYS.foreign,
    };
    let token = signer_keys.sign(kind, &claims);
    let seconds = i128::from(now.unix_seconds());
    let expected = if token.len() > MAX_TOKEN_BYTES {
        Err(JwtError::Invalid)
    } else if matches!(signer, Signer::Foreign) {
        Err(JwtError::UnknownKey)
    } else if claims.iss != ISSUER
        || claims.aud != AUDIENCE
        || claims.exp <= claims.iat
        || i128::from(claims.exp) - i128::from(claims.iat) > i128::from(kind.lifetime_ms() / 1_000)
        || i128::from(claims.iat) > seconds + i128::from(SKEW_S)
    {
        Err(JwtError::Invalid)
    } else if i128::from(now.unix_ms()) >= i128::from(claims.exp) * 1_000 {
        Err(JwtError::Expired)
    } else {
        Ok(claims)
    };
    assert_eq!(judge(&token, kind, now), expected);
    assert_eq!(judge(&token, other, now), Err(JwtError::Invalid));
    let edited = edit(&token, edits);
    if edited != token {
        assert!(judge(&edited, kind, now).is_err(), "{edited} is accepted as {token}");
    }
    judge(&edited, other, now).expect_err("the other kind");
}

/// Verifies a token. Asserts that an accepted token equals one that we would sign.
fn judge(token: &str, kind: TokenKind, now: Time) -> Result<Claims, JwtError> {
    let verdict = KEYS.today.verify(token, kind, ISSUER, AUDIENCE, now);
    if let Ok(claims) = &verdict {
        let signed = [KEYS.today.sign(kind, claims), KEYS.before.sign(kind, claims)];
        assert!(signed.iter().any(|ours| ours == token), "not our token: {token}");
        assert_eq!((claims.iss.as_str(), claims.aud.as_str()), (ISSUER, AUDIENCE));
    }
    verdict
}

fn kind(refresh: bool) -> TokenKind {
    if refresh { TokenKind::Refresh } else { TokenKind::Access }
}

fn claims(said: &TokenFields) -> Claims {
    let id = |bytes: [u8; 16]| {
        let number = u128::from_be_bytes(bytes);
        // The high part of an id is a time of 48 bits, in milliseconds.
        (Time::from_unix_ms((number >> 80) as i64), number)
    };
    let ((sub_at, sub), (sid_at, sid)) = (id(said.sub), id(said.sid));
    Claims {
        iss: said.iss.unwrap_or(ISSUER).to_owned(),
        aud: said.aud.unwrap_or(AUDIENCE).to_owned(),
        sub: UserId::from_parts(sub_at, sub),
        sid: SessionId::from_parts(sid_at, sid),
        jti: said.jti.to_owned(),
        iat: said.iat,
        exp: said.iat.saturating_add(said.lives_s),
    }
}

/// Returns a token with a header that we use, this payload, and a valid signature.
fn sign_raw(kind: TokenKind, payload: &[u8]) -> String {
    let header = format!(r#"{{"alg":"EdDSA","typ":"{}","kid":"{}"}}"#, kind.typ(), KEYS.today.active_kid());
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = KEYS.raw.sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

fn edit(token: &str, edits: &[Edit]) -> String {
    let mut text: Vec<char> = token.chars().collect();
    for edit in edits {
        match *edit {
            Edit::Replace(at, typed) if !text.is_empty() => {
                let at = usize::from(at) % text.len();
                text[at] = typed;
            }
            Edit::Insert(at, typed) => text.insert(usize::from(at) % (text.len() + 1), typed),
            Edit::Remove(at) if !text.is_empty() => {
                text.remove(usize::from(at) % text.len());
            }
            Edit::Replace(..) | Edit::Remove(_) => {}
        }
    }
    text.into_iter().collect()
}
