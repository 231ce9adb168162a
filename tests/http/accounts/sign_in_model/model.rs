//! The model: which evidence opens an account, and which requests its session may make.

use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Time};

use support::authenticator::{Authenticator, STEP_MS};
use support::security_key::SecurityKey;

/// The time during which a proof is fresh, in milliseconds.
const FRESH_MS: i64 = 15 * MINUTE_MS;

/// An account, and the requirements of its organization.
pub struct Account {
    pub password: Option<String>,
    pub app: Option<App>,
    /// Unused recovery codes. `spent` contains those that are no longer valid.
    pub codes: Vec<String>,
    pub spent: Vec<String>,
    /// Passkeys with their ids. `gone` contains those that were removed.
    pub passkeys: Vec<(String, SecurityKey)>,
    pub gone: Vec<SecurityKey>,
    /// `true` if existing passkeys are required after the password.
    pub are_passkeys_asked: bool,
    /// The number of the connection to the provider.
    pub connection: Option<usize>,
    pub is_disabled: bool,
    pub is_owner: bool,
    pub requires_factor: bool,
    pub requires_sign_on: bool,
    pub sessions: Vec<Session>,
}

pub struct App {
    pub authenticator: Authenticator,
    /// The time step of the last code that was used.
    pub last_step: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Api,
    Browser,
}

pub struct Session {
    pub kind: Kind,
    /// The access token, or the value of the cookie.
    pub token: String,
    /// The connection that opened the session, if any.
    pub connection: Option<usize>,
    pub has_ended: bool,
    pub ends_at: Time,
    pub token_ends_at_s: i64,
    /// The time when its user last proved their identity.
    pub proved_at: Time,
}

/// Evidence that a user presented to sign in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evidence {
    pub first: First,
    /// `true` if a valid code was given.
    pub has_code: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    Password,
    Passkey,
    Provider,
}

/// The outcome of a session's request for the organization.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entrance {
    SignedOut,
    SignOnRequired,
    FactorRequired,
    Open,
}

impl Account {
    /// Returns `true` if a password alone isn't enough to sign in.
    pub fn is_asked(&self) -> bool {
        self.app.is_some() || (self.are_passkeys_asked && !self.passkeys.is_empty())
    }

    /// Returns `true` if this evidence is no weaker than the account's rule.
    pub fn is_enough(&self, evidence: Evidence) -> bool {
        !self.is_disabled && (!self.is_asked() || evidence.has_code || evidence.first == First::Passkey)
    }

    pub fn is_live(&self, session: usize, now: Time) -> bool {
        let session = &self.sessions[session];
        !session.has_ended && now < session.ends_at && now.unix_seconds() < session.token_ends_at_s
    }

    pub fn is_fresh(&self, session: usize, now: Time) -> bool {
        now.unix_ms() - self.sessions[session].proved_at.unix_ms() < FRESH_MS
    }

    pub fn entrance(&self, session: usize, now: Time) -> Entrance {
        if !self.is_live(session, now) {
            return Entrance::SignedOut;
        }
        let opened_by = self.sessions[session].connection;
        let is_signed_on = opened_by.is_some() && opened_by == self.connection;
        if self.requires_sign_on && !self.is_owner && !is_signed_on {
            Entrance::SignOnRequired
        } else if self.requires_factor && !self.is_asked() {
            Entrance::FactorRequired
        } else {
            Entrance::Open
        }
    }

    /// Uses up a code; returns `false` if it isn't valid. Called only if a code is required.
    pub fn use_code(&mut self, code: &str, now: Time) -> bool {
        let step = now.unix_ms() / STEP_MS;
        if let Some(app) = &mut self.app {
            let good = |at: &i64| *at > app.last_step && app.authenticator.code_of(*at) == code;
            if let Some(used) = (step - 1..=step + 1).find(good) {
                app.last_step = used;
                return true;
            }
        }
        let found = self.codes.iter().position(|other| other == code);
        found.map(|index| self.codes.remove(index)).map(|code| self.spent.push(code)).is_some()
    }

    /// Opens a session; returns its number.
    pub fn open(&mut self, kind: Kind, token: String, connection: Option<usize>, now: Time) -> usize {
        let life_ms = if connection.is_some() { 2 * HOUR_MS } else { 30 * DAY_MS };
        let token_ms = if kind == Kind::Api { HOUR_MS } else { 30 * DAY_MS };
        self.sessions.push(Session {
            kind,
            token,
            connection,
            has_ended: false,
            ends_at: now.plus_ms(life_ms),
            token_ends_at_s: now.plus_ms(token_ms).unix_seconds(),
            proved_at: now,
        });
        self.sessions.len() - 1
    }

    /// Replaces a session after a proof.
    pub fn replace(&mut self, session: usize, token: String, now: Time) {
        let Session { kind, connection, ends_at, .. } = self.sessions[session];
        self.sessions[session].has_ended = true;
        let new = self.open(kind, token, connection, now);
        if connection.is_some() {
            self.sessions[new].ends_at = ends_at;
        }
    }

    pub fn end_all(&mut self, except: Option<usize>) {
        for (number, session) in self.sessions.iter_mut().enumerate() {
            session.has_ended |= Some(number) != except;
        }
    }

    /// Stores the recovery codes of a first factor, which ends every other session.
    pub fn begin_asking(&mut self, session: usize, codes: Vec<String>) {
        self.forget_codes();
        self.codes = codes;
        self.end_all(Some(session));
    }

    /// Removes the settings that depend on the last factor.
    pub fn after_removal(&mut self) {
        if self.passkeys.is_empty() {
            self.are_passkeys_asked = false;
        }
        if !self.is_asked() {
            self.forget_codes();
        }
    }

    pub fn forget_codes(&mut self) {
        self.spent.append(&mut self.codes);
    }
}
