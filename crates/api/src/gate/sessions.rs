//! Access with the tokens of a session.

use crate::Api;
use accounts::jwt::TokenKind;
use accounts::rules::user_agents::UserAgent;
use kernel::error::{Code, Error};
use kernel::ids::{ConnectionId, PasskeyId, SessionId, UserId};

use super::bearer::count_management;
use super::{Access, AccessDoc, Call, Credential, Public, Trail, live_session, trail, user_agent};

/// The access with a token of a session; API keys are refused.
#[derive(Clone, Copy, Debug)]
pub enum Session {
    /// With the refresh token.
    RefreshToken,
    /// With the access token.
    AccessToken,
    /// With the access token, for operations that count as the user's management calls.
    Management,
    /// With the access token, for operations that also check the password: limited by client address
    /// (`limits.logins_per_minute`).
    Password,
    /// Like [`Session::Management`], for a user who has confirmed their identity within
    /// `sign_in.fresh_minutes`.
    Fresh,
}

/// A user with a live session.
#[derive(Clone, Debug)]
pub struct SessionScope {
    user_id: UserId,
    session_id: SessionId,
    trail: Trail,
    user_agent: Option<UserAgent>,
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
    /// Returns the audit trail.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }
    /// Returns the client's header `User-Agent`.
    pub fn user_agent(&self) -> Option<&UserAgent> {
        self.user_agent.as_ref()
    }
}

impl Access<Api> for Session {
    type Scope = SessionScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<SessionScope, Error> {
        let kind = match self {
            Self::RefreshToken => TokenKind::Refresh,
            Self::AccessToken | Self::Management | Self::Password | Self::Fresh => TokenKind::Access,
        };
        let session = call.credential.browser_session().filter(|_| kind == TokenKind::Access);
        let (user_id, session_id) = match session {
            Some(session) => (session.user_id, session.id),
            None => {
                let stamp = api.feed.epochs.stamp();
                let (user_id, session_id) = live_session(api, call.bearer()?, kind).await?;
                call.credential = Credential::session(session_id, user_id, kind, stamp);
                call.caller = user_id.to_string();
                (user_id, session_id)
            }
        };
        match self {
            Self::RefreshToken | Self::AccessToken => {}
            Self::Management => count_management(api, call, user_id)?,
            Self::Password => Public::Login.limit(api, call)?,
            Self::Fresh => {
                count_management(api, call, user_id)?;
                let session = accounts::Session { id: session_id, user_id };
                if !api.accounts.is_fresh(session).await? {
                    return Err(Code::ReauthenticationRequired.into());
                }
            }
        }
        Ok(SessionScope { user_id, session_id, trail: trail(call), user_agent: user_agent(call) })
    }
    fn describe(&self) -> AccessDoc {
        let (scheme, text, codes): (_, _, &[Code]) = match self {
            Self::RefreshToken => ("refreshToken", "refresh token", &[Code::InvalidRefreshToken]),
            Self::AccessToken => ("accessToken", "access token", &[Code::InvalidAccessToken]),
            Self::Management | Self::Password => {
                ("accessToken", "access token", &[Code::InvalidAccessToken, Code::RateLimited])
            }
            Self::Fresh => (
                "accessToken",
                "access token, recently confirmed",
                &[Code::InvalidAccessToken, Code::RateLimited, Code::ReauthenticationRequired],
            ),
        };
        AccessDoc::new(Some(scheme), text).refuses(&[Code::MissingCredentials]).refuses(codes)
    }
}

/// The access to a session in the path, with an access token. The operation checks that the session is the
/// caller's.
#[derive(Clone, Copy, Debug)]
pub struct OwnSession;

/// A user with a live session, and the session in the path.
#[derive(Clone, Debug)]
pub struct OwnSessionScope {
    caller: SessionScope,
    named: SessionId,
}

impl OwnSessionScope {
    /// Returns the caller.
    pub fn caller(&self) -> &SessionScope {
        &self.caller
    }
    /// Returns the session in the path. It may be another user's.
    pub fn named(&self) -> SessionId {
        self.named
    }
}

impl Access<Api> for OwnSession {
    type Scope = OwnSessionScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OwnSessionScope, Error> {
        let caller = Session::Management.admit(api, call).await?;
        let named = SessionId::parse(call.path("session_id")).ok_or(Code::SessionNotFound)?;
        Ok(OwnSessionScope { caller, named })
    }
    fn describe(&self) -> AccessDoc {
        AccessDoc { text: "access token of the session's user".to_owned(), ..Session::Management.describe() }
    }
}

/// The access to a passkey in the path, with an access token. The operation checks that the passkey is the
/// caller's.
#[derive(Clone, Copy, Debug)]
pub enum OwnPasskey {
    /// Renames the passkey; any session can do it.
    Renamed,
    /// Removes the passkey; the user must have confirmed their identity recently.
    Removed,
}

/// A user with a live session, and the passkey in the path.
#[derive(Clone, Debug)]
pub struct OwnPasskeyScope {
    caller: SessionScope,
    named: PasskeyId,
}

impl OwnPasskeyScope {
    /// Returns the caller.
    pub fn caller(&self) -> &SessionScope {
        &self.caller
    }
    /// Returns the passkey in the path. It may be another user's.
    pub fn named(&self) -> PasskeyId {
        self.named
    }
}

impl OwnPasskey {
    const fn session(self) -> Session {
        match self {
            Self::Renamed => Session::Management,
            Self::Removed => Session::Fresh,
        }
    }
}

impl Access<Api> for OwnPasskey {
    type Scope = OwnPasskeyScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OwnPasskeyScope, Error> {
        let caller = self.session().admit(api, call).await?;
        let named = PasskeyId::parse(call.path("passkey_id")).ok_or(Code::PasskeyNotFound)?;
        Ok(OwnPasskeyScope { caller, named })
    }
    fn describe(&self) -> AccessDoc {
        self.session().describe()
    }
}

/// The access to a connection in the path, with the access token of a user who has recently confirmed their
/// identity. The operation checks that the connection is the caller's.
#[derive(Clone, Copy, Debug)]
pub struct OwnConnection;

/// A user with a live session, and the connection in the path.
#[derive(Clone, Debug)]
pub struct OwnConnectionScope {
    caller: SessionScope,
    named: ConnectionId,
}

impl OwnConnectionScope {
    /// Returns the caller.
    pub fn caller(&self) -> &SessionScope {
        &self.caller
    }
    /// Returns the connection in the path. It may be another user's.
    pub fn named(&self) -> ConnectionId {
        self.named
    }
}

impl Access<Api> for OwnConnection {
    type Scope = OwnConnectionScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<OwnConnectionScope, Error> {
        let caller = Session::Fresh.admit(api, call).await?;
        let named = ConnectionId::parse(call.path("connection_id")).ok_or(Code::ConnectionNotFound)?;
        Ok(OwnConnectionScope { caller, named })
    }
    fn describe(&self) -> AccessDoc {
        let text = "access token of the connection's user, recently confirmed".to_owned();
        AccessDoc { text, ..Session::Fresh.describe() }
    }
}
