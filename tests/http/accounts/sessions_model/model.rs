//! The model of sessions and tokens.

use tollkeeper::accounts::jwt::TokenKind;
use tollkeeper::clock::{DAY_MS, HOUR_MS, Time};

/// The expected state.
#[derive(Default)]
pub struct Model {
    pub sessions: Vec<SessionModel>,
    pub tokens: Vec<TokenModel>,
}

pub struct SessionModel {
    pub person: usize,
    pub ends_at: Time,
    pub ended: bool,
}

pub struct TokenModel {
    pub kind: TokenKind,
    pub text: String,
    pub session: usize,
    /// The token's expiry, in Unix seconds.
    pub ends_at_s: i64,
}

impl Model {
    pub fn accepts(&self, token: &TokenModel, now: Time) -> bool {
        let session = &self.sessions[token.session];
        !session.ended && now < session.ends_at && now.unix_seconds() < token.ends_at_s
    }

    pub fn begin(&mut self, person: usize, access: String, refresh: String, now: Time) {
        let session = self.sessions.len();
        self.sessions.push(SessionModel { person, ends_at: now.plus_ms(30 * DAY_MS), ended: false });
        self.add(TokenKind::Access, access, session, now.plus_ms(HOUR_MS));
        self.add(TokenKind::Refresh, refresh, session, now.plus_ms(30 * DAY_MS));
    }

    pub fn add(&mut self, kind: TokenKind, text: String, session: usize, ends_at: Time) {
        self.tokens.push(TokenModel { kind, text, session, ends_at_s: ends_at.unix_seconds() });
    }

    pub fn end_all(&mut self, person: usize, but: Option<usize>) {
        for (index, session) in self.sessions.iter_mut().enumerate() {
            session.ended |= session.person == person && Some(index) != but;
        }
    }
}
