//! Logins, counted by outcome.

use prometheus::IntCounterVec;

use kernel::error::Code;

use super::text::Registered;

/// The number of logins with each result.
#[derive(Debug)]
pub struct Logins(IntCounterVec);

/// The results, each with its error code; `None` is success. The last result is used for all other errors.
const RESULTS: [(&str, Option<Code>); 13] = [
    ("success", None),
    ("invalid_credentials", Some(Code::InvalidCredentials)),
    ("second_factor_required", Some(Code::SecondFactorRequired)),
    ("invalid_one_time_code", Some(Code::InvalidOneTimeCode)),
    ("invalid_credential", Some(Code::InvalidCredential)),
    ("challenge_expired", Some(Code::ChallengeExpired)),
    ("passkeys_disabled", Some(Code::PasskeysDisabled)),
    ("passwords_disabled", Some(Code::PasswordsDisabled)),
    ("too_many_attempts", Some(Code::TooManyAttempts)),
    ("email_not_verified", Some(Code::EmailNotVerified)),
    ("account_disabled", Some(Code::AccountDisabled)),
    ("password_queue_full", Some(Code::PasswordQueueFull)),
    ("error", Some(Code::Internal)),
];

impl Logins {
    pub(super) fn new(registered: &Registered) -> Self {
        let help = "Logins by result.";
        let logins = registered.counters("tollkeeper_logins_total", help, &["result"]);
        // Create the series of every result at startup.
        for (result, _) in RESULTS {
            logins.with_label_values(&[result]);
        }
        Self(logins)
    }

    /// Counts a login that was refused with this code; `None` for a successful one.
    pub fn count(&self, refused: Option<Code>) {
        let known = RESULTS.iter().find(|(_, code)| *code == refused);
        self.0.with_label_values(&[known.map_or("error", |(result, _)| result)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_row() {
        let registered = Registered::default();
        let logins = Logins::new(&registered);
        for code in [None, Some(Code::TooManyAttempts), Some(Code::DatabaseUnavailable), Some(Code::Internal)]
        {
            logins.count(code);
        }
        let text = registered.to_text(&Registered::default());
        for row in ["success\"} 1", "invalid_credentials\"} 0", "too_many_attempts\"} 1", "error\"} 2"] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }
}
