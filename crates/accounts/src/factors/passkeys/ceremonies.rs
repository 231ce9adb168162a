//! The sealed state of a ceremony, which the client keeps from the first step to the second. It can be used
//! once within five minutes, for one purpose and one session. Any replica can open it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Accounts, Session, store};
use db::Tx;
use kernel::clock::{MINUTE_MS, Time};
use kernel::error::{Code, Error};
use kernel::secrets::sha256;

/// The maximum duration of a ceremony, in milliseconds.
pub const CEREMONY_MS: i64 = 5 * MINUTE_MS;
/// The maximum difference between the clocks of replicas, in milliseconds.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;

/// The purpose of a ceremony.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A logged-in user adds a passkey.
    Add(Session),
    /// A user logs in.
    LogIn,
    /// A logged-in user confirms their identity.
    Prove(Session),
}

impl Purpose {
    /// Returns the associated data of the sealed value, so that it can't be opened for another purpose or
    /// session.
    fn associated_data(self) -> String {
        match self {
            Self::Add(Session { id, user_id }) => format!("ceremony/add/{user_id}/{id}"),
            Self::LogIn => "ceremony/log-in".to_owned(),
            Self::Prove(Session { id, user_id }) => format!("ceremony/prove/{user_id}/{id}"),
        }
    }
}

/// The plaintext of the sealed value, as JSON.
#[derive(Serialize, Deserialize)]
struct Contents<S> {
    state: S,
    expires_at_ms: i64,
}

/// Seals the state of a ceremony that is valid for [`CEREMONY_MS`] from now.
pub(crate) fn seal<S: Serialize>(accounts: &Accounts, purpose: Purpose, state: S) -> Result<String, Error> {
    let expires_at_ms = accounts.clock.now().plus_ms(CEREMONY_MS).unix_ms();
    let text = serde_json::to_vec(&Contents { state, expires_at_ms }).map_err(Error::internal)?;
    let sealed = accounts.sealer.seal(&text, &purpose.associated_data(), &accounts.random)?;
    Ok(URL_SAFE_NO_PAD.encode(sealed))
}

/// A ceremony that hasn't expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceremony {
    hash: [u8; 32],
    expires_at: Time,
}

/// Opens a ceremony. Only [`Ceremony::use_up`] consumes it. A refused response doesn't, so invalid responses
/// cause no writes.
///
/// # Errors
/// `challenge_expired` if the ceremony has expired, has another purpose or session, or wasn't sealed by this
/// installation.
pub(super) fn open<S: DeserializeOwned>(
    accounts: &Accounts,
    purpose: Purpose,
    value: &str,
) -> Result<(Ceremony, S), Error> {
    let opened = || {
        let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
        let text = accounts.sealer.open(&sealed, &purpose.associated_data()).ok()?;
        let contents: Contents<S> = serde_json::from_slice(&text).ok()?;
        let left_ms = contents.expires_at_ms.saturating_sub(accounts.clock.now().unix_ms());
        // A value that expires later than this was sealed before the clock was set back.
        let is_good = (1..=CEREMONY_MS + CLOCK_SKEW_MS).contains(&left_ms);
        let ceremony =
            Ceremony { hash: sha256(&sealed), expires_at: Time::from_unix_ms(contents.expires_at_ms) };
        is_good.then_some((ceremony, contents.state))
    };
    opened().ok_or_else(|| Code::ChallengeExpired.into())
}

impl Ceremony {
    /// Consumes the ceremony.
    ///
    /// # Errors
    /// `challenge_expired` if it was used before.
    pub(super) async fn use_up(self, tx: &mut Tx) -> Result<(), Error> {
        if store::passkeys::use_ceremony(tx, self.hash, self.expires_at).await? {
            Ok(())
        } else {
            Err(Code::ChallengeExpired.into())
        }
    }
}

/// Returns a time such that ceremonies that expire before it have expired on every replica.
pub(crate) fn expired_before(now: Time) -> Time {
    now.plus_ms(-CLOCK_SKEW_MS)
}
