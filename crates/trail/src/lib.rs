//! The audit trail: who did what to which object, from where and when. Entries are written in the same
//! transaction as the action.
//!
//! [`record`] adds an entry about an [`Event`], on behalf of the [`Trail`] of a request; [`list`] reads
//! entries, [`times`] the times of one action, and [`remove_before`] removes old entries.

use std::net::IpAddr;

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{AuditId, OrganizationId, RequestId, UserId};
use kernel::random::Random;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The actor, address and request of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trail {
    /// The id of a user or key, `anonymous`, `operator` for the command line, or `system` for the service
    /// itself.
    pub actor: String,
    /// The client's address, if known.
    pub address: Option<IpAddr>,
    pub request_id: Option<RequestId>,
}

impl Trail {
    /// Returns the trail of an operator at the command line.
    pub fn operator() -> Self {
        Self { actor: "operator".to_owned(), address: None, request_id: None }
    }

    /// Returns the trail of the service itself, without a request.
    pub fn system() -> Self {
        Self { actor: "system".to_owned(), address: None, request_id: None }
    }

    /// Returns the trail of the same request, with this user as the actor.
    #[must_use]
    pub fn by(&self, user_id: UserId) -> Self {
        Self { actor: user_id.to_string(), ..self.clone() }
    }
}

/// An action in the audit trail. Its word never changes once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
pub enum Action {
    /// An account was registered.
    #[strum(serialize = "user.registered")]
    UserRegistered,
    /// An address was verified.
    #[strum(serialize = "user.email_verified")]
    EmailVerified,
    /// The owner changed the username, the name or the phone number.
    #[strum(serialize = "user.changed")]
    UserChanged,
    /// The owner requested a change to another address, which isn't confirmed yet.
    #[strum(serialize = "user.email_change_requested")]
    EmailChangeRequested,
    /// The account's address was changed, and its owner has confirmed the new one.
    #[strum(serialize = "user.email_changed")]
    EmailChanged,
    /// A session was started by a login.
    #[strum(serialize = "session.started")]
    SessionStarted,
    /// A login was refused.
    #[strum(serialize = "session.refused")]
    SessionRefused,
    /// A session ended: by a logout, by its owner from another session, or because the user had too many
    /// sessions.
    #[strum(serialize = "session.ended")]
    SessionEnded,
    /// The owner changed the password.
    #[strum(serialize = "user.password_changed")]
    PasswordChanged,
    /// A password was set by a mailed link.
    #[strum(serialize = "user.password_reset")]
    PasswordReset,
    /// The owner added or replaced an authenticator app as a second factor.
    #[strum(serialize = "user.totp_added")]
    TotpAdded,
    /// The owner removed the second factor.
    #[strum(serialize = "user.totp_removed")]
    TotpRemoved,
    /// The owner generated new recovery codes.
    #[strum(serialize = "user.recovery_codes_renewed")]
    RecoveryCodesRenewed,
    /// A recovery code was used instead of a code from the app.
    #[strum(serialize = "user.recovery_code_used")]
    RecoveryCodeUsed,
    /// An operator created an account for a user.
    #[strum(serialize = "user.created")]
    UserCreated,
    /// An operator disabled an account.
    #[strum(serialize = "user.disabled")]
    UserDisabled,
    /// An operator enabled an account again.
    #[strum(serialize = "user.enabled")]
    UserEnabled,
    /// An operator removed a user's second factor.
    #[strum(serialize = "user.second_factor_reset")]
    SecondFactorReset,
    /// A user became an operator.
    #[strum(serialize = "operator.granted")]
    OperatorGranted,
    /// A user is no longer an operator.
    #[strum(serialize = "operator.revoked")]
    OperatorRevoked,
    /// An operator retried an e-mail.
    #[strum(serialize = "mails.retried")]
    MailRetried,
    /// An operator sent a test e-mail.
    #[strum(serialize = "mails.tested")]
    MailTested,
    /// The owner added a passkey.
    #[strum(serialize = "passkey.added")]
    PasskeyAdded,
    /// The owner renamed a passkey.
    #[strum(serialize = "passkey.changed")]
    PasskeyChanged,
    /// The owner removed a passkey.
    #[strum(serialize = "passkey.removed")]
    PasskeyRemoved,
    /// A passkey was used whose authenticator's signature count hadn't increased.
    #[strum(serialize = "passkey.count_went_back")]
    PasskeyCountWentBack,
    /// The account was connected to a provider.
    #[strum(serialize = "user.provider_connected")]
    ProviderConnected,
    /// A connection of the account to a provider was removed.
    #[strum(serialize = "user.provider_disconnected")]
    ProviderDisconnected,
    /// An organization was created.
    #[strum(serialize = "organization.created")]
    OrganizationCreated,
    /// An organization was changed.
    #[strum(serialize = "organization.changed")]
    OrganizationChanged,
    /// An organization was deleted with everything in it.
    #[strum(serialize = "organization.deleted")]
    OrganizationDeleted,
    /// An invitation to an organization was sent.
    #[strum(serialize = "invitation.created")]
    MemberInvited,
    /// An invitation was sent again.
    #[strum(serialize = "invitation.resent")]
    InvitationResent,
    /// An invitation was withdrawn.
    #[strum(serialize = "invitation.withdrawn")]
    InvitationWithdrawn,
    /// An invitation was accepted.
    #[strum(serialize = "invitation.accepted")]
    InvitationAccepted,
    /// A member's role in an organization was changed.
    #[strum(serialize = "organization_member.role_changed")]
    MemberRoleChanged,
    /// A member left an organization or was removed.
    #[strum(serialize = "organization_member.removed")]
    MemberRemoved,
    /// A user was added to an organization without an invitation.
    #[strum(serialize = "organization_member.added")]
    MemberAdded,
    /// A project was created.
    #[strum(serialize = "project.created")]
    ProjectCreated,
    /// A project was changed.
    #[strum(serialize = "project.changed")]
    ProjectChanged,
    /// A project was deleted with its keys.
    #[strum(serialize = "project.deleted")]
    ProjectDeleted,
    /// A user was added to a project.
    #[strum(serialize = "project_member.added")]
    ProjectMemberAdded,
    /// A member's role in a project was changed.
    #[strum(serialize = "project_member.role_changed")]
    ProjectMemberRoleChanged,
    /// A member left a project or was removed.
    #[strum(serialize = "project_member.removed")]
    ProjectMemberRemoved,
    /// An API key was created.
    #[strum(serialize = "api_key.created")]
    ApiKeyCreated,
    /// An API key was changed.
    #[strum(serialize = "api_key.changed")]
    ApiKeyChanged,
    /// An API key got a new secret.
    #[strum(serialize = "api_key.rotated")]
    ApiKeyRotated,
    /// The previous secret of a rotated API key was revoked.
    #[strum(serialize = "api_key.rotation_ended")]
    ApiKeyRotationEnded,
    /// An API key was deleted.
    #[strum(serialize = "api_key.deleted")]
    ApiKeyDeleted,
    /// A webhook was created.
    #[strum(serialize = "webhook.created")]
    WebhookCreated,
    /// A webhook was changed.
    #[strum(serialize = "webhook.changed")]
    WebhookChanged,
    /// A webhook was deleted.
    #[strum(serialize = "webhook.deleted")]
    WebhookDeleted,
    /// A webhook's secret was rotated.
    #[strum(serialize = "webhook.rotated")]
    WebhookRotated,
    /// A test was sent to a webhook.
    #[strum(serialize = "webhook.tested")]
    WebhookTested,
    /// Events were delivered to a webhook again.
    #[strum(serialize = "webhook.redelivered")]
    WebhookRedelivered,
    /// A webhook was disabled because it failed or its receiver no longer exists.
    #[strum(serialize = "webhook.disabled")]
    WebhookDisabled,
    /// The first signing key was created.
    #[strum(serialize = "signing_key.created")]
    SigningKeyCreated,
    /// A signing key was replaced by a new one.
    #[strum(serialize = "signing_key.rotated")]
    SigningKeyRotated,
    /// All older signing keys were revoked, and a new one was created.
    #[strum(serialize = "signing_key.revoked")]
    SigningKeysRevoked,
    /// An operator ended the sessions of one user or of all users, or a user ended all but one of theirs.
    #[strum(serialize = "sessions.ended")]
    SessionsEnded,
    /// Secrets were resealed with a new master key.
    #[strum(serialize = "master_key.rotated")]
    MasterKeyRotated,
    /// An operator ordered every server to read its catalog file again.
    #[strum(serialize = "catalog.reload_ordered")]
    CatalogReloadOrdered,
    /// An operator ordered every server to read its providers file again.
    #[strum(serialize = "providers.reload_ordered")]
    ProvidersReloadOrdered,
    /// An operator accepted the clock as correct.
    #[strum(serialize = "clock.accepted")]
    ClockAccepted,
    /// The alert of an organization's balance was set or removed.
    #[strum(serialize = "organization.balance_alert_set")]
    BalanceAlertSet,
    /// A budget was created.
    #[strum(serialize = "budget.created")]
    BudgetCreated,
    /// A budget was changed.
    #[strum(serialize = "budget.changed")]
    BudgetChanged,
    /// A budget was deleted.
    #[strum(serialize = "budget.deleted")]
    BudgetDeleted,
    /// An organization's credit limit was changed.
    #[strum(serialize = "organization.credit_limit_set")]
    CreditLimitSet,
    /// A credit was added to a wallet.
    #[strum(serialize = "credit.added")]
    CreditAdded,
    /// The rest of a credit expired.
    #[strum(serialize = "credit.expired")]
    CreditExpired,
    /// An invoice was created at the close of a month.
    #[strum(serialize = "invoice.created")]
    InvoiceCreated,
    /// An invoice was paid in full.
    #[strum(serialize = "invoice.paid")]
    InvoicePaid,
    /// An invoice was voided.
    #[strum(serialize = "invoice.voided")]
    InvoiceVoided,
    /// The rest of an invoice was written off.
    #[strum(serialize = "invoice.given_up")]
    InvoiceGivenUp,
    /// A correction created a credit note for an invoice.
    #[strum(serialize = "credit_note.created")]
    CreditNoteCreated,
    /// An operator took back all or part of the remainder of a credit.
    #[strum(serialize = "credit.taken_back")]
    CreditTakenBack,
    /// A payment was created.
    #[strum(serialize = "payment.created")]
    PaymentCreated,
    /// A payment has succeeded.
    #[strum(serialize = "payment.succeeded")]
    PaymentSucceeded,
    /// A payment has failed.
    #[strum(serialize = "payment.failed")]
    PaymentFailed,
    /// A payment was refunded in full or in part.
    #[strum(serialize = "payment.refunded")]
    PaymentRefunded,
    /// A refund has failed, and its money was returned to the wallet.
    #[strum(serialize = "payment.refund_failed")]
    PaymentRefundFailed,
    /// The money of a payment was taken back in a dispute.
    #[strum(serialize = "payment.disputed")]
    PaymentDisputed,
    /// The money of a disputed payment was returned.
    #[strum(serialize = "payment.reinstated")]
    PaymentReinstated,
    /// A card was saved.
    #[strum(serialize = "payment_method.saved")]
    CardSaved,
    /// The saved card was removed.
    #[strum(serialize = "payment_method.removed")]
    CardRemoved,
    /// The automatic top-up was set.
    #[strum(serialize = "auto_top_up.set")]
    AutoTopUpSet,
    /// The automatic top-up was paused.
    #[strum(serialize = "auto_top_up.paused")]
    AutoTopUpPaused,
}

db::words!(Action);

impl Action {
    /// Every action.
    pub const ALL: &[Self] = Self::VARIANTS;
}

/// The subject of an entry.
#[derive(Clone, Debug)]
pub struct Event {
    pub action: Action,
    /// The id of the object.
    pub target: String,
    /// The organization, if any.
    pub organization_id: Option<OrganizationId>,
}

/// Adds an entry.
pub async fn record(
    tx: &mut Tx,
    trail: &Trail,
    event: &Event,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    record_with(tx, trail, event, &serde_json::Value::Null, now, random).await
}

/// Adds an entry with further facts in a small JSON object; null without facts.
pub async fn record_with(
    tx: &mut Tx,
    trail: &Trail,
    event: &Event,
    detail: &serde_json::Value,
    now: Time,
    random: &Random,
) -> Result<(), db::Error> {
    sql("INSERT INTO audit_log (id, happened_at, actor, action, target, organization_id, address, request_id, detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(AuditId::new(now, random))
    .bind(now)
    .bind(trail.actor.as_str())
    .bind(event.action)
    .bind(event.target.as_str())
    .bind(event.organization_id)
    .bind(trail.address.map(|address| address.to_string()))
    .bind(trail.request_id.map(|id| id.to_string()))
    .bind((!detail.is_null()).then(|| detail.to_string()))
    .defer(tx)
    .await
}

/// A row of `audit_log`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct AuditEntry {
    /// The id, which sorts by time.
    pub id: AuditId,
    pub happened_at: Time,
    /// The id of a user or key, `anonymous`, `operator` for the command line, or `system` for the service
    /// itself.
    pub actor: String,
    pub action: String,
    /// The id of the object.
    pub target: String,
    pub organization_id: Option<OrganizationId>,
    /// The client's address.
    pub address: Option<String>,
    pub request_id: Option<String>,
    /// Further facts as a JSON object.
    pub detail: Option<serde_json::Value>,
}

impl FromRow for AuditEntry {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let detail: Option<String> = row.get("detail")?;
        let detail = detail.map(|text| serde_json::from_str(&text)).transpose();
        Ok(Self {
            id: row.get("id")?,
            happened_at: row.get("happened_at")?,
            actor: row.get("actor")?,
            action: row.get("action")?,
            target: row.get("target")?,
            organization_id: row.get("organization_id")?,
            address: row.get("address")?,
            request_id: row.get("request_id")?,
            detail: detail
                .map_err(|error| db::Error::Internal(format!("detail of an audit entry: {error}")))?,
        })
    }
}

/// Returns the times between `since` and `until` at which this action was performed on the target, newest
/// first, at most `limit`.
pub async fn times(
    tx: &mut Tx,
    (action, target): (Action, &str),
    (since, until): (Time, Time),
    limit: u32,
) -> Result<Vec<Time>, db::Error> {
    // Ids sort by time, so entries before `since` aren't read.
    let rows: Vec<(Time,)> = sql(TIMES)
        .bind(target)
        .bind(AuditId::from_parts(since, 0))
        .bind(action)
        .bind(since)
        .bind(until)
        .bind(i64::from(limit))
        .all(tx)
        .await?;
    Ok(rows.into_iter().map(|(time,)| time).collect())
}

/// The statement of [`times`].
pub const TIMES: &str = "SELECT happened_at FROM audit_log
     WHERE target = $1 AND id >= $2 AND action = $3 AND happened_at > $4 AND happened_at <= $5
     ORDER BY id DESC LIMIT $6";

/// Returns the time of the newest entry.
pub async fn newest(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let (newest,): (Option<Time>,) = sql("SELECT MAX(happened_at) FROM audit_log").one(tx).await?;
    Ok(newest)
}

/// Returns the time of the oldest entry.
pub async fn oldest(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let (oldest,): (Option<Time>,) = sql(OLDEST).one(tx).await?;
    Ok(oldest)
}

/// The statement of [`oldest`].
pub const OLDEST: &str = "SELECT MIN(happened_at) FROM audit_log";

/// Removes up to `limit` entries from before `time`; returns their number. The database refuses to remove
/// those of the last 90 days.
pub async fn remove_before(tx: &mut Tx, time: Time, limit: i64) -> Result<u64, db::Error> {
    sql(REMOVE_BEFORE).bind(time).bind(limit).execute(tx).await
}

/// The statement of [`remove_before`].
pub const REMOVE_BEFORE: &str = "DELETE FROM audit_log WHERE id IN
     (SELECT id FROM audit_log WHERE happened_at < $1 ORDER BY happened_at LIMIT $2)";

/// The filter of a list of entries; an empty string matches all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub actor: String,
    pub action: String,
    pub target: String,
    pub organization_id: String,
    /// The earliest time, included.
    pub since: Option<Time>,
    /// The latest time, excluded.
    pub until: Option<Time>,
    /// Maximum number of entries.
    pub limit: i64,
}

/// Returns the newest matching entries, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter) -> Result<Vec<AuditEntry>, db::Error> {
    sql("SELECT id, happened_at, actor, action, target, organization_id, address, request_id, detail FROM audit_log
         WHERE ($1 = '' OR actor = $1) AND ($2 = '' OR action = $2) AND ($3 = '' OR target = $3)
           AND ($4 = '' OR organization_id = $4) AND happened_at >= $5 AND happened_at < $6
         ORDER BY id DESC LIMIT $7")
    .bind(filter.actor.as_str())
    .bind(filter.action.as_str())
    .bind(filter.target.as_str())
    .bind(filter.organization_id.as_str())
    .bind(filter.since.unwrap_or(Time::from_unix_ms(i64::MIN)))
    .bind(filter.until.unwrap_or(Time::from_unix_ms(i64::MAX)))
    .bind(filter.limit)
    .heavy()
    .all(tx)
    .await
}
