//! Who did what, on what, from where and when; in the same transaction as what was done.

use std::net::IpAddr;

use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{AuditId, OrganizationId, RequestId, UserId};
use kernel::random::Random;

/// The actor, address and request of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trail {
    /// A user's or a key's id, `anonymous`, `operator` for the command line, or `system` for the service itself.
    pub actor: String,
    /// The client's address, when it is known.
    pub address: Option<IpAddr>,
    /// The request.
    pub request_id: Option<RequestId>,
}

impl Trail {
    /// An operator at the command line.
    pub fn operator() -> Self {
        Self { actor: "operator".to_owned(), address: None, request_id: None }
    }

    /// The service by itself: no request asked for it.
    pub fn system() -> Self {
        Self { actor: "system".to_owned(), address: None, request_id: None }
    }

    /// The same request, by a person who has said who they are.
    #[must_use]
    pub fn by(&self, user_id: UserId) -> Self {
        Self { actor: user_id.to_string(), ..self.clone() }
    }
}

/// What was done. The word never changes once released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An account was made.
    UserRegistered,
    /// An address was verified.
    EmailVerified,
    /// A login.
    SessionStarted,
    /// A login that was refused.
    SessionRefused,
    /// A logout.
    SessionEnded,
    /// A new password by its owner.
    PasswordChanged,
    /// A new password by the link in a mail.
    PasswordReset,
    /// A new organization.
    OrganizationCreated,
    /// New values for an organization.
    OrganizationChanged,
    /// An organization and all that was in it is gone.
    OrganizationDeleted,
    /// Somebody was asked into an organization.
    MemberInvited,
    /// And came.
    InvitationAccepted,
    /// A new role in an organization.
    MemberRoleChanged,
    /// Somebody left an organization or was removed.
    MemberRemoved,
    /// Somebody came into an organization without an invitation.
    MemberAdded,
    /// A new project.
    ProjectCreated,
    /// New values for a project.
    ProjectChanged,
    /// A project and its keys are gone.
    ProjectDeleted,
    /// Somebody was added to a project.
    ProjectMemberAdded,
    /// A new role in a project.
    ProjectMemberRoleChanged,
    /// Somebody left a project or was removed.
    ProjectMemberRemoved,
    /// A new API key.
    ApiKeyCreated,
    /// New values for an API key.
    ApiKeyChanged,
    /// A new secret for an API key.
    ApiKeyRotated,
    /// An API key is gone.
    ApiKeyDeleted,
    /// The first signing key.
    SigningKeyCreated,
    /// A new signing key in place of another.
    SigningKeyRotated,
    /// A new signing key, and none of the older ones verifies any more.
    SigningKeysRevoked,
    /// Sessions were ended by an operator: a user's, or everybody's.
    SessionsEnded,
    /// Sealed secrets were sealed anew, under another master key.
    MasterKeyRotated,
    /// Every server was told to read its catalog file again.
    CatalogReloadOrdered,
    /// An operator took the clock for right, whatever was seen before.
    ClockAccepted,
    /// An organization may go further below zero, or less far.
    CreditLimitSet,
    /// Money came into a wallet.
    CreditAdded,
    /// What was left of a credit ran out.
    CreditExpired,
    /// A month was closed with an invoice.
    InvoiceCreated,
    /// Nothing is due of an invoice any more.
    InvoicePaid,
    /// An invoice was taken back.
    InvoiceVoided,
    /// An invoice was given up: nobody will pay the rest of it.
    InvoiceGivenUp,
    /// A correction took something back of an invoice.
    CreditNoteCreated,
    /// An operator took the rest of a credit, or a part of it, out of a wallet.
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

    /// The word in the trail.
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

/// What an entry is about.
#[derive(Clone, Debug)]
pub struct Event {
    /// What was done.
    pub action: Action,
    /// On what: an id.
    pub target: String,
    /// In which organization, where there is one.
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

/// Adds an entry with a small JSON object of what else is to be known; null: nothing.
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
    /// Primary key; sorts by time.
    pub id: AuditId,
    /// When.
    pub happened_at: Time,
    /// Who: a user, a key, `anonymous`, `operator` for the command line, or `system` for the service itself.
    pub actor: String,
    /// What.
    pub action: String,
    /// On what.
    pub target: String,
    /// In which organization.
    pub organization_id: Option<OrganizationId>,
    /// From where.
    pub address: Option<String>,
    /// In which request.
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

/// The times between `since` and `until` at which this was done to the target, the newest first, at most `most`.
pub async fn times(
    tx: &mut Tx,
    (action, target): (Action, &str),
    (since, until): (Time, Time),
    most: u32,
) -> Result<Vec<Time>, db::Error> {
    // Ids sort by time: those before `since` aren't even looked at.
    let rows: Vec<(Time,)> = sql(TIMES)
        .bind(target)
        .bind(AuditId::from_parts(since, 0))
        .bind(action.as_str())
        .bind(since)
        .bind(until)
        .bind(i64::from(most))
        .all(tx)
        .await?;
    Ok(rows.into_iter().map(|(time,)| time).collect())
}

/// The statement of [`times`].
pub const TIMES: &str = "SELECT happened_at FROM audit_log
     WHERE target = $1 AND id >= $2 AND action = $3 AND happened_at > $4 AND happened_at <= $5
     ORDER BY id DESC LIMIT $6";

/// The time of the newest entry; none without any.
pub async fn newest(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let (newest,): (Option<Time>,) = sql("SELECT MAX(happened_at) FROM audit_log").one(tx).await?;
    Ok(newest)
}

/// The time of the oldest entry; none without any.
pub async fn oldest(tx: &mut Tx) -> Result<Option<Time>, db::Error> {
    let (oldest,): (Option<Time>,) = sql(OLDEST).one(tx).await?;
    Ok(oldest)
}

/// The statement of [`oldest`].
pub const OLDEST: &str = "SELECT MIN(happened_at) FROM audit_log";

/// Removes up to `most` entries from before `then`; how many. The database refuses those of the last 90 days.
pub async fn remove_before(tx: &mut Tx, then: Time, most: i64) -> Result<u64, db::Error> {
    sql(REMOVE_BEFORE).bind(then).bind(most).execute(tx).await
}

/// The statement of [`remove_before`].
pub const REMOVE_BEFORE: &str = "DELETE FROM audit_log WHERE id IN
     (SELECT id FROM audit_log WHERE happened_at < $1 ORDER BY happened_at LIMIT $2)";

/// Which entries are wanted; an empty text means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// By whom.
    pub actor: String,
    /// What.
    pub action: String,
    /// On what.
    pub target: String,
    /// In which organization.
    pub organization_id: String,
    /// From then on.
    pub since: Option<Time>,
    /// Before then.
    pub until: Option<Time>,
    /// At most so many, the newest.
    pub limit: i64,
}

/// The newest entries that fit, newest first.
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
