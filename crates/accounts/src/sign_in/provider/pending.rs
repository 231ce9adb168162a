//! The sealed values that a browser keeps during a sign-on, valid for ten minutes.

use serde::{Deserialize, Serialize};

use crate::{Accounts, Session, sealed_values};
use kernel::clock::{MINUTE_MS, Time};
use kernel::error::Error;
use kernel::ids::{SessionId, UserId};
use sign_on::{Identity, Provider, Secrets};

use crate::store::users::User;

/// The maximum duration of a sign-on, in milliseconds.
pub const PENDING_SIGN_ON_MS: i64 = 10 * MINUTE_MS;
/// The time within which the user must sign in with another method and confirm the connection, in
/// milliseconds.
pub const PENDING_CONNECTION_MS: i64 = 10 * MINUTE_MS;
/// The maximum length of the path to open after a sign-on, in bytes. The path is in a cookie, which is
/// limited to 4 KiB.
const MAX_NEXT_BYTES: usize = 1_500;

/// The purpose of a sign-on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A user signs in.
    SignIn,
    /// A signed-in user connects their account.
    Connect(Session),
    /// A signed-in user confirms their identity.
    Prove(Session),
}

/// A sign-on that was started, but not finished.
#[derive(Debug)]
pub(crate) struct PendingSignOn {
    pub(crate) provider_id: String,
    pub(crate) secrets: Secrets,
    pub(crate) purpose: Purpose,
    pub(crate) began_at: Time,
    pub(crate) next: String,
}

#[derive(Serialize, Deserialize)]
struct SignOnContents {
    provider: String,
    secrets: Secrets,
    /// The session and the user who started it, and `true` if the user confirms their identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<(String, String, bool)>,
    began_at_ms: i64,
    next: String,
}

const SIGN_ON: &str = "sign-on";

impl PendingSignOn {
    pub(crate) fn seal(&self, accounts: &Accounts) -> Result<String, Error> {
        let by =
            |session: Session, proves| Some((session.id.to_string(), session.user_id.to_string(), proves));
        let contents = SignOnContents {
            provider: self.provider_id.clone(),
            secrets: self.secrets.clone(),
            by: match self.purpose {
                Purpose::SignIn => None,
                Purpose::Connect(session) => by(session, false),
                Purpose::Prove(session) => by(session, true),
            },
            began_at_ms: self.began_at.unix_ms(),
            next: if self.next.len() <= MAX_NEXT_BYTES { self.next.clone() } else { String::new() },
        };
        sealed_values::seal(accounts, SIGN_ON, &contents, PENDING_SIGN_ON_MS)
    }

    pub(crate) fn open(accounts: &Accounts, value: &str) -> Option<Self> {
        let contents: SignOnContents = sealed_values::open(accounts, SIGN_ON, value, PENDING_SIGN_ON_MS)?;
        let purpose = match contents.by {
            None => Purpose::SignIn,
            Some((id, user_id, proves)) => {
                let session = Session { id: SessionId::parse(&id)?, user_id: UserId::parse(&user_id)? };
                if proves { Purpose::Prove(session) } else { Purpose::Connect(session) }
            }
        };
        Some(Self {
            provider_id: contents.provider,
            secrets: contents.secrets,
            purpose,
            began_at: Time::from_unix_ms(contents.began_at_ms),
            next: contents.next,
        })
    }
}

/// A connection that is created once the user has signed in to the account with another method and confirms
/// it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingConnection {
    pub(crate) user_id: UserId,
    pub(crate) provider_id: String,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// The account's address.
    pub email: String,
    /// `true` if the account's address was verified.
    pub is_verified: bool,
    /// The address from the provider, if any.
    pub email_there: Option<String>,
    /// The name from the provider, if any.
    pub name_there: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ConnectionContents {
    user: String,
    provider: String,
    issuer: String,
    subject: String,
    email: String,
    is_verified: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    email_there: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name_there: Option<String>,
}

const CONNECTION: &str = "connection";

impl PendingConnection {
    pub(crate) fn new(provider: &Provider, identity: &Identity, user: &User) -> Self {
        Self {
            user_id: user.id,
            provider_id: provider.settings.id.clone(),
            issuer: identity.issuer.clone(),
            subject: identity.subject.clone(),
            email: user.email.clone(),
            is_verified: user.email_verified_at.is_some(),
            email_there: identity.email.clone(),
            name_there: identity.full_name.clone().or_else(|| identity.username.clone()),
        }
    }

    /// Returns `true` if this user can confirm the connection.
    pub fn is_for(&self, user_id: UserId) -> bool {
        self.user_id == user_id
    }

    /// Returns the provider's id.
    pub fn provider_id(&self) -> &str {
        &self.provider_id
    }

    /// Returns the value for the browser, valid for [`PENDING_CONNECTION_MS`] from now.
    ///
    /// # Errors
    /// The installation has no master key.
    pub fn seal(&self, accounts: &Accounts) -> Result<String, Error> {
        let contents = ConnectionContents {
            user: self.user_id.to_string(),
            provider: self.provider_id.clone(),
            issuer: self.issuer.clone(),
            subject: self.subject.clone(),
            email: self.email.clone(),
            is_verified: self.is_verified,
            email_there: self.email_there.clone(),
            name_there: self.name_there.clone(),
        };
        sealed_values::seal(accounts, CONNECTION, &contents, PENDING_CONNECTION_MS)
    }

    /// Opens a value that a browser has kept. Returns `None` if it has expired, or wasn't sealed by this
    /// installation.
    pub fn open(accounts: &Accounts, value: &str) -> Option<Self> {
        let contents: ConnectionContents =
            sealed_values::open(accounts, CONNECTION, value, PENDING_CONNECTION_MS)?;
        Some(Self {
            user_id: UserId::parse(&contents.user)?,
            provider_id: contents.provider,
            issuer: contents.issuer,
            subject: contents.subject,
            email: contents.email,
            is_verified: contents.is_verified,
            email_there: contents.email_there,
            name_there: contents.name_there,
        })
    }
}
