//! The text of each e-mail, from the files in `templates/`.
//!
//! Each e-mail has a file with its subject, opening and closing. The templates `letter.txt` and `letter.html`
//! insert them into the two parts of the e-mail. Text from users, such as names, is written on one line and
//! changed so that no part of it becomes a link. Lines of the text part are short, and the token is repeated
//! on a separate line, for recipients who can't click the link.

use std::fmt;

use askama::Template as _;

use super::unlinked::{truncated, unlinked};
use super::{Message, one_line};
use crate::store::outbox::{About, LowBalance, ReachedBudget, Template, TopUpNotice};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::money::Pico;
use kernel::shown::{self, Rounding};

/// The maximum length of a name in a subject line, in characters.
const MAX_SUBJECT_NAME: usize = 60;
/// The maximum length of a URL, in characters.
const MAX_URL: usize = 200;

/// The values of an e-mail.
#[derive(Clone, Copy)]
pub struct Letter<'a> {
    /// The kind of the e-mail.
    pub template: Template,
    /// The recipient's address.
    pub to: &'a str,
    /// The recipient's username; empty for a guest without an account.
    pub username: &'a str,
    /// The public URL, which links begin with.
    pub public_url: &'a str,
    /// The token of the link, if the e-mail has a link.
    pub token: Option<&'a str>,
    pub about: &'a About,
    /// The number of failed logins within a day, in the e-mail about them.
    pub failures: i64,
    /// The time of the event that the e-mail reports.
    pub at: Time,
}

/// Text from a user. It is written on one line and without links.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unlinked(&one_line(self.0)))
    }
}

impl Name<'_> {
    /// Returns the name for a subject line, shortened to [`MAX_SUBJECT_NAME`] characters.
    fn short(&self) -> String {
        unlinked(&truncated(&one_line(self.0), MAX_SUBJECT_NAME))
    }
}

/// The subject, opening and closing of an e-mail, from its file.
struct Words {
    subject: String,
    opening: String,
    closing: String,
}

struct Link<'a> {
    url: String,
    words: &'static str,
    token: &'a str,
}

#[derive(askama::Template)]
#[template(path = "letter.txt")]
struct TextPart<'a> {
    letter: &'a Letter<'a>,
    words: &'a Words,
    link: &'a Option<Link<'a>>,
}

#[derive(askama::Template)]
#[template(path = "letter.html")]
struct HtmlPart<'a> {
    letter: &'a Letter<'a>,
    words: &'a Words,
    link: &'a Option<Link<'a>>,
}

/// Renders the blocks of a file.
macro_rules! words {
    ($letter:expr, $file:tt) => {{
        #[derive(askama::Template)]
        #[template(path = $file, blocks = ["subject", "opening", "closing"])]
        #[allow(dead_code, reason = "the words of some mails contain no values")]
        struct File<'a> {
            letter: &'a Letter<'a>,
        }
        let file = File { letter: $letter };
        Words {
            subject: file.as_subject().render()?,
            opening: file.as_opening().render()?,
            closing: file.as_closing().render()?,
        }
    }};
}

impl Letter<'_> {
    /// Writes the e-mail.
    ///
    /// # Errors
    /// A template fails, which is impossible.
    pub fn write(&self) -> Result<Message, Error> {
        self.render().map_err(Error::internal)
    }

    fn render(&self) -> Result<Message, askama::Error> {
        let (words, link) = (self.words()?, self.link());
        let text = TextPart { letter: self, words: &words, link: &link }.render()?;
        let html = HtmlPart { letter: self, words: &words, link: &link }.render()?;
        let link = link.map(|link| link.url);
        Ok(Message { to: self.to.to_owned(), subject: words.subject, text, html, link })
    }

    fn words(&self) -> Result<Words, askama::Error> {
        Ok(match self.template {
            Template::VerifyEmail => words!(self, "verify_email.txt"),
            Template::ResetPassword => words!(self, "reset_password.txt"),
            Template::PasswordChanged => words!(self, "password_changed.txt"),
            Template::Invitation => words!(self, "invitation.txt"),
            Template::AddedToProject => words!(self, "added_to_project.txt"),
            Template::OrganizationDeleted => words!(self, "organization_deleted.txt"),
            Template::ProjectDeleted => words!(self, "project_deleted.txt"),
            Template::LoginsRefused => words!(self, "logins_refused.txt"),
            Template::NewLogin => words!(self, "new_login.txt"),
            Template::ChangeEmail if self.token.is_none() => words!(self, "email_taken.txt"),
            Template::ChangeEmail => words!(self, "change_email.txt"),
            Template::EmailChangeRequested => words!(self, "email_change_requested.txt"),
            Template::EmailChanged => words!(self, "email_changed.txt"),
            Template::SecondFactorAdded => words!(self, "second_factor_added.txt"),
            Template::SecondFactorRemoved => words!(self, "second_factor_removed.txt"),
            Template::RecoveryCodeUsed => words!(self, "recovery_code_used.txt"),
            Template::ChangedByOperator => words!(self, "changed_by_operator.txt"),
            Template::PasskeyAdded => words!(self, "passkey_added.txt"),
            Template::PasskeyRemoved => words!(self, "passkey_removed.txt"),
            Template::ProviderConnected => words!(self, "provider_connected.txt"),
            Template::ProviderDisconnected => words!(self, "provider_disconnected.txt"),
            Template::BudgetThreshold => words!(self, "budget_threshold.txt"),
            Template::BalanceLow => words!(self, "balance_low.txt"),
            Template::WebhookDisabled => words!(self, "webhook_disabled.txt"),
            Template::AutoTopUp => words!(self, "auto_top_up.txt"),
        })
    }

    fn link(&self) -> Option<Link<'_>> {
        let (path, words) = match self.template {
            Template::VerifyEmail => ("verify-email", "Confirm my address"),
            Template::ResetPassword => ("reset-password", "Choose a new password"),
            Template::Invitation => ("invitations/accept", "Accept the invitation"),
            Template::ChangeEmail => ("change-email", "Confirm my new address"),
            _ => return None,
        };
        let token = self.token?;
        Some(Link { url: format!("{}/{path}?token={token}", self.public_url()), words, token })
    }

    fn username(&self) -> String {
        Name(self.username).to_string().trim_end().to_owned()
    }

    fn by(&self) -> Name<'_> {
        Name(self.about.by.as_deref().unwrap_or_default())
    }

    fn organization(&self) -> Name<'_> {
        Name(self.about.organization.as_deref().unwrap_or_default())
    }

    fn project(&self) -> Name<'_> {
        Name(self.about.project.as_deref().unwrap_or_default())
    }

    fn role(&self) -> Name<'_> {
        Name(self.about.role.as_deref().unwrap_or_default())
    }

    fn change(&self) -> Name<'_> {
        Name(self.about.change.as_deref().unwrap_or_default())
    }

    /// Returns the beginning of the webhook's URL.
    fn webhook(&self) -> String {
        let url = self.about.webhook.as_deref().unwrap_or_default();
        unlinked(&truncated(&one_line(url), MAX_URL))
    }

    /// Returns `true` if the webhook belongs to the installation, not to an organization.
    fn is_of_installation(&self) -> bool {
        self.about.organization.is_none()
    }

    fn is_receiver_gone(&self) -> bool {
        self.about.is_receiver_gone.unwrap_or_default()
    }

    fn new_email(&self) -> Name<'_> {
        Name(self.about.new_email.as_deref().unwrap_or_default())
    }

    /// Returns the budget with its figures; an empty budget if the e-mail has none.
    fn budget(&self) -> ReachedBudget {
        let budget = self.about.budget.clone().unwrap_or_default();
        let spent = figure(&budget.spent, &budget.currency, Rounding::Up);
        let [limit, left] =
            [&budget.limit, &budget.left].map(|amount| figure(amount, &budget.currency, Rounding::Down));
        ReachedBudget { spent, limit, left, ..budget }
    }

    /// Returns the low balance with its figures; an empty balance if the e-mail has none.
    fn low_balance(&self) -> LowBalance {
        let low = self.about.low_balance.clone().unwrap_or_default();
        let [balance, below] =
            [&low.balance, &low.below].map(|amount| figure(amount, &low.currency, Rounding::Down));
        LowBalance { balance, below, ..low }
    }

    /// Returns the event of an automatic top-up with its figure; an empty event if the e-mail has none.
    fn top_up(&self) -> TopUpNotice {
        let notice = self.about.top_up.clone().unwrap_or_default();
        TopUpNotice { amount: figure(&notice.amount, &notice.currency, Rounding::Up), ..notice }
    }

    fn budget_name(&self) -> Name<'_> {
        Name(self.about.budget.as_ref().map_or("", |budget| &budget.name))
    }

    fn passkey(&self) -> Name<'_> {
        Name(self.about.passkey.as_deref().unwrap_or_default())
    }

    /// Returns `true` if the recipient can sign in with only the password. Also returns `true` for e-mails
    /// queued before this value was stored.
    fn is_password_enough(&self) -> bool {
        self.about.is_password_enough.unwrap_or(true)
    }

    /// Returns the name of the provider, on one line.
    fn provider(&self) -> String {
        self.about.provider.as_deref().map_or_else(|| "a provider".to_owned(), one_line)
    }

    /// Returns a sentence with the number of remaining recovery codes.
    fn codes_left(&self) -> String {
        match self.about.codes_left.unwrap_or_default() {
            0 => "No recovery codes are left".to_owned(),
            1 => "One recovery code is left".to_owned(),
            left => format!("{left} recovery codes are left"),
        }
    }

    /// Returns the inviter's message. Each line is marked in the e-mail, so that it can't be mistaken for the
    /// server's text or for the token.
    fn message(&self) -> Vec<Name<'_>> {
        let message = self.about.message.as_deref().filter(|message| !message.trim().is_empty());
        message.unwrap_or_default().lines().map(Name).collect()
    }

    fn belongs_to(&self) -> impl Iterator<Item = Name<'_>> {
        self.about.belongs_to.iter().map(|line| Name(line))
    }

    /// Returns the client's address, on one line.
    fn client(&self) -> String {
        self.about.address.as_deref().map_or_else(|| "an unknown address".to_owned(), one_line)
    }

    /// Formats the time with minutes, such as `2026-01-31 09:30 UTC`.
    fn minute(&self) -> String {
        let text = self.at.to_string();
        let date_and_time = text.get(..16).unwrap_or(&text).replacen('T', " ", 1);
        format!("{date_and_time} UTC")
    }

    fn public_url(&self) -> &str {
        self.public_url.trim_end_matches('/')
    }

    /// Returns the public URL without its scheme, so that mail programs don't turn it into a link.
    fn host(&self) -> &str {
        let url = self.public_url();
        url.split_once("://").map_or(url, |(_, host)| host)
    }
}

/// Returns the figure of an amount that was stored with the e-mail; any other text unchanged.
fn figure(amount: &str, currency: &str, rounding: Rounding) -> String {
    let exact = Pico::parse(amount);
    exact.map_or_else(|| amount.to_owned(), |exact| shown::amount(exact, currency, rounding))
}
