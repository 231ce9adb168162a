//! Members of organizations, and their roles.

use crate::access::LockedTx;
use crate::roles::{OrganizationRole, ProjectRole};
use crate::store::members;
use db::{Tx, contains_pattern, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, ProjectId, UserId};

pub use crate::store::members::{audience, insert, list, set_role};

/// A member of an organization.
pub type Member = members::Member<OrganizationId>;
/// The filter of a list of an organization's members.
pub type Filter = members::Filter<OrganizationId>;

/// Returns a user's role in an organization. The outer `None` means that the organization doesn't exist, and
/// the inner `None` means that the user has no role in it.
#[allow(
    clippy::option_option,
    reason = "unknown, without a role and with one are three answers: 404, 403, and yes"
)]
pub async fn role(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<Option<OrganizationRole>>, db::Error> {
    let row: Option<(Option<OrganizationRole>,)> = sql("SELECT m.role AS role FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(user_id)
    .optional(tx)
    .await?;
    Ok(row.map(|(role,)| role))
}

/// The roles of a caller and a member in an organization.
pub struct RolePair {
    pub caller: Option<OrganizationRole>,
    pub member: Option<OrganizationRole>,
}

db::row!(RolePair { caller: "one", member: "other" });

/// Returns the roles of a caller and a member; `None` if the organization doesn't exist. Without a
/// `member_id`, the member has no role.
pub async fn roles(
    tx: &mut Tx,
    organization_id: OrganizationId,
    caller_id: UserId,
    member_id: Option<UserId>,
) -> Result<Option<RolePair>, db::Error> {
    sql("SELECT m.role AS one, n.role AS other FROM organizations o
         LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $2
         LEFT JOIN organization_members n ON n.organization_id = o.id AND n.user_id = $3
         WHERE o.id = $1")
    .bind(organization_id)
    .bind(caller_id)
    .bind(member_id)
    .optional(tx)
    .await
}

/// A member, and the role of a caller who manages the member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberAndCaller {
    pub caller_role: Option<OrganizationRole>,
    /// The member; `None` if the user isn't a member.
    pub member: Option<Member>,
    /// `true` if the organization has an owner other than the member.
    pub has_other_owner: bool,
}

db::row!(MemberAndCaller { caller_role, member: Member::optional, has_other_owner });

/// Returns a member and the caller's role; `None` if the organization doesn't exist. The result is reliable
/// only under the organization's lock.
pub async fn member_and_caller(
    tx: &mut Tx,
    organization_id: OrganizationId,
    caller_id: UserId,
    member_id: UserId,
) -> Result<Option<MemberAndCaller>, db::Error> {
    sql(MEMBER_AND_CALLER).bind(organization_id).bind(caller_id).bind(member_id).optional(tx).await
}

/// The statement of [`member_and_caller`].
pub const MEMBER_AND_CALLER: &str =
    "SELECT c.role AS caller_role, m.user_id, u.email, u.email_folded, u.username, m.role, m.joined_at, m.updated_at,
            CASE WHEN EXISTS (SELECT 1 FROM organization_members x
                              WHERE x.organization_id = o.id AND x.role = 'owner' AND x.user_id <> $3)
                 THEN 1 ELSE 0 END AS has_other_owner
     FROM organizations o
     LEFT JOIN organization_members c ON c.organization_id = o.id AND c.user_id = $2
     LEFT JOIN organization_members m ON m.organization_id = o.id AND m.user_id = $3
     LEFT JOIN users u ON u.id = m.user_id
     WHERE o.id = $1";

/// A membership, for an e-mail to the member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The organization's name.
    pub organization: String,
    pub role: OrganizationRole,
    /// The number of other members.
    pub others: i64,
}

db::row!(Membership { organization, role, others });

/// A membership, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MembershipOf {
    pub organization_id: OrganizationId,
    pub organization: String,
    pub role: OrganizationRole,
}

db::row!(MembershipOf { organization_id, organization, role });

/// Returns the name of an organization with the address of each owner and admin whose address is verified and
/// whose account isn't disabled. These roles can view billing.
pub async fn viewers_of_billing(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Vec<(String, String)>, db::Error> {
    sql("SELECT o.name, u.email FROM organization_members m JOIN organizations o ON o.id = m.organization_id
         JOIN users u ON u.id = m.user_id
         WHERE m.organization_id = $1 AND m.role IN ('owner', 'admin') AND u.email_verified_at IS NOT NULL
             AND u.disabled_at IS NULL
         ORDER BY u.email_folded")
    .bind(organization_id)
    .all(tx)
    .await
}

/// Returns at most `limit` memberships of a user, sorted by the organization's name.
pub async fn memberships(tx: &mut Tx, user_id: UserId, limit: i64) -> Result<Vec<MembershipOf>, db::Error> {
    sql(MEMBERSHIPS).bind(user_id).bind(limit).all(tx).await
}

/// The statement of [`memberships`].
pub const MEMBERSHIPS: &str = "SELECT o.id AS organization_id, o.name AS organization, m.role AS role
     FROM organization_members m JOIN organizations o ON o.id = m.organization_id WHERE m.user_id = $1
     ORDER BY o.name_folded, o.id LIMIT $2";

/// Returns the name of an organization with the address of each owner whose address is verified and whose
/// account isn't disabled.
pub async fn owners(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Vec<(String, String)>, db::Error> {
    sql(OWNERS).bind(organization_id).all(tx).await
}

/// The statement of [`owners`].
pub const OWNERS: &str =
    "SELECT o.name, u.email FROM organization_members m JOIN organizations o ON o.id = m.organization_id
     JOIN users u ON u.id = m.user_id
     WHERE m.organization_id = $1 AND m.role = 'owner' AND u.email_verified_at IS NOT NULL AND u.disabled_at IS NULL
     ORDER BY u.email_folded";

/// Returns at most `limit` memberships of a user, highest role first.
pub async fn memberships_of(tx: &mut Tx, user_id: UserId, limit: i64) -> Result<Vec<Membership>, db::Error> {
    sql("SELECT o.name AS organization, m.role AS role, o.members_count - 1 AS others
         FROM organization_members m JOIN organizations o ON o.id = m.organization_id WHERE m.user_id = $1
         ORDER BY CASE m.role WHEN 'owner' THEN 0 WHEN 'admin' THEN 1 ELSE 2 END, o.created_at, o.id LIMIT $2")
    .bind(user_id)
    .bind(limit)
    .all(tx)
    .await
}

/// A project that a member of the organization belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberProject {
    pub id: ProjectId,
    pub name: String,
    pub role: ProjectRole,
}

db::row!(MemberProject { id, name, role });

/// Returns at most `limit` projects of the organization that a user belongs to, sorted by name.
pub async fn projects(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    limit: i64,
) -> Result<Vec<MemberProject>, db::Error> {
    sql(PROJECTS).bind(organization_id).bind(user_id).bind(limit).all(tx).await
}

/// The statement of [`projects`]. It reads the user's memberships first.
pub const PROJECTS: &str = "SELECT p.id, p.name, m.role FROM project_members m CROSS JOIN projects p
     WHERE m.user_id = $2 AND p.id = m.project_id AND p.organization_id = $1
     ORDER BY p.name_folded, p.id LIMIT $3";

/// A member of the organization who can be added to one of its projects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub user_id: UserId,
    pub email: String,
    pub username: String,
}

db::row!(Candidate { user_id, email, username });

/// Returns at most `limit` members of the organization who aren't members of the project, newest first. Their
/// folded address or username contains `search_folded`.
pub async fn candidates(
    tx: &mut Tx,
    (organization_id, project_id): (OrganizationId, ProjectId),
    search_folded: &str,
    limit: i64,
) -> Result<Vec<Candidate>, db::Error> {
    let statement = sql(CANDIDATES).bind(organization_id).bind(project_id);
    statement.bind(contains_pattern(search_folded)).bind(limit).heavy().all(tx).await
}

/// The statement of [`candidates`]. `CROSS JOIN` makes SQLite join the tables in this order.
pub const CANDIDATES: &str =
    "SELECT u.id AS user_id, u.email, u.username FROM organization_members m CROSS JOIN users u
     WHERE m.organization_id = $1 AND u.id = m.user_id
       AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')
       AND NOT EXISTS (SELECT 1 FROM project_members p WHERE p.project_id = $2 AND p.user_id = m.user_id)
     ORDER BY m.joined_at DESC, m.user_id LIMIT $4";

/// Returns `true` if a member has this address.
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

/// Removes a user from the organization and all its projects, and notifies every replica. Must be the last
/// statement of its transaction.
pub async fn remove(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    sql(LEAVE_PROJECTS).bind(organization_id).bind(user_id).defer(tx).await?;
    members::remove(tx, organization_id, user_id, now).await
}

/// The first statement of [`remove`]. It reads the user's memberships first, because the organization may
/// have many projects that the user doesn't belong to.
pub const LEAVE_PROJECTS: &str = "DELETE FROM project_members WHERE user_id = $2
     AND EXISTS (SELECT 1 FROM projects p WHERE p.id = project_members.project_id AND p.organization_id = $1)";
