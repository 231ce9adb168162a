//! Mail that has not left yet.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::bounds::Counter;
use crate::store::mail_counters::Admitted;
use db::sized::Sizes;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::MailId;
use kernel::random::Random;

/// What a mail says. Tokens are made when it leaves: none is stored here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Template {
    /// Confirm your address.
    VerifyEmail,
    /// Choose a new password; to nobody when the address has no account.
    ResetPassword,
    /// Your password was changed.
    PasswordChanged,
    /// Come into an organization.
    Invitation,
    /// You were added to a project.
    AddedToProject,
    /// An organization that you belonged to is gone.
    OrganizationDeleted,
    /// A project that you belonged to is gone.
    ProjectDeleted,
    /// Logins to your account failed; to nobody when the address has no account or isn't verified.
    LoginsRefused,
    /// A login to your account from a network that is new.
    NewLogin,
}

impl Template {
    /// Every template.
    pub const ALL: [Self; 9] = [
        Self::VerifyEmail,
        Self::ResetPassword,
        Self::PasswordChanged,
        Self::Invitation,
        Self::AddedToProject,
        Self::OrganizationDeleted,
        Self::ProjectDeleted,
        Self::LoginsRefused,
        Self::NewLogin,
    ];

    /// The word in the database and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VerifyEmail => "verify_email",
            Self::ResetPassword => "reset_password",
            Self::PasswordChanged => "password_changed",
            Self::Invitation => "invitation",
            Self::AddedToProject => "added_to_project",
            Self::OrganizationDeleted => "organization_deleted",
            Self::ProjectDeleted => "project_deleted",
            Self::LoginsRefused => "logins_refused",
            Self::NewLogin => "new_login",
        }
    }

    /// Whether it only tells of something that was done, so that it may be dropped where too many were sent.
    pub const fn is_notice(self) -> bool {
        match self {
            Self::VerifyEmail | Self::ResetPassword | Self::Invitation => false,
            Self::PasswordChanged
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin => true,
        }
    }

    /// The counter of its recipients.
    pub const fn counter(self) -> Counter {
        match self {
            Self::VerifyEmail => Counter::Verification,
            Self::ResetPassword => Counter::PasswordReset,
            Self::PasswordChanged
            | Self::Invitation
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin => Counter::Recipient,
        }
    }

    /// 0 for links that people wait for, 1 for anything else, which leaves after them.
    const fn priority(self) -> i64 {
        match self {
            Self::VerifyEmail | Self::ResetPassword => 0,
            Self::PasswordChanged
            | Self::Invitation
            | Self::AddedToProject
            | Self::OrganizationDeleted
            | Self::ProjectDeleted
            | Self::LoginsRefused
            | Self::NewLogin => 1,
        }
    }
}

/// What a mail is about besides its recipient's account, as it is when it is queued: it may be gone when the mail leaves.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// An organization's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// A project's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The role that the recipient has there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The username of whoever did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The request that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The organizations of the recipient's account, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub belongs_to: Vec<String>,
    /// The id of an invitation; its link's token is made when the mail leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invitation_id: Option<String>,
    /// The client's address, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A row of `outbox`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedMail {
    /// Primary key.
    pub id: MailId,
    /// What it says.
    pub template: Template,
    /// Whom it is for; the account is looked up when it leaves.
    pub email: String,
    /// What it is about.
    pub about: About,
    /// When it was put here.
    pub created_at: Time,
    /// Attempts so far, this one included.
    pub attempts: i64,
}

impl FromRow for QueuedMail {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: String = row.get("template")?;
        let template = Template::ALL.into_iter().find(|template| template.as_str() == word);
        let details: String = row.get("details")?;
        Ok(Self {
            id: row.get("id")?,
            template: template.ok_or_else(|| db::Error::Internal(format!("template is {word:?}")))?,
            email: row.get("email")?,
            about: serde_json::from_str(&details)
                .map_err(|error| db::Error::Internal(format!("details of a mail: {error}")))?,
            created_at: row.get("created_at")?,
            attempts: row.get("attempts")?,
        })
    }
}

/// As it is stored, with the request at hand: whoever looks for a mail finds what caused it.
fn details(about: &About) -> Result<String, db::Error> {
    let request_id = telemetry::request_id().map(|id| id.to_string());
    serde_json::to_string(&About { request_id, ..about.clone() })
        .map_err(|error| db::Error::Internal(format!("details of a mail: {error}")))
}

static INSERT: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let rows: Vec<_> = (0..rows)
            .map(|row| format!("(${}, $1, ${}, $2, $3, $4, $4, 0)", 2 * row + 5, 2 * row + 6))
            .collect();
        format!(
            "INSERT INTO outbox (id, template, email, details, priority, created_at, next_attempt_at, attempts) VALUES {}",
            rows.join(", ")
        )
    })
});

/// Puts mails into the outbox: they leave when, and only when, this transaction is committed.
pub async fn insert_all(
    tx: &mut Tx,
    template: Template,
    mails: &Admitted,
    about: &About,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    let details = details(about)?;
    for (text, chunk) in INSERT.chunks(mails.recipients()) {
        let mut statement = sql(text)
            .expecting(4 + 2 * chunk.len())
            .bind(template.as_str())
            .bind(details.as_str())
            .bind(template.priority())
            .bind(now);
        for email in chunk {
            statement = statement.bind(MailId::new(now, random)).bind(email.as_str());
        }
        statement.defer(tx).await?;
    }
    Ok(())
}

/// Takes mails that are due, those that people wait for first; nobody else gets them before `leased_until`, when whoever took
/// them is taken for dead.
pub async fn claim(
    tx: &mut Tx,
    most: i64,
    now: Time,
    leased_until: Time,
) -> Result<Vec<QueuedMail>, db::Error> {
    let mut due: Vec<(MailId,)> = sql(DUE).bind(most).bind(now).all(tx).await?;
    // One by one in the order of their ids, whatever the plan of a single statement would be: else two replicas that want some
    // of the same mails may wait for each other.
    due.sort_unstable();
    let mut claimed = Vec::with_capacity(due.len());
    for (id,) in due {
        let mail = sql("UPDATE outbox SET attempts = attempts + 1, next_attempt_at = $3
             WHERE id = $1 AND next_attempt_at <= $2
             RETURNING id, template, email, details, created_at, attempts")
        .bind(id)
        .bind(now)
        .bind(leased_until);
        claimed.extend(mail.optional::<QueuedMail>(tx).await?);
    }
    Ok(claimed)
}

/// What [`claim`] finds: each priority by the index, however many mails wait for another attempt.
pub const DUE: &str = "SELECT id FROM (
         SELECT a.id, a.priority, a.next_attempt_at FROM
             (SELECT id, priority, next_attempt_at FROM outbox
              WHERE priority = 0 AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT $1) a
         UNION ALL
         SELECT b.id, b.priority, b.next_attempt_at FROM
             (SELECT id, priority, next_attempt_at FROM outbox
              WHERE priority = 1 AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT $1) b
     ) due ORDER BY priority, next_attempt_at, id LIMIT $1";

/// Sets the next attempt.
pub async fn retry_at(tx: &mut Tx, id: MailId, at: Time) -> Result<(), db::Error> {
    sql("UPDATE outbox SET next_attempt_at = $2 WHERE id = $1").bind(id).bind(at).defer(tx).await
}

/// Lets mails leave now whose next attempt lies after `latest`: a clock has been set back since it was set. How many.
pub async fn recall(tx: &mut Tx, now: Time, latest: Time) -> Result<u64, db::Error> {
    sql(RECALL).bind(now).bind(latest).execute(tx).await
}

/// The statement of [`recall`]: every priority, by the index.
pub const RECALL: &str =
    "UPDATE outbox SET next_attempt_at = $1 WHERE priority IN (0, 1) AND next_attempt_at > $2";

/// Removes a mail: it has left, or never will.
pub async fn remove(tx: &mut Tx, id: MailId) -> Result<(), db::Error> {
    sql("DELETE FROM outbox WHERE id = $1").bind(id).defer(tx).await
}

/// How many wait.
pub async fn count(tx: &mut Tx) -> Result<i64, db::Error> {
    Ok(waiting(tx).await?.0)
}

/// How many wait, and since when the oldest does.
pub async fn waiting(tx: &mut Tx) -> Result<(i64, Option<Time>), db::Error> {
    sql("SELECT COUNT(*), MIN(created_at) FROM outbox").one(tx).await
}
