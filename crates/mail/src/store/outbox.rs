//! The table `outbox`: e-mails that haven't been sent yet.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::store::mail_counters::Admitted;
use db::sized::Sizes;
use db::{Page, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::MailId;
use kernel::random::Random;

pub use crate::kinds::Template;

/// The contents of an e-mail, except its recipient's account. They are stored when the e-mail is queued,
/// because the objects may have been deleted when it is sent.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// An organization's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// A project's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The recipient's role in the organization or the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The username of the acting user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The message of the acting user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The id of the request that caused the e-mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The organizations that the recipient's account belongs to, one line for each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub belongs_to: Vec<String>,
    /// The id of an invitation. The token of its link is created when the e-mail is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invitation_id: Option<String>,
    /// The client's address, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The id of the user who wants to use the recipient's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The new e-mail address of the recipient's account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_email: Option<String>,
    /// The name of a provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The number of recovery codes that the recipient has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codes_left: Option<i64>,
    /// The name of a passkey of the recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passkey: Option<String>,
    /// `true` if the password alone is now enough to log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_password_enough: Option<bool>,
    /// The change that an operator made, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// A budget that has reached a threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<ReachedBudget>,
    /// A balance that has fallen below its threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<LowBalance>,
    /// The URL of a webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// `true` if the webhook's receiver responded with 410 (Gone); `false` if it has failed for days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_receiver_gone: Option<bool>,
    /// The event of an automatic top-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_up: Option<TopUpNotice>,
}

/// An event of an automatic top-up.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TopUpNotice {
    /// `retried` if the charge will be tried again; otherwise the reason why the top-up was paused, as in the
    /// API.
    pub reason: String,
    /// The amount of the charge, as a decimal; empty if nothing was charged.
    pub amount: String,
    /// The ISO 4217 code of the currency.
    pub currency: String,
    /// The URL at which an owner confirms the charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout_url: Option<String>,
}

/// A balance that has fallen below its threshold. Amounts are decimals.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LowBalance {
    /// The balance when it fell below the threshold.
    pub balance: String,
    /// The threshold.
    pub below: String,
    /// The ISO 4217 code of the currency.
    pub currency: String,
}

/// A budget that has reached a threshold. Amounts are decimals.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ReachedBudget {
    pub name: String,
    /// A day, a month, or `in all`.
    pub period: String,
    /// The threshold, in percent of the limit.
    pub threshold: i64,
    pub spent: String,
    pub limit: String,
    /// The remaining amount; 0 if the limit is exceeded.
    pub left: String,
    /// The ISO 4217 code of the currency.
    pub currency: String,
    /// `true` if calls that could exceed the limit are refused.
    pub is_hard: bool,
}

/// A row of `outbox`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedMail {
    pub id: MailId,
    pub template: Template,
    /// The recipient's address. The account is looked up when the e-mail is sent.
    pub email: String,
    pub about: About,
    pub created_at: Time,
    /// The number of attempts, including the current one.
    pub attempts: i64,
}

db::row!(QueuedMail { id, template, email, about: about, created_at, attempts });

fn about(row: &Row) -> Result<About, db::Error> {
    let details: String = row.get("details")?;
    serde_json::from_str(&details)
        .map_err(|error| db::Error::Internal(format!("details of an e-mail: {error}")))
}

/// Returns the contents as JSON, with the id of the current request, so that the cause of an e-mail can be
/// found.
fn details(about: &About) -> Result<String, db::Error> {
    let request_id = telemetry::request_id().map(|id| id.to_string());
    serde_json::to_string(&About { request_id, ..about.clone() })
        .map_err(|error| db::Error::Internal(format!("details of an e-mail: {error}")))
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

/// Queues e-mails. They are sent if, and only if, this transaction is committed.
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
            .bind(template)
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

/// Leases e-mails that are due, starting with those that users are waiting for. No other replica gets them
/// before `leased_until`. After that, the replica that leased them is considered dead.
pub async fn claim(
    tx: &mut Tx,
    most: i64,
    now: Time,
    leased_until: Time,
) -> Result<Vec<QueuedMail>, db::Error> {
    let mut due: Vec<(MailId,)> = sql(DUE).bind(most).bind(now).all(tx).await?;
    // The e-mails are leased one by one, in the order of their ids. A single statement could lock them in any
    // order, so two replicas that lease the same e-mails could deadlock.
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

/// The query of [`claim`]. It reads each priority with the index, so it doesn't read e-mails that are waiting
/// for another attempt.
pub const DUE: &str = "SELECT id FROM (
         SELECT a.id, a.priority, a.next_attempt_at FROM
             (SELECT id, priority, next_attempt_at FROM outbox
              WHERE priority = 0 AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT $1) a
         UNION ALL
         SELECT b.id, b.priority, b.next_attempt_at FROM
             (SELECT id, priority, next_attempt_at FROM outbox
              WHERE priority = 1 AND next_attempt_at <= $2 ORDER BY next_attempt_at, id LIMIT $1) b
     ) due ORDER BY priority, next_attempt_at, id LIMIT $1";

/// Stores the time of the next attempt, and the reason why the last attempt failed.
pub async fn retry_at(tx: &mut Tx, id: MailId, at: Time, reason: &str) -> Result<(), db::Error> {
    sql("UPDATE outbox SET next_attempt_at = $2, last_error = $3 WHERE id = $1")
        .bind(id)
        .bind(at)
        .bind(reason)
        .defer(tx)
        .await
}

/// A queued e-mail without its contents, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingMail {
    pub id: MailId,
    pub template: Template,
    pub email: String,
    pub created_at: Time,
    /// The number of attempts.
    pub attempts: i64,
    pub next_attempt_at: Time,
    /// The reason why the last attempt failed.
    pub last_error: Option<String>,
}

db::row!(WaitingMail { id, template, email, created_at, attempts, next_attempt_at, last_error });

/// Returns one page of the queued e-mails, oldest first.
pub async fn list(tx: &mut Tx, page: Page) -> Result<Vec<WaitingMail>, db::Error> {
    sql("SELECT id, template, email, created_at, attempts, next_attempt_at, last_error FROM outbox
         ORDER BY created_at, id LIMIT $1 OFFSET $2")
    .bind(page.page_size)
    .bind(page.offset())
    .heavy()
    .all(tx)
    .await
}

/// Makes a queued e-mail due now, or all of them if `id` is `None`. Returns their number.
pub async fn make_due(tx: &mut Tx, id: Option<MailId>, now: Time) -> Result<u64, db::Error> {
    sql("UPDATE outbox SET next_attempt_at = $2 WHERE $1 = '' OR id = $1")
        .bind(id.map(|id| id.to_string()).unwrap_or_default())
        .bind(now)
        .execute(tx)
        .await
}

/// Makes e-mails due whose next attempt is after `latest`, which happens if the clock is set back. Returns
/// their number.
pub async fn recall(tx: &mut Tx, now: Time, latest: Time) -> Result<u64, db::Error> {
    sql(RECALL).bind(now).bind(latest).execute(tx).await
}

/// The statement of [`recall`]. It reads every priority with the index.
pub const RECALL: &str =
    "UPDATE outbox SET next_attempt_at = $1 WHERE priority IN (0, 1) AND next_attempt_at > $2";

/// Removes an e-mail that was sent or won't be retried.
pub async fn remove(tx: &mut Tx, id: MailId) -> Result<(), db::Error> {
    sql("DELETE FROM outbox WHERE id = $1").bind(id).defer(tx).await
}

/// Returns the number of queued e-mails.
pub async fn count(tx: &mut Tx) -> Result<i64, db::Error> {
    Ok(waiting(tx).await?.0)
}

/// Returns the number of queued e-mails, and the time at which the oldest was queued.
pub async fn waiting(tx: &mut Tx) -> Result<(i64, Option<Time>), db::Error> {
    sql("SELECT COUNT(*), MIN(created_at) FROM outbox").one(tx).await
}
