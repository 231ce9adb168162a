//! Records of a refused login: an audit entry, a count, and a mail to the owner.
//!
//! An address without an account is recorded by the same statements, so that the response time doesn't reveal
//! which accounts exist.

use serde_json::json;

use crate::sign_in::guesses::Guess;
use crate::{Accounts, store};
use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::UserId;
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

/// The reason of a refusal. Its word in the audit trail never changes once released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The account doesn't exist, or the password is wrong.
    InvalidCredentials,
    /// The caller has to wait after too many attempts.
    TooManyAttempts,
    /// The password was right, but the address isn't verified.
    EmailNotVerified,
    /// The password was right, but the account is disabled.
    AccountDisabled,
    /// The password was right, but people sign in without one here.
    PasswordsDisabled,
    /// The password was right, but the code was missing.
    SecondFactorRequired,
    /// The password was right, but the code wasn't.
    InvalidOneTimeCode,
    /// The response of an account's passkey isn't valid.
    InvalidCredential,
}

impl Reason {
    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A refused login.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    pub guess: &'a Guess,
    /// The address that was typed, folded.
    pub email_folded: &'a str,
    /// The account, if one exists.
    pub user_id: Option<UserId>,
    pub reason: Reason,
}

impl Refusal<'_> {
    /// Counts a wrong password or code, adds an audit entry, and mails the owner at the tenth failure of a day.
    pub async fn record(&self, accounts: &Accounts, trail: &Trail, now: Time) -> Result<(), Error> {
        let is_failure = matches!(self.reason, Reason::InvalidCredentials | Reason::InvalidOneTimeCode);
        let adds_entry = self.may_add_entry(accounts, now);
        if !is_failure && !adds_entry {
            return Ok(());
        }
        let mut tx = accounts.db.write().await?;
        let mut sends_mail = false;
        if is_failure {
            let failures =
                store::login_guesses::count_failure(&mut tx, self.guess.account_hash(), now).await?;
            sends_mail = failures == FAILURES_BEFORE_MAIL && self.is_address();
        }
        if sends_mail {
            // The recipient, if any, is looked up when the mail is sent.
            let about =
                About { address: trail.address.map(|address| address.to_string()), ..About::default() };
            let draft = Draft { template: Template::LoginsRefused, about };
            accounts.outbox.post(&mut tx, &Sender::visitor(trail), &draft, self.email_folded, now).await?;
        }
        if adds_entry {
            self.add_entry(accounts, &mut tx, trail, now).await?;
        }
        tx.commit().await?;
        if sends_mail {
            accounts.outbox.notify_one();
        }
        Ok(())
    }

    /// Returns `true` if the audit trail may get another entry. Entries are limited: they are kept for long,
    /// and anyone can fail to log in.
    fn may_add_entry(&self, accounts: &Accounts, now: Time) -> bool {
        let (network, reason) = (self.guess.network().to_string(), self.reason.as_str());
        let account = u128::from_be_bytes(*self.guess.account_hash().first_chunk().unwrap_or(&[0; 16]));
        let one = limiter::key_for("refused_login", Subject::Within(account, &format!("{network} {reason}")));
        let all = limiter::key_for("refused_logins", Subject::Text(&format!("{network} {reason}")));
        accounts.limiter.check(one, ENTRIES_PER_MINUTE, now).is_ok()
            && accounts.limiter.check(all, NETWORK_ENTRIES_PER_MINUTE, now).is_ok()
    }

    /// Returns `true` if the text may be an address. People type other things into the field by mistake, for
    /// instance their password: no trace of that is kept.
    fn is_address(&self) -> bool {
        self.email_folded.contains('@')
    }

    async fn add_entry(
        &self,
        accounts: &Accounts,
        tx: &mut Tx,
        trail: &Trail,
        now: Time,
    ) -> Result<(), Error> {
        let email_sha256 = self.is_address().then(|| hex(&self.guess.account_hash()));
        let target = self.user_id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let event = Event { action: Action::SessionRefused, target, organization_id: None };
        let detail = json!({"reason": self.reason.as_str(), "email_sha256": email_sha256});
        Ok(trail::record_with(tx, trail, &event, &detail, now, &accounts.random).await?)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
