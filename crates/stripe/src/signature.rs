//! Webhook signatures: the `Stripe-Signature` header.
//!
//! The header contains a timestamp and signatures, `t=1764000000,v1=5257a869…`. A signature is the
//! HMAC-SHA256 of the timestamp, a dot, and the body's bytes, with the endpoint's secret as the key. During a
//! secret rotation, the header contains signatures with both secrets.

use std::fmt;

use ring::hmac;
use subtle::ConstantTimeEq;

use kernel::clock::Time;
use kernel::secrets::Secret;

/// Maximum difference between a signature's timestamp and now, in seconds, in either direction.
pub const TOLERANCE_SECONDS: i64 = 300;
/// Maximum length of the header, in bytes.
pub const MAX_HEADER_BYTES: usize = 2_048;
/// Maximum number of signatures in a header. Stripe sends two during a secret rotation.
pub const MAX_SIGNATURES: usize = 4;
/// Length of a signature in characters: 32 bytes in hexadecimal.
const SIGNATURE_CHARS: usize = 64;

/// The reason why a request's signature was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureError {
    /// The header is malformed, or has no signature of version 1, or too many.
    Malformed,
    /// No signature matches the secret.
    Wrong,
    /// The timestamp is more than five minutes old: possibly a replay.
    TooOld,
    /// The timestamp is more than five minutes in the future.
    InFuture,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the header can't be read",
            Self::Wrong => "no signature matches the webhook's secret",
            Self::TooOld => "the signature is older than five minutes",
            Self::InFuture => "the signature is from the future",
        })
    }
}

impl std::error::Error for SignatureError {}

/// Checks that the received bytes of a body were signed with this secret within the last five minutes.
///
/// # Errors
/// The signature was rejected. Timestamps are compared only if the signature is valid.
pub fn verify(header: &str, body: &[u8], secret: &Secret, now: Time) -> Result<(), SignatureError> {
    let signed = Signed::parse(header).ok_or(SignatureError::Malformed)?;
    // Anyone could sign with an empty secret.
    if secret.expose().is_empty() {
        return Err(SignatureError::Wrong);
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut text = Vec::with_capacity(signed.at.len() + 1 + body.len());
    text.extend_from_slice(signed.at.as_bytes());
    text.push(b'.');
    text.extend_from_slice(body);
    // Hash the body only once, regardless of the number of signatures.
    let good = hmac::sign(&key, &text);
    // Compare each in constant time, and always all of them.
    let is_good = |is_good: bool, signature: &[u8; 32]| is_good | bool::from(good.as_ref().ct_eq(signature));
    if !signed.signatures.iter().fold(false, is_good) {
        return Err(SignatureError::Wrong);
    }
    let age = now.unix_seconds().saturating_sub(signed.unix_seconds);
    match age {
        _ if age > TOLERANCE_SECONDS => Err(SignatureError::TooOld),
        _ if age < -TOLERANCE_SECONDS => Err(SignatureError::InFuture),
        _ => Ok(()),
    }
}

/// The parsed header.
struct Signed<'h> {
    /// The timestamp as written, because its text was signed.
    at: &'h str,
    unix_seconds: i64,
    /// The signatures of version 1.
    signatures: Vec<[u8; 32]>,
}

impl<'h> Signed<'h> {
    fn parse(header: &'h str) -> Option<Self> {
        if header.len() > MAX_HEADER_BYTES {
            return None;
        }
        let (mut at, mut signatures) = (None, Vec::new());
        for part in header.split(',') {
            let (name, value) = part.trim().split_once('=')?;
            match name {
                // With two timestamps it's ambiguous which one was signed.
                "t" if at.is_some() => return None,
                "t" => at = Some(value),
                // A signature that isn't hexadecimal can't match.
                "v1" => signatures.extend(decode(value)),
                _ => {}
            }
        }
        let at = at?;
        let is_time = (1..=12).contains(&at.len()) && at.bytes().all(|byte| byte.is_ascii_digit());
        let unix_seconds = at.parse().ok().filter(|_| is_time)?;
        (1..=MAX_SIGNATURES).contains(&signatures.len()).then_some(Self { at, unix_seconds, signatures })
    }
}

/// Decodes 32 bytes in hexadecimal.
fn decode(text: &str) -> Option<[u8; 32]> {
    if text.len() != SIGNATURE_CHARS {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |index: usize| {
            char::from(*pair.get(index)?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
        };
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
