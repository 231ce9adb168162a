//! Tokens of a session: access and refresh tokens of programs, browser tokens of the console.

use std::sync::Arc;

use crate::jwt::{Claims, Keyset, TokenKind};
use crate::rules::user_agents::UserAgent;
use crate::store::sessions::{LiveSession, SessionKind};
use crate::{Accounts, Session, sessions, store};
use kernel::clock::{HOUR_MS, MINUTE_MS, SECOND_MS, Time};
use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{ConnectionId, TokenId};
use trail::Trail;

/// The lifetime of a session, in milliseconds. Its refresh or browser token has the same lifetime.
pub const SESSION_MS: i64 = TokenKind::Refresh.lifetime_ms();
/// The maximum difference between the clocks of two replicas, in milliseconds. A stored time can be this far
/// in the future.
const CLOCK_SKEW_MS: i64 = MINUTE_MS;
/// The time after which an operator's unused browser session ends, in milliseconds (NIST SP 800-63B-4, AAL2).
const OPERATOR_IDLE_MS: i64 = HOUR_MS;
/// The lifetime of an access token, in seconds.
pub const ACCESS_TOKEN_S: i64 = TokenKind::Access.lifetime_ms() / SECOND_MS;

impl Accounts {
    /// Returns the live session of a token of this kind. A browser's session ends if it isn't used for
    /// `console.idle_hours`, or an operator's for an hour, unless the user chose to be remembered.
    ///
    /// # Errors
    /// 401 if the token is invalid or of a different kind, or its session has ended; 503 if the session isn't
    /// cached and the database can't be reached.
    pub fn live_session<'a>(
        &'a self,
        token: &'a str,
        kind: TokenKind,
    ) -> BoxFuture<'a, Result<Session, Error>> {
        Box::pin(self.check_session(token, kind))
    }

    async fn check_session(&self, token: &str, kind: TokenKind) -> Result<Session, Error> {
        let refused = match kind {
            TokenKind::Access | TokenKind::Browser => Code::InvalidAccessToken,
            TokenKind::Refresh => Code::InvalidRefreshToken,
        };
        let now = self.clock.now();
        let claims = self.signing_keys.verify(self, token, kind, now).await?.ok_or(refused)?;
        let session = match kind {
            TokenKind::Access | TokenKind::Browser => self.sessions.live(self, claims.sid, now).await?,
            // Refreshes are rare, so this check reads the database instead of the cache, which may be
            // slightly outdated.
            TokenKind::Refresh => store::sessions::live(&mut self.db.read().await?, claims.sid, now).await?,
        };
        let session = match session {
            Some(session) if session.user_id == claims.sub && session.kind == kind.session_kind() => session,
            _ => return Err(refused.into()),
        };
        if self.is_idle(&session, now) {
            // The session may have been used on another replica since then.
            let stored = store::sessions::live(&mut self.db.read().await?, claims.sid, now).await?;
            match stored.filter(|stored| !self.is_idle(stored, now)) {
                Some(stored) => self.sessions.note_seen(claims.sid, stored.last_seen_at),
                None => return Err(refused.into()),
            }
        }
        Ok(Session { id: claims.sid, user_id: session.user_id })
    }

    /// Returns `true` if the user of a live session has confirmed their identity within the last
    /// `sign_in.fresh_minutes`.
    ///
    /// # Errors
    /// 503 if the session isn't cached and the database can't be reached.
    pub async fn is_fresh(&self, session: Session) -> Result<bool, Error> {
        let now = self.clock.now();
        let Some(live) = self.sessions.live(self, session.id, now).await? else { return Ok(false) };
        let age_ms = now.unix_ms() - live.authenticated_at.unix_ms();
        // A time further in the future comes from a clock that has since been set back.
        Ok((-CLOCK_SKEW_MS..self.settings.sign_in.fresh_ms()).contains(&age_ms))
    }

    /// Returns the connection to a provider that opened a live session; `None` if a password or a passkey
    /// opened it.
    ///
    /// # Errors
    /// 503 if the session isn't cached and the database can't be reached.
    pub async fn connection_of(&self, session: Session) -> Result<Option<ConnectionId>, Error> {
        let live = self.sessions.live(self, session.id, self.clock.now()).await?;
        Ok(live.and_then(|live| live.connection_id))
    }

    /// Returns `true` if a browser's session has ended because it wasn't used.
    fn is_idle(&self, session: &LiveSession, now: Time) -> bool {
        session.kind == SessionKind::Browser
            && !session.remember_me
            && session.last_seen_at <= self.idle_since(session.is_operator, now)
    }

    /// Returns the time of last use at or before which a browser's session has ended by now; the Unix epoch
    /// if unused sessions don't end. For operators, the limit is [`OPERATOR_IDLE_MS`].
    pub(crate) fn idle_since(&self, is_operator: bool, now: Time) -> Time {
        match i64::from(self.settings.browser_idle_hours) {
            _ if is_operator => now.plus_ms(-OPERATOR_IDLE_MS),
            0 => Time::from_unix_ms(0),
            hours => now.plus_ms(-hours * HOUR_MS),
        }
    }

    /// Returns the keys that sign and verify tokens, at most a few seconds old while the database can be
    /// reached.
    ///
    /// # Errors
    /// The keys were never read, or some were revoked, and the database can't be reached.
    pub async fn keyset(&self) -> Result<Arc<Keyset>, Error> {
        self.signing_keys.keyset(self).await
    }
}

/// Signs a new access token for a session, and updates the time at which the session was last seen.
///
/// # Errors
/// No signing key exists.
pub async fn refresh(
    accounts: &Accounts,
    trail: &Trail,
    session: Session,
    user_agent: Option<&UserAgent>,
) -> Result<String, Error> {
    let now = accounts.clock.now();
    let token = sign(accounts, TokenKind::Access, session, now).await?;
    sessions::note_seen(accounts, trail, session, user_agent, now).await;
    Ok(token)
}

impl TokenKind {
    /// Returns the kind of session that has tokens of this kind.
    const fn session_kind(self) -> SessionKind {
        match self {
            Self::Access | Self::Refresh => SessionKind::Api,
            Self::Browser => SessionKind::Browser,
        }
    }
}

/// Signs a token for a session, with a lifetime that begins now.
pub(super) async fn sign(
    accounts: &Accounts,
    kind: TokenKind,
    session: Session,
    now: Time,
) -> Result<String, Error> {
    let claims = Claims {
        iss: accounts.settings.public_url.clone(),
        aud: accounts.settings.public_url.clone(),
        sub: session.user_id,
        sid: session.id,
        jti: TokenId::new(now, &accounts.random).to_string(),
        iat: now.unix_seconds(),
        exp: now.plus_ms(kind.lifetime_ms()).unix_seconds(),
    };
    Ok(accounts.keyset().await?.sign(kind, &claims))
}
