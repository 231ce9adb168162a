//! Access by the tokens of a login.

use crate::Api;
use accounts::jwt::TokenKind;
use kernel::error::Error;
use kernel::ids::{SessionId, UserId};

use super::{Access, AccessDoc, Call, Credential, Public, Trail, live_session, trail};

/// The access with a token of a login; API keys are refused.
#[derive(Clone, Copy, Debug)]
pub enum Session {
    /// With the refresh token.
    RefreshToken,
    /// With the access token.
    AccessToken,
    /// With the access token, for operations that also check the password: limited by client address
    /// (`limits.logins_per_minute`).
    Password,
}

/// A user with a live session.
#[derive(Clone, Debug)]
pub struct SessionScope {
    user_id: UserId,
    session_id: SessionId,
    trail: Trail,
}

impl SessionScope {
    pub fn user_id(&self) -> UserId {
        self.user_id
    }
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }
    /// Returns the session with its user.
    pub fn session(&self) -> accounts::Session {
        accounts::Session { id: self.session_id, user_id: self.user_id }
    }
    /// Returns the trail of the audit.
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
        // Boxed, as for other callers: the future of a database read is large, and rarely needed here.
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
