//! The sealed value that a browser holds between the password and the second factor, good for ten minutes: who
//! has given which password. It opens nothing by itself.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::Accounts;
use kernel::clock::MINUTE_MS;
use kernel::error::Error;
use kernel::ids::UserId;
use kernel::secrets::sha256;

/// How long the second step may take, in milliseconds.
pub const HALF_SIGNED_IN_MS: i64 = 10 * MINUTE_MS;

/// The associated data of the sealed value.
const ASSOCIATED_DATA: &str = "half signed in";

/// A person whose password was right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HalfSignedIn {
    pub(crate) user_id: UserId,
    /// The SHA-256 of the stored hash that the password was checked against: another password voids it.
    password: [u8; 32],
    /// `true` if the person asked to be remembered.
    pub remember_me: bool,
}

/// The text that is sealed.
#[derive(Serialize, Deserialize)]
struct Contents {
    user: String,
    password: [u8; 32],
    remember_me: bool,
    expires_at_ms: i64,
}

impl HalfSignedIn {
    pub(crate) fn new(user_id: UserId, password_hash: &str, remember_me: bool) -> Self {
        Self { user_id, password: sha256(password_hash.as_bytes()), remember_me }
    }

    /// The person.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }

    /// Returns `true` if this is the stored hash that the password was checked against.
    pub(crate) fn was_checked_against(&self, password_hash: &str) -> bool {
        self.password == sha256(password_hash.as_bytes())
    }

    /// Returns the value for the browser, which is good for [`HALF_SIGNED_IN_MS`] from now.
    ///
    /// # Errors
    /// There is no master key.
    pub fn seal(&self, accounts: &Accounts) -> Result<String, Error> {
        let contents = Contents {
            user: self.user_id.to_string(),
            password: self.password,
            remember_me: self.remember_me,
            expires_at_ms: accounts.clock.now().plus_ms(HALF_SIGNED_IN_MS).unix_ms(),
        };
        let text = serde_json::to_vec(&contents).map_err(Error::internal)?;
        let sealed = accounts.sealer.seal(&text, ASSOCIATED_DATA, &accounts.random)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Reads the value of a browser; `None` if it isn't one of ours, or is over.
    pub fn open(accounts: &Accounts, value: &str) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
        let text = accounts.sealer.open(&sealed, ASSOCIATED_DATA).ok()?;
        let contents: Contents = serde_json::from_slice(&text).ok()?;
        let left_ms = contents.expires_at_ms.saturating_sub(accounts.clock.now().unix_ms());
        let Contents { user, password, remember_me, .. } = contents;
        let user_id = UserId::parse(&user)?;
        // A value from further ahead was made by a clock that has been set back since.
        (1..=HALF_SIGNED_IN_MS + MINUTE_MS).contains(&left_ms).then_some(Self {
            user_id,
            password,
            remember_me,
        })
    }
}
