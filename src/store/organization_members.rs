//! Who belongs to which organization, and as what.

use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{OrganizationId, UserId};
use crate::roles::OrganizationRole;

struct Standing {
    role: Option<OrganizationRole>,
}

impl FromRow for Standing {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: Option<String> = row.get("role")?;
        Ok(Self { role: word.as_deref().and_then(OrganizationRole::parse) })
    }
}

/// Somebody's role in an organization: outer `None` when there is no such organization, inner when they have none in it.
#[allow(
    clippy::option_option,
    reason = "unknown, without a role and with one are three answers: 404, 403, and yes"
)]
pub async fn role(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<Option<OrganizationRole>>, db::Error> {
    let standing: Option<Standing> = sql("SELECT m.role AS role FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(user_id)
    .optional(tx)
    .await?;
    Ok(standing.map(|standing| standing.role))
}

/// Adds a member.
pub async fn insert(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    role: OrganizationRole,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO organization_members (organization_id, user_id, role, joined_at, updated_at)
         VALUES ($1, $2, $3, $4, $4)")
    .bind(organization_id)
    .bind(user_id)
    .bind(role.as_str())
    .bind(now)
    .execute(tx)
    .await?;
    Ok(())
}
