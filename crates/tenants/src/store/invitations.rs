//! Invitations to organizations. An invitation is open until `ended_at` is set or it expires. An invitation
//! that has ended without being accepted isn't listed or found anymore.

pub mod listing;

use std::sync::LazyLock;

use crate::access::LockedTx;
use crate::roles::OrganizationRole;
use crate::rules::invitations::InvitationStatus;
use crate::store::organization_members::Member;
use db::{Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{InvitationId, OrganizationId, UserId};
use mail::store::outbox::About;

/// The values of a new invitation.
pub struct NewInvitation<'a> {
    pub id: InvitationId,
    pub organization_id: OrganizationId,
    /// The guest's address, as entered.
    pub email: &'a str,
    /// The folded address, for comparisons.
    pub email_folded: &'a str,
    pub role: OrganizationRole,
    /// A message to the guest.
    pub message: Option<&'a str>,
    pub invited_by: UserId,
    pub expires_at: Time,
}

/// Adds an invitation.
///
/// # Errors
/// `Unique` with `OpenInvitation` if the address has an open invitation.
pub async fn insert(tx: &mut LockedTx<'_>, new: &NewInvitation<'_>, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO invitations (id, organization_id, email, email_folded, role, message, invited_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(new.id)
    .bind(new.organization_id)
    .bind(new.email)
    .bind(new.email_folded)
    .bind(new.role)
    .bind(new.message)
    .bind(new.invited_by)
    .bind(now)
    .bind(new.expires_at)
    .defer(tx)
    .await
}

/// Returns the number of an organization's open invitations. The result is reliable only under the
/// organization's lock.
pub async fn count_open(tx: &mut Tx, organization_id: OrganizationId, now: Time) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(OPEN_COUNT).bind(organization_id).bind(now).one(tx).await?;
    Ok(count)
}

/// The statement of [`count_open`].
pub const OPEN_COUNT: &str = "SELECT COUNT(*) FROM invitations /*+ INDEXED BY invitations_open_until */
     WHERE organization_id = $1 AND ended_at IS NULL AND expires_at > $2";

/// Ends the expired invitation for this address, so that another one can be added.
pub async fn end_expired(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    email_folded: &str,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE invitations SET ended_at = $3
         WHERE organization_id = $1 AND email_folded = $2 AND ended_at IS NULL AND expires_at <= $3")
    .bind(organization_id)
    .bind(email_folded)
    .bind(now)
    .defer(tx)
    .await
}

/// Ends the open invitations with this role that a user has sent.
pub async fn end_sent(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    invited_by: UserId,
    role: OrganizationRole,
    now: Time,
) -> Result<(), db::Error> {
    sql(END_SENT).bind(organization_id).bind(invited_by).bind(role).bind(now).defer(tx).await
}

/// The statement of [`end_sent`].
pub const END_SENT: &str = "UPDATE invitations SET ended_at = $4
     WHERE organization_id = $1 AND invited_by = $2 AND role = $3 AND ended_at IS NULL";

/// Ends all invitations that a member has sent, and an open invitation for their own address, so that a
/// removed member can't use it to return.
pub async fn end_with_member(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    member: &Member,
    now: Time,
) -> Result<(), db::Error> {
    sql(END_WITH_MEMBER)
        .bind(organization_id)
        .bind(member.user_id)
        .bind(member.email_folded.as_str())
        .bind(now)
        .defer(tx)
        .await
}

/// The statement of [`end_with_member`]. It uses two indexes, so it doesn't read all open invitations.
pub const END_WITH_MEMBER: &str = "UPDATE invitations SET ended_at = $4 WHERE ended_at IS NULL AND id IN
     (SELECT id FROM invitations WHERE organization_id = $1 AND invited_by = $2 AND ended_at IS NULL
      UNION ALL
      SELECT id FROM invitations WHERE organization_id = $1 AND email_folded = $3 AND ended_at IS NULL)";

/// Ends all invitations that a user has sent, in all organizations.
pub async fn end_all_sent(tx: &mut Tx, invited_by: UserId, now: Time) -> Result<(), db::Error> {
    sql("UPDATE invitations SET ended_at = $2 WHERE invited_by = $1 AND ended_at IS NULL")
        .bind(invited_by)
        .bind(now)
        .defer(tx)
        .await
}

/// Ends an open invitation. `accepted_by` is the user who has accepted it, if any.
pub async fn end(
    tx: &mut LockedTx<'_>,
    id: InvitationId,
    accepted_by: Option<UserId>,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE invitations SET ended_at = $3, accepted_by = $2 WHERE id = $1 AND ended_at IS NULL")
        .bind(id)
        .bind(accepted_by)
        .bind(now)
        .defer(tx)
        .await
}

/// Sets the expiry of an invitation that hasn't ended, and invalidates its link. The next e-mail contains a
/// new link.
pub async fn renew(tx: &mut LockedTx<'_>, id: InvitationId, expires_at: Time) -> Result<(), db::Error> {
    sql("UPDATE invitations SET expires_at = $2, token_hash = NULL WHERE id = $1 AND ended_at IS NULL")
        .bind(id)
        .bind(expires_at)
        .defer(tx)
        .await
}

/// Stores the token of an open invitation's link, in place of an earlier one, and returns the contents of the
/// e-mail. Returns `None` if the invitation is no longer open, or if it expires later than `expires_at`,
/// because it was sent again with a later e-mail.
pub async fn set_token(
    tx: &mut Tx,
    id: InvitationId,
    token_hash: [u8; 32],
    expires_at: Time,
    now: Time,
) -> Result<Option<About>, db::Error> {
    let changed = sql("UPDATE invitations SET token_hash = $2
         WHERE id = $1 AND ended_at IS NULL AND expires_at > $3 AND expires_at <= $4")
    .bind(id)
    .bind(token_hash)
    .bind(now)
    .bind(expires_at)
    .execute(tx)
    .await?;
    if changed == 0 {
        return Ok(None);
    }
    let letter =
        sql("SELECT o.name AS organization, i.role, u.username AS invited_by, i.message FROM invitations i
         JOIN organizations o ON o.id = i.organization_id JOIN users u ON u.id = i.invited_by
         WHERE i.id = $1")
        .bind(id)
        .optional(tx)
        .await?;
    Ok(letter.map(|(organization, role, by, message)| About {
        organization: Some(organization),
        role: Some(role),
        by: Some(by),
        message,
        ..About::default()
    }))
}

/// The status of the invitation `i` at the time `$2`.
const STATUS: &str = "CASE WHEN i.accepted_by IS NOT NULL THEN 'accepted'
     WHEN i.expires_at > $2 THEN 'pending' ELSE 'expired' END";

/// The condition that the invitation `i` was neither withdrawn nor replaced.
const IS_FOUND: &str = "(i.ended_at IS NULL OR i.accepted_by IS NOT NULL)";

/// An invitation that is withdrawn or sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundInvitation {
    pub id: InvitationId,
    /// The guest's address, as entered.
    pub email: String,
    /// The folded address, for comparisons.
    pub email_folded: String,
    pub role: OrganizationRole,
    pub status: InvitationStatus,
    pub expires_at: Time,
}

db::row!(FoundInvitation { id, email, email_folded, role, status, expires_at });

impl FoundInvitation {
    /// Reads the invitation of an outer join; `None` if its columns are null.
    fn optional(row: &Row) -> Result<Option<Self>, db::Error> {
        let id: Option<InvitationId> = row.get("id")?;
        id.map(|_| db::FromRow::from_row(row)).transpose()
    }
}

/// An invitation, and the role of a caller who acts on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvitationAndCaller {
    pub caller_role: Option<OrganizationRole>,
    /// The invitation; `None` if the organization has no such invitation.
    pub invitation: Option<FoundInvitation>,
}

db::row!(InvitationAndCaller { caller_role, invitation: FoundInvitation::optional });

static INVITATION_AND_CALLER: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT m.role AS caller_role, i.id, i.email, i.email_folded, i.role, {STATUS} AS status, i.expires_at
         FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $3
         LEFT JOIN invitations i ON i.id = $4 AND i.organization_id = o.id AND {IS_FOUND}
         WHERE o.id = $1"
    )
});

/// Returns an invitation and the caller's role in the organization; `None` if the organization doesn't exist.
pub async fn invitation_and_caller(
    tx: &mut Tx,
    organization_id: OrganizationId,
    invitation_id: Option<InvitationId>,
    caller_id: UserId,
    now: Time,
) -> Result<Option<InvitationAndCaller>, db::Error> {
    let statement = sql(INVITATION_AND_CALLER.as_str()).bind(organization_id).bind(now);
    statement.bind(caller_id).bind(invitation_id).optional(tx).await
}

/// An open invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenInvitation {
    pub id: InvitationId,
    pub organization_id: OrganizationId,
    /// The organization's name.
    pub organization: String,
    /// The guest's address, as entered.
    pub email: String,
    /// The folded address, for comparisons.
    pub email_folded: String,
}

db::row!(OpenInvitation { id, organization_id, organization, email, email_folded });

/// Returns the open invitation whose link has this token.
pub async fn by_token(
    tx: &mut Tx,
    token_hash: [u8; 32],
    now: Time,
) -> Result<Option<OpenInvitation>, db::Error> {
    sql("SELECT i.id, i.organization_id, o.name AS organization, i.email, i.email_folded
         FROM invitations i JOIN organizations o ON o.id = i.organization_id
         WHERE i.token_hash = $1 AND i.ended_at IS NULL AND i.expires_at > $2")
    .bind(token_hash)
    .bind(now)
    .optional(tx)
    .await
}

/// The statement of [`open_for_address`], which runs at every login.
pub const OPEN_FOR_ADDRESS: &str =
    "SELECT i.id, i.organization_id, o.name AS organization, i.email, i.email_folded
     FROM invitations i JOIN organizations o ON o.id = i.organization_id
     WHERE i.email_folded = $1 AND i.ended_at IS NULL AND i.expires_at > $2 ORDER BY i.organization_id";

/// Returns the open invitations for an address. They are ordered by organization, because organizations must
/// be locked in this order.
pub async fn open_for_address(
    tx: &mut Tx,
    email_folded: &str,
    now: Time,
) -> Result<Vec<OpenInvitation>, db::Error> {
    sql(OPEN_FOR_ADDRESS).bind(email_folded).bind(now).all(tx).await
}

/// The roles that decide the outcome of an open invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvitationRoles {
    /// The role that the invitation offers.
    pub offered: OrganizationRole,
    /// The sender's current role.
    pub sender: Option<OrganizationRole>,
    /// The guest's current role.
    pub guest: Option<OrganizationRole>,
}

db::row!(InvitationRoles { offered, sender, guest });

/// Returns the roles that decide the outcome of an invitation for this guest; `None` if the invitation is no
/// longer open.
pub async fn roles(
    tx: &mut Tx,
    id: InvitationId,
    guest: UserId,
    now: Time,
) -> Result<Option<InvitationRoles>, db::Error> {
    sql("SELECT i.role AS offered, s.role AS sender, g.role AS guest FROM invitations i
         LEFT JOIN organization_members s ON s.organization_id = i.organization_id AND s.user_id = i.invited_by
         LEFT JOIN organization_members g ON g.organization_id = i.organization_id AND g.user_id = $2
         WHERE i.id = $1 AND i.ended_at IS NULL AND i.expires_at > $3")
    .bind(id)
    .bind(guest)
    .bind(now)
    .optional(tx)
    .await
}
