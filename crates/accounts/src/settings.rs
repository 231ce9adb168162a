//! Settings of accounts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use kernel::clock::MINUTE_MS;
use kernel::document::values::{path, whole};
use kernel::limits::Limits;

use crate::store::users::User;

/// The settings of accounts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `iss` and `aud` of tokens, without a slash at the end.
    pub public_url: String,
    /// `true` if a login requires a verified address.
    pub require_verified_email: bool,
    /// The time after which an unused browser session ends, in hours, unless the user chose to be remembered;
    /// 0 for the same lifetime as other sessions.
    pub browser_idle_hours: u32,
    /// The rule for who may register.
    pub registration: RegistrationMode,
    /// The table `sign_in`.
    pub sign_in: SignIn,
    /// The table `limits`.
    pub limits: Limits,
}

/// Table `sign_in`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SignIn {
    /// `true` if users can sign in with passwords. Operators always can.
    pub passwords: bool,
    /// `true` if users can add one-time codes as a second factor. If it is `false`, existing second factors
    /// are still required.
    pub totp: bool,
    /// `true` if users can add passkeys and sign in with them.
    pub passkeys: bool,
    /// The users who must have a second factor.
    pub require_second_factor: SecondFactorFor,
    /// The time for which a session may change second factors after its user has confirmed their identity, in
    /// minutes.
    #[serde(deserialize_with = "whole::<1, 60, _, _>")]
    pub fresh_minutes: u32,
    /// The file with the providers that users can sign in with.
    #[serde(deserialize_with = "path")]
    pub providers_file: Option<PathBuf>,
}

/// The users who must have a second factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondFactorFor {
    /// Operators, and members of organizations that require one.
    Operators,
    /// Everyone.
    Everyone,
}

/// The rule for who may register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationMode {
    /// Everyone.
    Open,
    /// People with an open invitation to their address.
    Invited,
    /// No one: operators create accounts.
    Closed,
}

impl SignIn {
    /// Returns `true` if everyone must have a second factor.
    pub fn asks_everyone(&self) -> bool {
        self.require_second_factor == SecondFactorFor::Everyone
    }

    /// Returns `true` if the user can sign in with a password.
    pub fn takes_password_of(&self, user: &User) -> bool {
        self.passwords || user.operator_since.is_some()
    }

    /// Returns the time for which a proof counts as recent, in milliseconds.
    pub fn fresh_ms(&self) -> i64 {
        i64::from(self.fresh_minutes) * MINUTE_MS
    }
}

impl Default for SignIn {
    fn default() -> Self {
        Self {
            passwords: true,
            totp: true,
            passkeys: true,
            require_second_factor: SecondFactorFor::Operators,
            fresh_minutes: 15,
            providers_file: None,
        }
    }
}
