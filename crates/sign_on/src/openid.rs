//! The checks of OpenID Connect for ID tokens and logout tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use openidconnect::core::{CoreIdToken, CoreIdTokenVerifier, CoreJsonWebKeySet, CoreJwsSigningAlgorithm};
use openidconnect::{ClientId, IssuerUrl, JsonWebKey, JsonWebTokenType, Nonce, SignatureVerificationError};
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::settings::Settings;
use kernel::clock::{MINUTE_MS, SECOND_MS, Time};

/// The supported signature algorithms.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 5] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EdDsa,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
];
/// The claims that decide whether a token is valid. Only these claims are passed to the library. Other claims
/// may have any type, and are read where they are used ([`Identity`]).
const DECISIVE: [&str; 7] = ["iss", "sub", "aud", "exp", "iat", "nonce", "azp"];
/// The maximum difference between the time of a token and the current time, in milliseconds.
const MAX_SKEW_MS: i64 = 5 * MINUTE_MS;

/// The authorization response of a provider, in the query of the browser's request.
#[derive(Clone, Copy, Default)]
pub struct Callback<'a> {
    pub code: Option<&'a str>,
    pub state: &'a str,
    /// The issuer of the response (RFC 9207).
    pub issuer: Option<&'a str>,
    /// The reason why the response has no code.
    pub error: Option<&'a str>,
}

/// The purpose of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use<'a> {
    /// Identifies a user, in response to a request with this nonce.
    Identity { nonce: &'a str },
    /// Signs a user out.
    Logout,
}

/// The reason why a token is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TokenError {
    /// No key has the token's `kid`. The provider may have new keys.
    UnknownKey,
    /// The token isn't valid. Contains a sentence for the log, without the token.
    Refused(String),
}

/// Checks a token, and returns its claims.
///
/// # Errors
/// The token isn't from this provider, isn't for this client, or isn't valid now.
pub(crate) fn verify(
    settings: &Settings,
    keys: &CoreJsonWebKeySet,
    token: &str,
    purpose: Use<'_>,
    now: Time,
) -> Result<Map<String, Value>, TokenError> {
    let refused = |why: String| TokenError::Refused(why);
    let claims = payload(token).ok_or_else(|| refused("its claims can't be read".to_owned()))?;
    let parsed = with_decisive_claims(token, &claims)
        .and_then(|decisive| decisive.parse::<CoreIdToken>().map_err(|error| error.to_string()))
        .map_err(|error| refused(format!("it can't be read: {}", error.escape_debug())))?;
    let issuer = IssuerUrl::new(settings.issuer.clone()).map_err(|error| refused(error.to_string()))?;
    // The verifier has no client secret, so that a signature with a shared secret is never valid.
    let mut verifier = CoreIdTokenVerifier::new_public_client(
        ClientId::new(settings.client_id.clone()),
        issuer,
        keys.clone(),
    )
    .set_allowed_algs(ALGORITHMS)
    .set_time_fn(move || time(now))
    .set_issue_time_verifier_fn(move |issued| check_issued(issued, now))
    // Other audiences are checked below, by `azp`.
    .set_other_audience_verifier_fn(|_| true)
    // The signature covers all claims, so it is checked below.
    .insecure_disable_signature_check();
    let checked = match purpose {
        Use::Identity { nonce } => parsed.claims(&verifier, &Nonce::new(nonce.to_owned())),
        Use::Logout => {
            if !settings.takes_any_logout_type && !has_logout_type(token) {
                return Err(refused(
                    "its `typ` isn't `logout+jwt`; for a provider that sends another one: `logout_token_type = \"any\"`"
                        .to_owned(),
                ));
            }
            let types = ["logout+jwt", "JWT"].map(|name| JsonWebTokenType::new(name.to_owned()).normalize());
            verifier = verifier.set_allowed_jose_types(types.into_iter().flatten());
            // An ID token of a login must not be accepted as a logout token (OpenID Connect Back-Channel
            // Logout, section 2.4).
            let no_nonce = |nonce: Option<&Nonce>| match nonce {
                None => Ok(()),
                Some(_) => Err("it has a nonce".to_owned()),
            };
            parsed.claims(&verifier, no_nonce)
        }
    };
    checked.map_err(|error| refused(error.to_string().escape_debug().to_string()))?;
    check_signature(&verifier, &parsed, token)?;
    check_claims(settings, &claims, now).map_err(|why| refused(why.to_owned()))?;
    Ok(claims)
}

/// Returns the token with only its [`DECISIVE`] claims. Its signature is then no longer valid.
fn with_decisive_claims(token: &str, claims: &Map<String, Value>) -> Result<String, String> {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, _, signature] = parts[..] else { return Err("it doesn't have three parts".to_owned()) };
    let decisive: Map<String, Value> =
        DECISIVE.iter().filter_map(|name| Some(((*name).to_owned(), claims.get(*name)?.clone()))).collect();
    let decisive = serde_json::to_vec(&decisive).map_err(|error| error.to_string())?;
    Ok(format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(decisive)))
}

/// Checks the signature of a complete token with the key that matches its header. `parsed` has the same
/// header.
fn check_signature(
    verifier: &CoreIdTokenVerifier<'_>,
    parsed: &CoreIdToken,
    token: &str,
) -> Result<(), TokenError> {
    let refused = |error: SignatureVerificationError| match error {
        SignatureVerificationError::NoMatchingKey => TokenError::UnknownKey,
        other => TokenError::Refused(other.to_string().escape_debug().to_string()),
    };
    let algorithm = parsed.signing_alg().map_err(refused)?;
    if !ALGORITHMS.contains(algorithm) {
        return Err(TokenError::Refused("its signature has an unsupported algorithm".to_owned()));
    }
    let key = parsed.signing_key(verifier).map_err(refused)?;
    let (signed, signature) = token
        .rsplit_once('.')
        .and_then(|(signed, signature)| Some((signed, URL_SAFE_NO_PAD.decode(signature).ok()?)))
        .ok_or_else(|| TokenError::Refused("its signature can't be read".to_owned()))?;
    key.verify_signature(algorithm, signed.as_bytes(), &signature).map_err(refused)
}

/// Returns `true` if the header of a token declares a logout token.
fn has_logout_type(token: &str) -> bool {
    let header = token.split('.').next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    let header: Option<Map<String, Value>> = header.and_then(|header| serde_json::from_slice(&header).ok());
    let name = header.as_ref().and_then(|header| header.get("typ")?.as_str());
    name.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.strip_prefix("application/").unwrap_or(&name) == "logout+jwt"
    })
}

/// Reads an ID token with the checks that the response of a provider must pass. `keys` is a JWK set as JSON.
/// Returns `None` if a check fails.
pub fn read_id_token(
    settings: &Settings,
    keys: &str,
    token: &str,
    nonce: &str,
    now: Time,
) -> Option<Identity> {
    let keys: CoreJsonWebKeySet = serde_json::from_str(keys).ok()?;
    let claims = verify(settings, &keys, token, Use::Identity { nonce }, now).ok()?;
    Identity::of_claims(settings, &claims)
}

/// Returns the claims of a token exactly as they were signed. The library changes some claims when it parses
/// them.
fn payload(token: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?).ok()
}

/// Checks the claims that the library leaves to its callers.
fn check_claims(settings: &Settings, claims: &Map<String, Value>, now: Time) -> Result<(), &'static str> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(settings.issuer.as_str()) {
        return Err("its issuer is spelled differently");
    }
    let has_others = match claims.get("aud") {
        Some(Value::Array(all)) => all.len() > 1,
        _ => false,
    };
    match claims.get("azp") {
        Some(party) if party.as_str() != Some(settings.client_id.as_str()) => {
            return Err("it was issued to another client (`azp`)");
        }
        None if has_others => return Err("it is for several clients, and `azp` names none of them"),
        _ => {}
    }
    let earliest_ms =
        claims.get("nbf").and_then(Value::as_i64).map(|seconds| seconds.saturating_mul(SECOND_MS));
    if earliest_ms.is_some_and(|earliest| earliest > now.unix_ms().saturating_add(MAX_SKEW_MS)) {
        return Err("it isn't valid yet (`nbf`)");
    }
    Ok(())
}

fn time(now: Time) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(now.unix_ms()).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

fn check_issued(issued: DateTime<Utc>, now: Time) -> Result<(), String> {
    let distance_ms = issued.timestamp_millis().saturating_sub(now.unix_ms());
    if (-MAX_SKEW_MS..=MAX_SKEW_MS).contains(&distance_ms) {
        Ok(())
    } else {
        Err("it was issued more than five minutes before or after now".to_owned())
    }
}

#[cfg(test)]
mod tests;
