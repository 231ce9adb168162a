//! Tokens of sessions, in the compact serialization of JWS, signed with Ed25519 (RFC 7515, 7519, 8037),
//! following the recommendations of RFC 8725.
//!
//! The server signs these tokens, and only the server reads them, so nothing in a token is negotiable. The
//! header must be, byte for byte, the header that the server writes for a known key and the expected kind.
//! The claims must be, byte for byte, the JSON that the server writes for their values. This excludes attacks
//! such as `alg: none`, HMAC with the public key, embedded keys and repeated fields.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Value, json};

use kernel::clock::{DAY_MS, HOUR_MS, SECOND_MS, Time};
use kernel::ids::{SessionId, UserId};
use kernel::random::Random;
use kernel::secrets::sha256;

/// The maximum length of a token. Longer strings are refused before they are parsed.
pub const MAX_TOKEN_BYTES: usize = 2_048;
/// The number of characters of a key id: 96 bits of the public key's SHA-256 hash in base64url.
const KID_CHARS: usize = 16;
/// The maximum time by which another replica's clock may be ahead, in seconds.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// The purpose of a token. A token of one kind isn't accepted as another kind (RFC 8725, section 3.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// Authenticates requests.
    Access,
    /// Requests new access tokens.
    Refresh,
    /// Authenticates the requests of a browser, as the value of the console's cookie.
    Browser,
}

impl TokenKind {
    /// Returns the header's `typ` (for access tokens: RFC 9068, section 2.1).
    pub const fn typ(self) -> &'static str {
        match self {
            Self::Access => "at+jwt",
            Self::Refresh => "rt+jwt",
            Self::Browser => "bt+jwt",
        }
    }

    /// Returns the lifetime of a token of this kind, in milliseconds (docs/contract/accounts.md#tokens). A
    /// token with a longer lifetime is refused.
    pub const fn lifetime_ms(self) -> i64 {
        match self {
            Self::Access => HOUR_MS,
            Self::Refresh | Self::Browser => 30 * DAY_MS,
        }
    }
}

/// The period in which a key signs, in Unix seconds. A token whose `iat` is more than a minute outside of
/// this period is refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SigningPeriod {
    /// The time at which the key was created, if it is known.
    pub since: Option<i64>,
    /// The time at which another key replaced it, if any.
    pub until: Option<i64>,
}

impl SigningPeriod {
    fn contains(self, iat: i64) -> bool {
        self.since.is_none_or(|since| iat >= since.saturating_sub(CLOCK_SKEW_SECONDS))
            && self.until.is_none_or(|until| iat <= until.saturating_add(CLOCK_SKEW_SECONDS))
    }
}

/// The claims of a token. All of them are always present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims {
    /// The issuer: the public URL.
    pub iss: String,
    /// The audience.
    pub aud: String,
    /// The user.
    pub sub: UserId,
    /// The session. The token is valid only while the session is live.
    pub sid: SessionId,
    /// The id of the token.
    pub jti: String,
    /// The time at which the token was signed, in Unix seconds.
    pub iat: i64,
    /// The time at which the token expires, in Unix seconds.
    pub exp: i64,
}

/// The reason why a token isn't accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JwtError {
    /// The header is valid, but its key isn't in the set. Another replica may have created the key.
    UnknownKey,
    /// The text isn't a token of the expected kind, or its signature or its claims are invalid.
    Invalid,
    /// The token has expired.
    Expired,
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "signed with an unknown key",
            Self::Invalid => "not a valid token",
            Self::Expired => "expired",
        })
    }
}

impl std::error::Error for JwtError {}

/// The private half of a signing key: the seed of RFC 8032, section 5.1.5. It is stored only in sealed form.
#[derive(Clone)]
pub struct PrivateKey([u8; 32]);

impl PrivateKey {
    /// Returns the 32 bytes, for sealing only.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A key that signs tokens.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: VerifyingKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, ***)", self.kid())
    }
}

impl SigningKey {
    /// Generates a key, and returns it with its private half.
    ///
    /// # Errors
    /// The cryptographic library refuses the key, which shouldn't happen.
    pub fn generate(random: &Random) -> Result<(Self, PrivateKey), String> {
        let private = PrivateKey(random.bytes());
        Ok((Self::from_seed(private.expose())?, private))
    }

    /// Restores the key `kid` from its stored private half.
    ///
    /// # Errors
    /// The length isn't 32 bytes, or the bytes belong to a key with another id.
    pub fn from_private(kid: &str, bytes: &[u8]) -> Result<Self, String> {
        let key = Self::from_seed(bytes)?;
        if key.kid() != kid {
            return Err(format!("signing key {kid}: the stored private key belongs to {}", key.kid()));
        }
        Ok(key)
    }

    /// Returns the public half, 32 bytes (RFC 8032, section 5.1.5).
    pub const fn public_key(&self) -> [u8; 32] {
        self.public.key
    }

    /// Returns the key's id, which is derived from its public half.
    pub fn kid(&self) -> &str {
        &self.public.kid
    }

    fn from_seed(seed: &[u8]) -> Result<Self, String> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed)
            .map_err(|_| "an Ed25519 private key must be 32 bytes".to_owned())?;
        let mut key = [0; 32];
        key.copy_from_slice(pair.public_key().as_ref());
        Ok(Self { pair, public: VerifyingKey::new(key) })
    }
}

/// A key that verifies signatures, with the token headers that contain its id.
#[derive(Clone, Debug)]
pub struct VerifyingKey {
    kid: String,
    key: [u8; 32],
    signing_period: SigningPeriod,
    access_header: String,
    refresh_header: String,
    browser_header: String,
}

impl VerifyingKey {
    /// Creates the key with this public half.
    pub fn new(key: [u8; 32]) -> Self {
        let kid: String = URL_SAFE_NO_PAD.encode(sha256(&key)).chars().take(KID_CHARS).collect();
        let header = |kind| URL_SAFE_NO_PAD.encode(header_json(kind, &kid));
        Self {
            access_header: header(TokenKind::Access),
            refresh_header: header(TokenKind::Refresh),
            browser_header: header(TokenKind::Browser),
            kid,
            key,
            signing_period: SigningPeriod::default(),
        }
    }

    /// Returns the key's id, which is derived from its public half.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    fn header(&self, kind: TokenKind) -> &str {
        match kind {
            TokenKind::Access => &self.access_header,
            TokenKind::Refresh => &self.refresh_header,
            TokenKind::Browser => &self.browser_header,
        }
    }
}

/// The keys of the deployment: one signs, all of them verify.
#[derive(Clone, Debug)]
pub struct Keyset {
    active: Arc<SigningKey>,
    verifying: Vec<VerifyingKey>,
}

impl Keyset {
    /// Creates a set with this signing key. `older` are the public halves of the keys whose tokens are also
    /// valid.
    pub fn new(active: Arc<SigningKey>, older: &[[u8; 32]]) -> Self {
        let others = older.iter().filter(|key| **key != active.public_key());
        let verifying =
            std::iter::once(active.public.clone()).chain(others.map(|key| VerifyingKey::new(*key))).collect();
        Self { active, verifying }
    }

    /// Sets the period in which the key with this id signs.
    #[must_use]
    pub fn with_signing_period(mut self, kid: &str, signing_period: SigningPeriod) -> Self {
        for key in self.verifying.iter_mut().filter(|key| key.kid == kid) {
            key.signing_period = signing_period;
        }
        self
    }

    /// Returns the id of the key that signs.
    pub fn active_kid(&self) -> &str {
        self.active.kid()
    }

    /// Signs a token with these claims. [`Keyset::verify`] accepts at most [`MAX_TOKEN_BYTES`], so `iss` and
    /// `aud` must be short. The configuration limits their length.
    pub fn sign(&self, kind: TokenKind, claims: &Claims) -> String {
        let header = self.active.public.header(kind);
        let mut token = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims_json(claims)));
        let signature = self.active.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        token
    }

    /// Returns the claims of a token that one of these keys signed. The token must be of this kind, be for
    /// this issuer and audience, and be valid now.
    ///
    /// # Errors
    /// After [`JwtError::UnknownKey`], the caller should reload the keys and try again once.
    pub fn verify(
        &self,
        token: &str,
        kind: TokenKind,
        expected_iss: &str,
        expected_aud: &str,
        now: Time,
    ) -> Result<Claims, JwtError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(JwtError::Invalid);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Invalid)?;
        let (header, payload) = signed.split_once('.').ok_or(JwtError::Invalid)?;
        let Some(key) = self.verifying.iter().find(|key| key.header(kind) == header) else {
            return Err(self.missing_key_error(header, kind));
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Invalid)?;
        UnparsedPublicKey::new(&ED25519, &key.key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| JwtError::Invalid)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| JwtError::Invalid)?;
        let claims = read_claims(&payload).ok_or(JwtError::Invalid)?;
        if !key.signing_period.contains(claims.iat) || exceeds_lifetime(&claims, kind) {
            return Err(JwtError::Invalid);
        }
        check_claims(&claims, expected_iss, expected_aud, now)?;
        Ok(claims)
    }

    /// Returns the public keys as a JWK set (RFC 7517, section 5; RFC 8037, section 2).
    pub fn jwks(&self) -> Value {
        let key = |key: &VerifyingKey| {
            let x = URL_SAFE_NO_PAD.encode(key.key);
            json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": key.kid, "x": x})
        };
        json!({"keys": self.verifying.iter().map(key).collect::<Vec<_>>()})
    }

    /// Returns [`JwtError::UnknownKey`] for a header that is valid except that its key id is unknown, and
    /// [`JwtError::Invalid`] for any other string.
    fn missing_key_error(&self, header: &str, kind: TokenKind) -> JwtError {
        let unknown = || {
            let header = String::from_utf8(URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
            let (_, rest) = header.split_once(r#""kid":""#)?;
            let kid = rest.strip_suffix(r#""}"#)?;
            let well_formed = kid.len() == KID_CHARS
                && kid.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
                && header == header_json(kind, kid);
            (well_formed && self.verifying.iter().all(|key| key.kid != kid)).then_some(())
        };
        if unknown().is_some() { JwtError::UnknownKey } else { JwtError::Invalid }
    }
}

/// Returns the only valid header for this kind and key.
fn header_json(kind: TokenKind, kid: &str) -> String {
    format!(r#"{{"alg":"EdDSA","typ":"{}","kid":"{kid}"}}"#, kind.typ())
}

/// Returns the only valid JSON for these claims, with a fixed order and spelling.
fn claims_json(claims: &Claims) -> String {
    let Claims { iss, aud, sub, sid, jti, iat, exp } = claims;
    let [iss, aud, jti] = [iss, aud, jti].map(|text| Value::from(text.as_str()));
    format!(r#"{{"iss":{iss},"aud":{aud},"sub":"{sub}","sid":"{sid}","jti":{jti},"iat":{iat},"exp":{exp}}}"#)
}

/// The claims in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimsJson<'a> {
    #[serde(borrow)]
    iss: Cow<'a, str>,
    #[serde(borrow)]
    aud: Cow<'a, str>,
    #[serde(borrow)]
    sub: Cow<'a, str>,
    #[serde(borrow)]
    sid: Cow<'a, str>,
    #[serde(borrow)]
    jti: Cow<'a, str>,
    iat: i64,
    exp: i64,
}

/// Reads claims; `None` unless [`claims_json`] would write exactly this string for them.
fn read_claims(payload: &[u8]) -> Option<Claims> {
    let wire: ClaimsJson<'_> = serde_json::from_slice(payload).ok()?;
    let claims = Claims {
        sub: UserId::parse(&wire.sub)?,
        sid: SessionId::parse(&wire.sid)?,
        iss: wire.iss.into_owned(),
        aud: wire.aud.into_owned(),
        jti: wire.jti.into_owned(),
        iat: wire.iat,
        exp: wire.exp,
    };
    (claims_json(&claims).as_bytes() == payload).then_some(claims)
}

fn exceeds_lifetime(claims: &Claims, kind: TokenKind) -> bool {
    claims.exp.saturating_sub(claims.iat) > kind.lifetime_ms() / SECOND_MS
}

fn check_claims(claims: &Claims, iss: &str, aud: &str, now: Time) -> Result<(), JwtError> {
    let is_from_future = claims.iat > now.unix_seconds().saturating_add(CLOCK_SKEW_SECONDS);
    if claims.iss != iss || claims.aud != aud || claims.exp <= claims.iat || is_from_future {
        return Err(JwtError::Invalid);
    }
    // RFC 7519, section 4.1.4: on or after `exp` a token must not be accepted.
    if now.unix_ms() >= claims.exp.saturating_mul(SECOND_MS) {
        return Err(JwtError::Expired);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::string_slice, reason = "test tokens are ASCII")]
mod tests;
