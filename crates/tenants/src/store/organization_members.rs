//! Members of organizations: who belongs to which, and with what role.

use crate::access::HeldTx;
use crate::roles::OrganizationRole;
use crate::store::members;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, UserId};

pub use crate::store::members::{audience, insert, list, set_role};

/// A member of an organization.
pub type Member = members::Member<OrganizationId>;
/// Which members of an organization a list shows.
pub type Filter = members::Filter<OrganizationId>;

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

/// The roles of two people in an organization.
pub struct Roles {
    /// Of the first.
    pub one: Option<OrganizationRole>,
    /// Of the other.
    pub other: Option<OrganizationRole>,
}

impl FromRow for Roles {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (one, other): (Option<String>, Option<String>) = (row.get("one")?, row.get("other")?);
        let role = |word: Option<String>| word.as_deref().and_then(OrganizationRole::parse);
        Ok(Self { one: role(one), other: role(other) })
    }
}

/// The roles of two people, of the other none without an id; `None` when there is no such organization.
pub async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    one: UserId,
    other: Option<UserId>,
) -> Result<Option<Roles>, db::Error> {
    sql("SELECT m.role AS one, n.role AS other FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         LEFT JOIN organization_members n ON n.organization_id = o.id AND n.user_id = $3
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(one)
    .bind(other)
    .batched()
    .optional(tx)
    .await
}

/// A member, and who is about to do something to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoMembers {
    /// What the other one is here.
    pub caller_role: Option<OrganizationRole>,
    /// The member, if they are one.
    pub member: Option<Member>,
    /// Whether anybody but the member owns the organization.
    pub has_other_owner: bool,
}

impl FromRow for TwoMembers {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let caller_role: Option<String> = row.get("caller_role")?;
        Ok(Self {
            caller_role: caller_role.as_deref().and_then(OrganizationRole::parse),
            member: Member::optional(row)?,
            has_other_owner: row.get("has_other_owner")?,
        })
    }
}

/// How two people stand to each other in an organization; `None` when there is no such one. Only under its lock does the
/// answer last.
pub async fn two(
    tx: &mut Tx,
    organization_id: OrganizationId,
    caller_id: UserId,
    member_id: UserId,
) -> Result<Option<TwoMembers>, db::Error> {
    sql(TWO).bind(organization_id).bind(caller_id).bind(member_id).optional(tx).await
}

/// The statement of [`two`].
pub const TWO: &str =
    "SELECT c.role AS caller_role, m.user_id, u.email, u.email_folded, u.username, m.role, m.joined_at, m.updated_at,
            CASE WHEN EXISTS (SELECT 1 FROM organization_members x
                              WHERE x.organization_id = o.id AND x.role = 'owner' AND x.user_id <> $3)
                 THEN 1 ELSE 0 END AS has_other_owner
     FROM organizations o
     LEFT JOIN organization_members c ON c.organization_id = o.id AND c.user_id = $2
     LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $3
     LEFT JOIN users u ON u.id = m.user_id
     WHERE o.id = $1";

/// A membership as its owner is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The organization's name.
    pub organization: String,
    /// The role there.
    pub role: OrganizationRole,
    /// How many other members there are.
    pub others: i64,
}

impl FromRow for Membership {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: String = row.get("role")?;
        Ok(Self {
            organization: row.get("organization")?,
            role: OrganizationRole::parse(&word)
                .ok_or_else(|| db::Error::Internal(format!("role is {word:?}")))?,
            others: row.get("others")?,
        })
    }
}

/// A person's memberships, at most `most`: what they own first.
pub async fn of_person(tx: &mut Tx, user_id: UserId, most: i64) -> Result<Vec<Membership>, db::Error> {
    sql("SELECT o.name AS organization, m.role AS role, o.members_count - 1 AS others
         FROM organization_members m JOIN organizations o ON o.id = m.organization_id WHERE m.user_id = $1
         ORDER BY CASE m.role WHEN 'owner' THEN 0 WHEN 'admin' THEN 1 ELSE 2 END, o.created_at, o.id LIMIT $2")
    .bind(user_id)
    .bind(most)
    .all(tx)
    .await
}

/// Whether somebody with this address is a member.
pub async fn has_address(
    tx: &mut Tx,
    organization_id: OrganizationId,
    email_folded: &str,
) -> Result<bool, db::Error> {
    let member: Option<(UserId,)> = sql("SELECT m.user_id FROM users u
         JOIN organization_members m ON m.organization_id = $1 AND m.user_id = u.id
         WHERE u.email_folded = $2")
    .bind(organization_id)
    .bind(email_folded)
    .optional(tx)
    .await?;
    Ok(member.is_some())
}

/// Takes a person out of the organization and of all its projects. Replicas let go of what they hold of the person; the last
/// statement of its transaction.
pub async fn remove(
    tx: &mut HeldTx<'_>,
    organization_id: OrganizationId,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    sql(LEAVE_PROJECTS).bind(organization_id).bind(user_id).defer(tx).await?;
    members::remove(tx, organization_id, user_id, now).await
}

/// By the person's own memberships: the organization may have many projects that they aren't in.
pub const LEAVE_PROJECTS: &str = "DELETE FROM project_members WHERE user_id = $2
     AND EXISTS (SELECT 1 FROM projects p WHERE p.id = project_members.project_id AND p.organization_id = $1)";
