//! Invitations into organizations. One is open until it has ended; whether its time is over is asked of the clock.

use crate::access::HeldTx;
use crate::roles::OrganizationRole;
use crate::store::organization_members::Member;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{InvitationId, OrganizationId, UserId};
use mail::templates::InvitationLetter;

/// What an invitation writes.
pub struct NewInvitation<'a> {
    /// Primary key.
    pub id: InvitationId,
    /// Into which organization.
    pub organization_id: OrganizationId,
    /// Whom, as given.
    pub email: &'a str,
    /// The form in which addresses are compared.
    pub email_folded: &'a str,
    /// As what.
    pub role: OrganizationRole,
    /// A few words to the guest.
    pub message: Option<&'a str>,
    /// Who invites.
    pub invited_by: UserId,
    /// How long it holds.
    pub expires_at: Time,
}

/// Adds an invitation.
///
/// # Errors
/// `Unique` with `OpenInvitation`.
pub async fn insert(tx: &mut HeldTx<'_>, new: &NewInvitation<'_>, now: Time) -> Result<(), db::Error> {
    sql("INSERT INTO invitations (id, organization_id, email, email_folded, role, message, invited_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    .bind(new.id)
    .bind(new.organization_id)
    .bind(new.email)
    .bind(new.email_folded)
    .bind(new.role.as_str())
    .bind(new.message)
    .bind(new.invited_by)
    .bind(now)
    .bind(new.expires_at)
    .defer(tx)
    .await
}

/// How many are open. Only under the organization's lock does the answer last.
pub async fn open_count(tx: &mut Tx, organization_id: OrganizationId, now: Time) -> Result<i64, db::Error> {
    let (count,): (i64,) = sql(OPEN_COUNT).bind(organization_id).bind(now).one(tx).await?;
    Ok(count)
}

/// The statement of [`open_count`].
pub const OPEN_COUNT: &str = "SELECT COUNT(*) FROM invitations /*+ INDEXED BY invitations_open_until */
     WHERE organization_id = $1 AND ended_at IS NULL AND expires_at > $2";

/// Ends the one for this address whose time is over, so that another can take its place.
pub async fn end_expired(
    tx: &mut HeldTx<'_>,
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

/// Ends those of a role that somebody has sent.
pub async fn end_sent(
    tx: &mut HeldTx<'_>,
    organization_id: OrganizationId,
    invited_by: UserId,
    role: OrganizationRole,
    now: Time,
) -> Result<(), db::Error> {
    sql(END_SENT).bind(organization_id).bind(invited_by).bind(role.as_str()).bind(now).defer(tx).await
}

/// The statement of [`end_sent`].
pub const END_SENT: &str = "UPDATE invitations SET ended_at = $4
     WHERE organization_id = $1 AND invited_by = $2 AND role = $3 AND ended_at IS NULL";

/// Ends all that a member has sent, and one that is still open for their own address: who is removed doesn't come back
/// by it.
pub async fn end_with_member(
    tx: &mut HeldTx<'_>,
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

/// The statement of [`end_with_member`]: by two indexes, however many are open.
pub const END_WITH_MEMBER: &str = "UPDATE invitations SET ended_at = $4 WHERE ended_at IS NULL AND id IN
     (SELECT id FROM invitations WHERE organization_id = $1 AND invited_by = $2 AND ended_at IS NULL
      UNION ALL
      SELECT id FROM invitations WHERE organization_id = $1 AND email_folded = $3 AND ended_at IS NULL)";

/// Ends all that a person has sent, into whatever organization.
pub async fn end_all_sent(tx: &mut Tx, invited_by: UserId, now: Time) -> Result<(), db::Error> {
    sql("UPDATE invitations SET ended_at = $2 WHERE invited_by = $1 AND ended_at IS NULL")
        .bind(invited_by)
        .bind(now)
        .defer(tx)
        .await
}

/// Ends one that is open; `accepted_by`: whose membership it was good for.
pub async fn end(
    tx: &mut HeldTx<'_>,
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

/// Gives the link of an open invitation its token, in place of an older one, and says what to write; `None` when it is
/// not open any more.
pub async fn give_token(
    tx: &mut Tx,
    id: InvitationId,
    token_hash: [u8; 32],
    now: Time,
) -> Result<Option<InvitationLetter>, db::Error> {
    let changed =
        sql("UPDATE invitations SET token_hash = $2 WHERE id = $1 AND ended_at IS NULL AND expires_at > $3")
            .bind(id)
            .bind(token_hash)
            .bind(now)
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
    Ok(letter.map(|(organization, role, invited_by, message)| InvitationLetter {
        organization,
        role,
        invited_by,
        message,
    }))
}

/// An open invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// Primary key.
    pub id: InvitationId,
    /// Into which organization.
    pub organization_id: OrganizationId,
    /// Its name.
    pub organization: String,
    /// Whom, as given.
    pub email: String,
    /// The form in which addresses are compared.
    pub email_folded: String,
}

impl FromRow for Open {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            organization_id: row.get("organization_id")?,
            organization: row.get("organization")?,
            email: row.get("email")?,
            email_folded: row.get("email_folded")?,
        })
    }
}

/// The one whose link has this token.
pub async fn by_token(tx: &mut Tx, token_hash: [u8; 32], now: Time) -> Result<Option<Open>, db::Error> {
    sql("SELECT i.id, i.organization_id, o.name AS organization, i.email, i.email_folded
         FROM invitations i JOIN organizations o ON o.id = i.organization_id
         WHERE i.token_hash = $1 AND i.ended_at IS NULL AND i.expires_at > $2")
    .bind(token_hash)
    .bind(now)
    .optional(tx)
    .await
}

/// What every login asks: the open invitations for an address.
pub const OPEN_FOR: &str = "SELECT i.id, i.organization_id, o.name AS organization, i.email, i.email_folded
     FROM invitations i JOIN organizations o ON o.id = i.organization_id
     WHERE i.email_folded = $1 AND i.ended_at IS NULL AND i.expires_at > $2 ORDER BY i.organization_id";

/// Those for an address, by organization: who takes several locks takes them in one order.
pub async fn open_for(tx: &mut Tx, email_folded: &str, now: Time) -> Result<Vec<Open>, db::Error> {
    sql(OPEN_FOR).bind(email_folded).bind(now).all(tx).await
}

/// The roles that decide about an open invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What it offers.
    pub offered: OrganizationRole,
    /// What its sender is now.
    pub sender: Option<OrganizationRole>,
    /// What the guest is already.
    pub guest: Option<OrganizationRole>,
}

impl FromRow for Standing {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let role = |column| row.get::<Option<String>>(column);
        let parsed = |word: Option<String>| word.as_deref().and_then(OrganizationRole::parse);
        Ok(Self {
            offered: parsed(role("offered")?).ok_or_else(|| db::Error::Internal("role".into()))?,
            sender: parsed(role("sender")?),
            guest: parsed(role("guest")?),
        })
    }
}

/// Where an invitation stands for this person; `None` when it is not open any more.
pub async fn standing(
    tx: &mut Tx,
    id: InvitationId,
    guest: UserId,
    now: Time,
) -> Result<Option<Standing>, db::Error> {
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
