//! Organizations: the tenants.

use crate::access::HeldTx;
use crate::roles::OrganizationRole;
use cluster::changes;
use cluster::changes::Change;
use db::{FromRow, Lock, Row, Tx, sql};
use db::{Page, contains_pattern};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, UserId};

/// A row of `organizations`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Organization {
    /// Primary key.
    pub id: OrganizationId,
    /// As given.
    pub name: String,
    /// As given.
    pub description: Option<String>,
    /// What new members become.
    pub default_role: OrganizationRole,
    /// Whether projects may be public.
    pub allow_public_projects: bool,
    /// Creation.
    pub created_at: Time,
    /// Last change.
    pub updated_at: Time,
}

impl FromRow for Organization {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            description: row.get("description")?,
            default_role: role(row, "default_role")?,
            allow_public_projects: row.get("allow_public_projects")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

fn role(row: &Row, column: &str) -> Result<OrganizationRole, db::Error> {
    let word: String = row.get(column)?;
    OrganizationRole::parse(&word).ok_or_else(|| db::Error::Internal(format!("{column} is {word:?}")))
}

/// What creation writes.
pub struct NewOrganization<'a> {
    /// The row.
    pub row: &'a Organization,
    /// The name's form for comparing, unique among those with the same creator.
    pub name_folded: &'a str,
    /// The creator.
    pub created_by: UserId,
}

/// Adds an organization on the plan `pay_as_you_go`. Its wallet comes in the same transaction.
///
/// # Errors
/// `Unique` with `OrganizationName`.
pub async fn insert(tx: &mut HeldTx<'_>, new: &NewOrganization<'_>) -> Result<(), db::Error> {
    let row = new.row;
    sql("INSERT INTO organizations (id, name, name_folded, description, default_role, allow_public_projects, plan,
                                    created_by, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'pay_as_you_go', $7, $8, $8)")
    .bind(row.id)
    .bind(row.name.as_str())
    .bind(new.name_folded)
    .bind(row.description.as_deref())
    .bind(row.default_role.as_str())
    .bind(row.allow_public_projects)
    .bind(new.created_by)
    .bind(row.created_at)
    .defer(tx)
    .await
}

/// A person who is about to make an organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Maker {
    /// Their address.
    pub email: String,
    /// Their name.
    pub username: String,
    /// Whether their address is verified.
    pub is_verified: bool,
    /// Whether an organization of theirs was given the first credit limit before, even if it is gone.
    pub had_credit: bool,
    /// Organizations that they have made and that still exist.
    pub organizations: i64,
}

impl FromRow for Maker {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (verified, granted): (Option<Time>, Option<Time>) =
            (row.get("email_verified_at")?, row.get("credit_granted_at")?);
        Ok(Self {
            email: row.get("email")?,
            username: row.get("username")?,
            is_verified: verified.is_some(),
            had_credit: granted.is_some(),
            organizations: row.get("organizations")?,
        })
    }
}

/// A person who is about to make an organization. Only under their account's lock does the answer last.
pub async fn maker(tx: &mut Tx, user_id: UserId) -> Result<Option<Maker>, db::Error> {
    sql(MAKER).bind(user_id).optional(tx).await
}

/// The statement of [`maker`].
pub const MAKER: &str = "SELECT u.email, u.username, u.email_verified_at, u.credit_granted_at,
            (SELECT COUNT(*) FROM organizations o WHERE o.created_by = u.id) AS organizations
     FROM users u WHERE u.id = $1";

/// The oldest organization that a person has made, as long as none of theirs was given credit.
pub async fn first_without_credit(tx: &mut Tx, user_id: UserId) -> Result<Option<OrganizationId>, db::Error> {
    let oldest: Option<(OrganizationId,)> = sql(FIRST_WITHOUT_CREDIT).bind(user_id).optional(tx).await?;
    Ok(oldest.map(|(id,)| id))
}

/// The statement of [`first_without_credit`].
pub const FIRST_WITHOUT_CREDIT: &str = "SELECT o.id FROM users u JOIN organizations o ON o.created_by = u.id
     WHERE u.id = $1 AND u.credit_granted_at IS NULL ORDER BY o.created_at, o.id LIMIT 1";

/// What a change writes.
pub struct Changes<'a> {
    /// The row as it will be.
    pub row: &'a Organization,
    /// The name's form for comparing, when it has changed.
    pub name_folded: Option<&'a str>,
}

/// Writes new values.
///
/// # Errors
/// `Unique` with `OrganizationName`.
pub async fn update(tx: &mut HeldTx<'_>, changes: &Changes<'_>) -> Result<(), db::Error> {
    let row = changes.row;
    sql("UPDATE organizations SET name = $2, name_folded = COALESCE($3, name_folded), description = $4,
                default_role = $5, allow_public_projects = $6, updated_at = $7
         WHERE id = $1")
    .bind(row.id)
    .bind(row.name.as_str())
    .bind(changes.name_folded)
    .bind(row.description.as_deref())
    .bind(row.default_role.as_str())
    .bind(row.allow_public_projects)
    .bind(row.updated_at)
    .defer(tx)
    .await
}

/// Removes the organization and what is in it. Projects take their keys and members along; memberships and invitations
/// go with the row, so that nothing is counted down that goes as well. What was used stays. Replicas let go of what they hold
/// of it; the last statement of its transaction.
pub async fn remove(
    tx: &mut HeldTx<'_>,
    organization_id: OrganizationId,
    now: Time,
) -> Result<(), db::Error> {
    sql("DELETE FROM projects WHERE organization_id = $1").bind(organization_id).defer(tx).await?;
    sql("DELETE FROM organizations WHERE id = $1").bind(organization_id).defer(tx).await?;
    changes::record(tx, Change::Organization(organization_id), now).await
}

/// Takes the organization's lock: from here to the end of the transaction nobody else changes it, its members or its
/// invitations. It is held once the transaction's next statement is answered; on SQLite a transaction
/// that writes holds all locks from its beginning. Without effect when there is no such organization;
/// what is read next tells.
pub async fn lock(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    sql(LOCKED).bind(organization_id).lock(tx, Lock::Change).await
}

const LOCKED: &str = "SELECT id FROM organizations WHERE id = $1";

/// Takes the lock that a removal or another name needs. On PostgreSQL whoever adds a row that refers to the organization
/// shares its key until they are through, and only a change of a unique column waits for them and makes others wait. To
/// come to that later, with [`lock`] held already, would be a deadlock.
pub async fn lock_whole(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    sql(LOCKED).bind(organization_id).lock(tx, Lock::Removal).await
}

/// One organization with its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrganizationDetail {
    /// The row.
    pub organization: Organization,
    /// Members.
    pub members_count: i64,
    /// Projects.
    pub projects_count: i64,
}

impl FromRow for OrganizationDetail {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            organization: Organization::from_row(row)?,
            members_count: row.get("members_count")?,
            projects_count: row.get("projects_count")?,
        })
    }
}

/// The organization with this id.
pub async fn detail(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Option<OrganizationDetail>, db::Error> {
    sql("SELECT id, name, description, default_role, allow_public_projects, created_at, updated_at, members_count,
                projects_count
         FROM organizations WHERE id = $1")
    .bind(organization_id)
    .optional(tx)
    .await
}

/// An organization as a list shows it, and the caller's role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedOrganization {
    /// Primary key.
    pub id: OrganizationId,
    /// As given.
    pub name: String,
    /// As given.
    pub description: Option<String>,
    /// Creation.
    pub created_at: Time,
    /// Last change.
    pub updated_at: Time,
    /// The caller's role.
    pub role: OrganizationRole,
}

impl FromRow for ListedOrganization {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            description: row.get("description")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
            role: role(row, "role")?,
        })
    }
}

/// Which organizations a list shows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Those that this person belongs to.
    pub user_id: UserId,
    /// Only this one, for an API key.
    pub only: Option<OrganizationId>,
    /// Only those whose folded name holds this.
    pub search_folded: String,
    /// Only those in which the person has this role.
    pub role: Option<OrganizationRole>,
}

/// Somebody's organizations, newest first: as many rows are read as they belong to.
pub const LIST: &str = "SELECT o.id, o.name, o.description, o.created_at, o.updated_at, m.role AS role
     FROM organization_members m JOIN organizations o ON o.id = m.organization_id
     WHERE m.user_id = $1 AND ($2 = '' OR o.id = $2) AND o.name_folded LIKE $3 ESCAPE '\\' AND ($4 = '' OR m.role = $4)
     ORDER BY o.created_at DESC, o.id LIMIT $5 OFFSET $6";

/// How many these are.
pub const COUNT: &str = "SELECT COUNT(*) AS value
     FROM organization_members m JOIN organizations o ON o.id = m.organization_id
     WHERE m.user_id = $1 AND ($2 = '' OR o.id = $2) AND o.name_folded LIKE $3 ESCAPE '\\' AND ($4 = '' OR m.role = $4)";

/// One page of them, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<Vec<ListedOrganization>, db::Error> {
    bind(sql(LIST), filter).bind(page.page_size).bind(page.offset()).all(tx).await
}

/// How many there are.
pub async fn count(tx: &mut Tx, filter: &Filter) -> Result<i64, db::Error> {
    let (count,): (i64,) = bind(sql(COUNT), filter).one(tx).await?;
    Ok(count)
}

fn bind(statement: db::Statement, filter: &Filter) -> db::Statement {
    statement
        .bind(filter.user_id)
        .bind(filter.only.map(|id| id.to_string()).unwrap_or_default())
        .bind(contains_pattern(&filter.search_folded))
        .bind(filter.role.map_or("", OrganizationRole::as_str))
}
