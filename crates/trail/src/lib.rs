//! The audit trail: who did what to which object, from where and when. Entries are written in the same
//! transaction as what was done.
//!
//! [`record`] adds an entry about an [`Event`], on behalf of the [`Trail`] of a request; [`list`] reads
//! entries, [`times`] the times of one action, and [`remove_before`] removes old entries.

use std::net::IpAddr;

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{AuditId, OrganizationId, RequestId, UserId};
use kernel::random::Random;

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
    /// The trail of an operator at the command line.
    pub fn operator() -> Self {
        Self { actor: "operator".to_owned(), address: None, request_id: None }
    }

    /// The trail of the service itself, without a request.
    pub fn system() -> Self {
        Self { actor: "system".to_owned(), address: None, request_id: None }
    }

    /// The trail of the same request, now by a known person.
    #[must_use]
    pub fn by(&self, user_id: UserId) -> Self {
        Self { actor: user_id.to_string(), ..self.clone() }
    }
}

/// An action in the audit trail. Its word never changes once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An account was registered.
    UserRegistered,
    /// An address was verified.
    EmailVerified,
    /// A session was started by a login.
    SessionStarted,
    /// A login was refused.
    SessionRefused,
    /// A session ended, by a logout or because there were too many.
    SessionEnded,
    /// The owner changed the password.
    PasswordChanged,
    /// A password was set by a mailed link.
    PasswordReset,
    /// An organization was created.
    OrganizationCreated,
    /// An organization was changed.
    OrganizationChanged,
    /// An organization was deleted with everything in it.
    OrganizationDeleted,
    /// An invitation into an organization was sent.
    MemberInvited,
    /// An invitation was accepted.
    InvitationAccepted,
    /// A member's role in an organization was changed.
    MemberRoleChanged,
    /// A member left an organization or was removed.
    MemberRemoved,
    /// A person was added to an organization without an invitation.
    MemberAdded,
    /// A project was created.
    ProjectCreated,
    /// A project was changed.
    ProjectChanged,
    /// A project was deleted with its keys.
    ProjectDeleted,
    /// A person was added to a project.
    ProjectMemberAdded,
    /// A member's role in a project was changed.
    ProjectMemberRoleChanged,
    /// A member left a project or was removed.
    ProjectMemberRemoved,
    /// An API key was created.
    ApiKeyCreated,
    /// An API key was changed.
    ApiKeyChanged,
    /// An API key got a new secret.
    ApiKeyRotated,
    /// An API key was deleted.
    ApiKeyDeleted,
    /// The first signing key was created.
    SigningKeyCreated,
    /// A signing key was replaced by a new one.
    SigningKeyRotated,
    /// All older signing keys were revoked, and a new one was created.
    SigningKeysRevoked,
    /// An operator ended the sessions of one user or of all users.
    SessionsEnded,
    /// Secrets were resealed with a new master key.
    MasterKeyRotated,
    /// An operator ordered every server to read its catalog file again.
    CatalogReloadOrdered,
    /// An operator accepted the clock as right.
    ClockAccepted,
    /// An organization's credit limit was changed.
    CreditLimitSet,
    /// A credit was added to a wallet.
    CreditAdded,
    /// The rest of a credit expired.
    CreditExpired,
    /// An invoice was created at the close of a month.
    InvoiceCreated,
    /// An invoice was paid in full.
    InvoicePaid,
    /// An invoice was voided.
    InvoiceVoided,
    /// The rest of an invoice was written off.
    InvoiceGivenUp,
    /// A correction created a credit note for an invoice.
    CreditNoteCreated,
    /// An operator took back the rest of a credit, or a part of it.
    CreditTakenBack,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 41] = [
        Self::UserRegistered,
        Self::EmailVerified,
        Self::SessionStarted,
        Self::SessionRefused,
        Self::SessionEnded,
        Self::PasswordChanged,
        Self::PasswordReset,
        Self::OrganizationCreated,
        Self::OrganizationChanged,
        Self::OrganizationDeleted,
        Self::MemberInvited,
        Self::InvitationAccepted,
        Self::MemberRoleChanged,
        Self::MemberRemoved,
        Self::MemberAdded,
        Self::ProjectCreated,
        Self::ProjectChanged,
        Self::ProjectDeleted,
        Self::ProjectMemberAdded,
        Self::ProjectMemberRoleChanged,
        Self::ProjectMemberRemoved,
        Self::ApiKeyCreated,
        Self::ApiKeyChanged,
        Self::ApiKeyRotated,
        Self::ApiKeyDeleted,
        Self::SigningKeyCreated,
        Self::SigningKeyRotated,
        Self::SigningKeysRevoked,
        Self::SessionsEnded,
        Self::MasterKeyRotated,
        Self::CatalogReloadOrdered,
        Self::ClockAccepted,
        Self::CreditLimitSet,
        Self::CreditAdded,
        Self::CreditExpired,
        Self::InvoiceCreated,
        Self::InvoicePaid,
        Self::InvoiceVoided,
        Self::InvoiceGivenUp,
        Self::CreditNoteCreated,
        Self::CreditTakenBack,
    ];

    /// Returns the word in the trail.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserRegistered => "user.registered",
            Self::EmailVerified => "user.email_verified",
            Self::SessionStarted => "session.started",
            Self::SessionRefused => "session.refused",
            Self::SessionEnded => "session.ended",
            Self::PasswordChanged => "user.password_changed",
            Self::PasswordReset => "user.password_reset",
            Self::OrganizationCreated => "organization.created",
            Self::OrganizationChanged => "organization.changed",
            Self::OrganizationDeleted => "organization.deleted",
            Self::MemberInvited => "invitation.created",
            Self::InvitationAccepted => "invitation.accepted",
            Self::MemberRoleChanged => "organization_member.role_changed",
            Self::MemberRemoved => "organization_member.removed",
            Self::MemberAdded => "organization_member.added",
            Self::ProjectCreated => "project.created",
            Self::ProjectChanged => "project.changed",
            Self::ProjectDeleted => "project.deleted",
            Self::ProjectMemberAdded => "project_member.added",
            Self::ProjectMemberRoleChanged => "project_member.role_changed",
            Self::ProjectMemberRemoved => "project_member.removed",
            Self::ApiKeyCreated => "api_key.created",
            Self::ApiKeyChanged => "api_key.changed",
            Self::ApiKeyRotated => "api_key.rotated",
            Self::ApiKeyDeleted => "api_key.deleted",
            Self::SigningKeyCreated => "signing_key.created",
            Self::SigningKeyRotated => "signing_key.rotated",
            Self::SigningKeysRevoked => "signing_key.revoked",
            Self::SessionsEnded => "sessions.ended",
            Self::MasterKeyRotated => "master_key.rotated",
            Self::CatalogReloadOrdered => "catalog.reload_ordered",
            Self::ClockAccepted => "clock.accepted",
            Self::CreditLimitSet => "organization.credit_limit_set",
            Self::CreditAdded => "credit.added",
            Self::CreditExpired => "credit.expired",
            Self::InvoiceCreated => "invoice.created",
            Self::InvoicePaid => "invoice.paid",
            Self::InvoiceVoided => "invoice.voided",
            Self::InvoiceGivenUp => "invoice.given_up",
            Self::CreditNoteCreated => "credit_note.created",
            Self::CreditTakenBack => "credit.taken_back",
        }
    }
}

/// The subject of an entry.
#[derive(Clone, Debug)]
pub struct Event {
    pub action: Action,
    /// The id of the object.
    pub target: String,
    /// The organization, if there is one.
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

/// Adds an entry with further facts in a small JSON object; null for none.
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
    .bind(event.action.as_str())
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

/// Returns the times between `since` and `until` at which this action was done to the target, newest first,
/// at most `limit`.
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
        .bind(action.as_str())
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

/// Removes up to `limit` entries from before `time`; returns how many. The database refuses to remove those
/// of the last 90 days.
pub async fn remove_before(tx: &mut Tx, time: Time, limit: i64) -> Result<u64, db::Error> {
    sql(REMOVE_BEFORE).bind(time).bind(limit).execute(tx).await
}

/// The statement of [`remove_before`].
pub const REMOVE_BEFORE: &str = "DELETE FROM audit_log WHERE id IN
     (SELECT id FROM audit_log WHERE happened_at < $1 ORDER BY happened_at LIMIT $2)";

/// The filter of a list of entries; an empty text matches all.
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
    /// The most entries.
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
