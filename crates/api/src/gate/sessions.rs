//! Access by the tokens of a login.

use crate::Api;
use accounts;
use accounts::jwt::TokenKind;
use kernel::error::Error;
use kernel::ids::{SessionId, UserId};

use super::{Access, AccessDoc, Call, Credential, Public, Trail, live_session, trail};

/// The authentication endpoints after login: one kind of token, no API keys.
#[derive(Clone, Copy, Debug)]
pub enum Session {
    /// The refresh token.
    RefreshToken,
    /// The access token.
    AccessToken,
    /// The access token, for what checks the account's password too: an address that does so too often has to wait
    /// (`limits.logins_per_minute`).
    Password,
}

/// A person with a live session.
#[derive(Clone, Debug)]
pub struct SessionScope {
    user_id: UserId,
    session_id: SessionId,
    trail: Trail,
}

impl SessionScope {
    /// The person.
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    /// The session.
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }
    /// The session with its person.
    pub fn session(&self) -> accounts::Session {
        accounts::Session { id: self.session_id, user_id: self.user_id }
    }
    /// For the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
}

impl Access<Api> for Session {
    type Scope = SessionScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<SessionScope, Error> {
        let kind = match self {
            Self::RefreshToken => TokenKind::Refresh,
            Self::AccessToken | Self::Password => TokenKind::Access,
        };
        // Boxed, as where any caller is let in: what a database needs is nested deeply, and rarely needed here.
        let stamp = api.feed.epochs.stamp();
        let (user_id, session_id) = Box::pin(live_session(api, call.bearer()?, kind)).await?;
        call.credential = Credential::session(session_id, user_id, kind, stamp);
        call.caller = user_id.to_string();
        if matches!(self, Self::Password) {
            Public::Login.limit(api, call)?;
        }
        Ok(SessionScope { user_id, session_id, trail: trail(call) })
    }
    fn describe(&self) -> AccessDoc {
        match self {
            Self::RefreshToken => AccessDoc::new(Some("refreshToken"), "refresh token"),
            Self::AccessToken | Self::Password => AccessDoc::new(Some("accessToken"), "access token"),
        }
    }
}
