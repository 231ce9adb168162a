//! The records of a refused attempt: an audit entry, a count, and an e-mail to the owner.
//!
//! The same statements are used for an address without an account, so that the response time doesn't reveal
//! which accounts exist.

use serde_json::json;

use crate::sign_in::attempts::Attempt;
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::limiter::{self, Subject};
use mail::posting::Draft;

use crate::store::login_guesses::FAILURES_BEFORE_MAIL;
use mail::store::mail_counters::Sender;
use mail::store::outbox::{About, Template};
use trail::{Action, Event, Trail};

/// The maximum number of audit entries per minute for one account, network and reason.
const ENTRIES_PER_MINUTE: u32 = 1;
/// The maximum number of audit entries per minute for one network and reason, over all accounts.
const NETWORK_ENTRIES_PER_MINUTE: u32 = 60;

/// The reason for a refusal. Its name in the audit trail never changes after a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Reason {
    /// The account doesn't exist, or the password is wrong.
    InvalidCredentials,
    /// The caller has to wait after too many attempts.
    TooManyAttempts,
    /// The password was right, but the address isn't verified.
    EmailNotVerified,
    /// The password was right, but the account is disabled.
    AccountDisabled,
    /// The password was right, but passwords are disabled.
    PasswordsDisabled,
    /// The password was right, but the code was missing.
    SecondFactorRequired,
    /// The password was right, but the code was wrong.
    InvalidOneTimeCode,
    /// The response of an account's passkey isn't valid.
    InvalidCredential,
}

impl Reason {
    /// Returns the reason for an error code; `None` if refusals with this code aren't recorded.
    fn of(code: Code) -> Option<Self> {
        Some(match code {
            Code::InvalidCredentials | Code::WrongPassword => Self::InvalidCredentials,
            Code::TooManyAttempts => Self::TooManyAttempts,
            Code::EmailNotVerified => Self::EmailNotVerified,
            Code::AccountDisabled => Self::AccountDisabled,
            Code::PasswordsDisabled => Self::PasswordsDisabled,
            Code::SecondFactorRequired => Self::SecondFactorRequired,
            Code::InvalidOneTimeCode => Self::InvalidOneTimeCode,
            Code::InvalidCredential => Self::InvalidCredential,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Attempt {
    /// Records that the attempt is refused with this error, and returns the error.
    pub(super) async fn refuse(&self, accounts: &Accounts, trail: &Trail, error: impl Into<Error>) -> Error {
        let error = error.into();
        let Some(reason) = Reason::of(error.code) else { return error };
        let recorded = self.record(accounts, trail, reason, accounts.clock.now()).await;
        recorded.err().unwrap_or(error)
    }

    /// Does the same as [`Attempt::refuse`] if the code was wrong, or too many guesses were made. Other
    /// errors aren't recorded.
    pub(super) async fn refuse_code(&self, accounts: &Accounts, trail: &Trail, error: Error) -> Error {
        match error.code {
            Code::InvalidOneTimeCode | Code::TooManyAttempts => self.refuse(accounts, trail, error).await,
            _ => error,
        }
    }

    /// Counts a wrong password or code, adds an audit entry, and e-mails the owner at the tenth failure of a
    /// day.
    async fn record(
        &self,
        accounts: &Accounts,
        trail: &Trail,
        reason: Reason,
        now: Time,
    ) -> Result<(), Error> {
        let is_failure = matches!(reason, Reason::InvalidCredentials | Reason::InvalidOneTimeCode);
        let adds_entry = self.may_add_entry(accounts, reason, now);
        if !is_failure && !adds_entry {
            return Ok(());
        }
        let mut tx = accounts.db.write().await?;
        let mut sends_mail = false;
        if is_failure {
            let failures = store::login_guesses::count_failure(&mut tx, self.account_hash(), now).await?;
            sends_mail = failures == FAILURES_BEFORE_MAIL && self.is_address();
        }
        if sends_mail {
            // The recipient, if any, is looked up when the e-mail is sent.
            let about =
                About { address: trail.address.map(|address| address.to_string()), ..About::default() };
            let draft = Draft { template: Template::LoginsRefused, about };
            let sender = Sender::visitor(trail);
            accounts.outbox.post(&mut tx, &sender, &draft, &self.email_folded, now).await?;
        }
        if adds_entry {
            self.add_entry(accounts, &mut tx, trail, reason, now).await?;
        }
        tx.commit().await?;
        if sends_mail {
            accounts.outbox.notify_one();
        }
        Ok(())
    }

    /// Returns `true` if another audit entry may be added. The rate is limited because entries are kept for a
    /// long time, and anyone can cause failed logins.
    fn may_add_entry(&self, accounts: &Accounts, reason: Reason, now: Time) -> bool {
        let (network, reason) = (self.network.to_string(), reason.as_str());
        let account = u128::from_be_bytes(*self.account_hash().first_chunk().unwrap_or(&[0; 16]));
        let one = limiter::key_for("refused_login", Subject::Within(account, &format!("{network} {reason}")));
        let all = limiter::key_for("refused_logins", Subject::Text(&format!("{network} {reason}")));
        accounts.limiter.check(one, ENTRIES_PER_MINUTE, now).is_ok()
            && accounts.limiter.check(all, NETWORK_ENTRIES_PER_MINUTE, now).is_ok()
    }

    /// Returns `true` if the text may be an address. Users may type something else into the field by mistake,
    /// such as their password, which must not be stored.
    fn is_address(&self) -> bool {
        self.email_folded.contains('@')
    }

    async fn add_entry(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        reason: Reason,
        now: Time,
    ) -> Result<(), Error> {
        let email_sha256 = self.is_address().then(|| hex(&self.account_hash()));
        let target = self.user_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let event = Event { action: Action::SessionRefused, target, organization_id: None };
        let detail = json!({"reason": reason.as_str(), "email_sha256": email_sha256});
        Ok(trail::record_with(tx, trail, &event, &detail, now, &accounts.random).await?)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
