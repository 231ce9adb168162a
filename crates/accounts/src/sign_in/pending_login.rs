//! The sealed value that a browser keeps between the first step of a sign-in and the second factor. It
//! contains the user and a proof of the first factor, which is a password or a sign-on with a provider. It is
//! valid for ten minutes, and isn't enough to open a session.

use serde::{Deserialize, Serialize};

use crate::{Accounts, sealed_values, store};
use db::Tx;
use kernel::clock::{MINUTE_MS, Time};
use kernel::error::{Code, Error};
use kernel::ids::{ConnectionId, UserId};
use kernel::secrets::sha256;

/// The maximum time between the first and the second step, in milliseconds.
pub const PENDING_LOGIN_MS: i64 = 10 * MINUTE_MS;

/// The associated data of the sealed value.
const ASSOCIATED_DATA: &str = "pending login";

/// A user who has passed the first step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingLogin {
    pub(super) user_id: UserId,
    pub(super) factor: SealedFactor,
    /// `true` if the user chose to be remembered.
    pub remember_me: bool,
    /// Makes each sealed value unique. `None` before sealing, and for values sealed by an earlier version.
    nonce: Option<[u8; 16]>,
}

/// The factor that was checked in the first step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SealedFactor {
    /// The SHA-256 of the stored hash that the password was checked against. A change of the password makes
    /// the value invalid.
    Password([u8; 32]),
    /// A sign-on with a provider.
    SignOn(SignOn),
}

/// A sign-on with a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SignOn {
    pub(super) connection_id: ConnectionId,
    /// The time at which the user authenticated at the provider.
    pub(super) authenticated_at: Time,
    /// The lifetime of the session, in milliseconds.
    pub(super) session_ms: i64,
    /// `true` if the provider reports a second factor that is also accepted here.
    pub(super) has_passed_second_factor: bool,
}

/// The plaintext of the sealed value.
#[derive(Serialize, Deserialize)]
struct Contents {
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<[u8; 32]>,
    /// The connection's id, the time of the authentication, and the session's lifetime in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_on: Option<(String, i64, i64)>,
    remember_me: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<[u8; 16]>,
}

impl PendingLogin {
    pub(super) fn with_password(user_id: UserId, password_hash: &str, remember_me: bool) -> Self {
        let factor = SealedFactor::Password(sha256(password_hash.as_bytes()));
        Self { user_id, factor, remember_me, nonce: None }
    }

    pub(super) fn with_sign_on(user_id: UserId, sign_on: SignOn) -> Self {
        Self { user_id, factor: SealedFactor::SignOn(sign_on), remember_me: false, nonce: None }
    }

    /// Returns the user's id.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }

    /// Returns this user's sign-on, if the first step was a sign-on.
    pub(super) fn sign_on_of(&self, user_id: UserId) -> Option<SignOn> {
        match self.factor {
            SealedFactor::SignOn(sign_on) if self.user_id == user_id => Some(sign_on),
            _ => None,
        }
    }

    /// Returns the value for the browser, valid for [`PENDING_LOGIN_MS`] from now.
    ///
    /// # Errors
    /// The installation has no master key.
    pub fn seal(&self, accounts: &Accounts) -> Result<String, Error> {
        let (password, sign_on) = match &self.factor {
            SealedFactor::Password(hash) => (Some(*hash), None),
            SealedFactor::SignOn(sign_on) => {
                let id = sign_on.connection_id.to_string();
                (None, Some((id, sign_on.authenticated_at.unix_ms(), sign_on.session_ms)))
            }
        };
        let contents = Contents {
            user: self.user_id.to_string(),
            password,
            sign_on,
            remember_me: self.remember_me,
            nonce: Some(accounts.random.bytes()),
        };
        sealed_values::seal(accounts, ASSOCIATED_DATA, &contents, PENDING_LOGIN_MS)
    }

    /// Opens a value that a browser has kept. Returns `None` if it has expired, or wasn't sealed by this
    /// installation.
    pub fn open(accounts: &Accounts, value: &str) -> Option<Self> {
        let contents: Contents = sealed_values::open(accounts, ASSOCIATED_DATA, value, PENDING_LOGIN_MS)?;
        let Contents { user, password, sign_on, remember_me, nonce } = contents;
        let factor = match (password, sign_on) {
            (Some(hash), None) => SealedFactor::Password(hash),
            (None, Some((id, authenticated_at_ms, session_ms))) => SealedFactor::SignOn(SignOn {
                connection_id: ConnectionId::parse(&id)?,
                authenticated_at: Time::from_unix_ms(authenticated_at_ms),
                session_ms,
                // Otherwise no second step would be required.
                has_passed_second_factor: false,
            }),
            _ => return None,
        };
        Some(Self { user_id: UserId::parse(&user)?, factor, remember_me, nonce })
    }

    /// Consumes the value, so that it opens only one session.
    ///
    /// # Errors
    /// `invalid_access_token` if it was used before.
    pub(super) async fn use_up(&self, tx: &mut Tx, now: Time) -> Result<(), Error> {
        let Some(nonce) = self.nonce else { return Ok(()) };
        let value_hash = sha256(&[ASSOCIATED_DATA.as_bytes(), &nonce].concat());
        let is_first = store::connections::use_once(tx, value_hash, now.plus_ms(PENDING_LOGIN_MS)).await?;
        if is_first { Ok(()) } else { Err(Code::InvalidAccessToken.into()) }
    }
}
