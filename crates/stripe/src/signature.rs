//! Signatures of webhooks: the header `Stripe-Signature`.
//!
//! It has a time and signatures, `t=1764000000,v1=5257a869…`. A signature is the HMAC-SHA256 of the time, a dot and the
//! bytes of the body, by the endpoint's secret. While a secret is replaced there are signatures by both.

use std::fmt;

use ring::hmac;
use subtle::ConstantTimeEq;

use kernel::clock::Time;
use kernel::secrets::Secret;

/// The most seconds between the time of a signature and now, before or after.
pub const TOLERANCE_SECONDS: i64 = 300;
/// The most bytes of the header.
pub const MAX_HEADER_BYTES: usize = 2_048;
/// The most signatures of a header: Stripe sends two while a secret is replaced.
pub const MAX_SIGNATURES: usize = 4;
/// The characters of a signature: 32 bytes in hexadecimal.
const SIGNATURE_CHARS: usize = 64;

/// Why a request isn't taken for Stripe's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureError {
    /// The header can't be read, or has no signature of the version 1, or too many.
    Malformed,
    /// No signature is by the secret.
    Wrong,
    /// It is older than five minutes: possibly an old request, sent again.
    TooOld,
    /// It is of a time that is more than five minutes ahead.
    InFuture,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the header can't be read",
            Self::Wrong => "no signature is by the secret of the webhook",
            Self::TooOld => "the signature is older than five minutes",
            Self::InFuture => "the signature is of a time that is to come",
        })
    }
}

impl std::error::Error for SignatureError {}

/// Checks that a body, in the bytes that were received, was signed by this secret within the last five minutes.
///
/// # Errors
/// It wasn't. Times are compared only if the signature is good.
pub fn verify(header: &str, body: &[u8], secret: &Secret, now: Time) -> Result<(), SignatureError> {
    let signed = Signed::parse(header).ok_or(SignatureError::Malformed)?;
    // By an empty secret anyone could sign.
    if secret.expose().is_empty() {
        return Err(SignatureError::Wrong);
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut text = Vec::with_capacity(signed.at.len() + 1 + body.len());
    text.extend_from_slice(signed.at.as_bytes());
    text.push(b'.');
    text.extend_from_slice(body);
    // The body is hashed once, however many signatures there are.
    let good = hmac::sign(&key, &text);
    // In constant time each, and all of them.
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

/// What the header says.
struct Signed<'h> {
    /// The time as it is written, which is what was signed.
    at: &'h str,
    unix_seconds: i64,
    /// The signatures of the version 1.
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
                // A second time would leave open which one was signed.
                "t" if at.is_some() => return None,
                "t" => at = Some(value),
                // One that isn't hexadecimal can't be good.
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

/// Reads 32 bytes in hexadecimal.
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
