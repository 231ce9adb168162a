//! Sealed values that a browser stores for the server. They are valid for a few minutes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Accounts;
use kernel::clock::MINUTE_MS;
use kernel::error::Error;

/// The plaintext of a sealed value, as JSON.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    expires_at_ms: i64,
    contents: T,
}

/// Seals a value that is valid for `lifetime_ms` from now. `associated` is its purpose, which [`open`]
/// checks.
///
/// # Errors
/// The installation has no master key.
pub(crate) fn seal<T: Serialize>(
    accounts: &Accounts,
    associated: &str,
    contents: &T,
    lifetime_ms: i64,
) -> Result<String, Error> {
    let expires_at_ms = accounts.clock.now().plus_ms(lifetime_ms).unix_ms();
    let text = serde_json::to_vec(&Envelope { expires_at_ms, contents }).map_err(Error::internal)?;
    Ok(URL_SAFE_NO_PAD.encode(accounts.sealer.seal(&text, associated, &accounts.random)?))
}

/// Opens a value. Returns `None` if it has expired, or wasn't sealed by this installation for this purpose.
pub(crate) fn open<T: DeserializeOwned>(
    accounts: &Accounts,
    associated: &str,
    value: &str,
    lifetime_ms: i64,
) -> Option<T> {
    let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
    let text = accounts.sealer.open(&sealed, associated).ok()?;
    let Envelope { expires_at_ms, contents } = serde_json::from_slice(&text).ok()?;
    let left_ms = expires_at_ms.saturating_sub(accounts.clock.now().unix_ms());
    // A value that expires later than this was sealed before the clock was set back.
    (1..=lifetime_ms.saturating_add(MINUTE_MS)).contains(&left_ms).then_some(contents)
}
