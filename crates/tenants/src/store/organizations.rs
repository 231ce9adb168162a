//! The table `organizations`.

use crate::access::LockedTx;
use crate::roles::OrganizationRole;
use cluster::changes::{self, Change};
use db::{FromRow, Lock, Page, Row, Tx, contains_pattern, sql};
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::{OrganizationId, UserId};
use kernel::version::Version;

/// A row of `organizations`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Organization {
    pub id: OrganizationId,
    pub name: String,
    pub description: Option<String>,
    /// The role of new members.
    pub default_role: OrganizationRole,
    /// `true` if projects may be public.
    pub allow_public_projects: bool,
    /// `true` if members need a second factor to access the organization.
    pub require_second_factor: bool,
    /// `true` if members must sign in with the organization's provider. [`crate::rules::sign_ons`] decides
    /// which members this applies to.
    pub require_sign_on: bool,
    pub created_at: Time,
    pub updated_at: Time,
}

db::row!(Organization {
    id,
    name,
    description,
    default_role,
    allow_public_projects,
    require_second_factor,
    require_sign_on,
    created_at,
    updated_at
});

/// The requirements of an organization for its members. They don't apply to API keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Requirements {
    /// `true` if members need a second factor.
    pub second_factor: bool,
    /// `true` if members must sign in with the organization's provider. [`crate::rules::sign_ons`] decides
    /// which members this applies to.
    pub sign_on: bool,
}

db::row!(Requirements { second_factor: "require_second_factor", sign_on: "require_sign_on" });

impl Organization {
    /// Returns the requirements for the organization's members.
    pub fn requirements(&self) -> Requirements {
        Requirements { second_factor: self.require_second_factor, sign_on: self.require_sign_on }
    }
}

/// The values of a new organization.
pub struct NewOrganization<'a> {
    pub row: &'a Organization,
    /// The folded name, unique among the organizations with the same creator.
    pub name_folded: &'a str,
    pub created_by: UserId,
}

/// Adds an organization with the plan `pay_as_you_go`. Its wallet is added in the same transaction.
///
/// # Errors
/// `Unique` with `OrganizationName` if the creator has another organization with this name.
pub async fn insert(tx: &mut LockedTx<'_>, new: &NewOrganization<'_>) -> Result<(), db::Error> {
    let row = new.row;
    sql("INSERT INTO organizations (id, name, name_folded, description, default_role, allow_public_projects, plan,
                                    created_by, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'pay_as_you_go', $7, $8, $8)")
    .bind(row.id)
    .bind(row.name.as_str())
    .bind(new.name_folded)
    .bind(row.description.as_deref())
    .bind(row.default_role)
    .bind(row.allow_public_projects)
    .bind(new.created_by)
    .bind(row.created_at)
    .defer(tx)
    .await
}

/// A user who is about to create an organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrganizationCreator {
    pub email: String,
    pub username: String,
    /// `true` if the user's address is verified.
    pub is_verified: bool,
    /// `true` if an organization of this user has already received the first credit limit, even if it was
    /// deleted.
    pub had_credit: bool,
    /// The number of organizations that the user has created and that still exist.
    pub organizations: i64,
}

impl FromRow for OrganizationCreator {
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

/// Returns a user who is about to create an organization. The result is reliable only under the account's
/// lock.
pub async fn creator(tx: &mut Tx, user_id: UserId) -> Result<Option<OrganizationCreator>, db::Error> {
    sql(CREATOR).bind(user_id).optional(tx).await
}

/// The statement of [`creator`].
pub const CREATOR: &str = "SELECT u.email, u.username, u.email_verified_at, u.credit_granted_at,
            (SELECT COUNT(*) FROM organizations o WHERE o.created_by = u.id) AS organizations
     FROM users u WHERE u.id = $1";

/// Returns the oldest organization that a user has created, if none of the user's organizations has got the
/// first credit.
pub async fn first_without_credit(tx: &mut Tx, user_id: UserId) -> Result<Option<OrganizationId>, db::Error> {
    let oldest: Option<(OrganizationId,)> = sql(FIRST_WITHOUT_CREDIT).bind(user_id).optional(tx).await?;
    Ok(oldest.map(|(id,)| id))
}

/// The statement of [`first_without_credit`].
pub const FIRST_WITHOUT_CREDIT: &str = "SELECT o.id FROM users u JOIN organizations o ON o.created_by = u.id
     WHERE u.id = $1 AND u.credit_granted_at IS NULL ORDER BY o.created_at, o.id LIMIT 1";

/// The values of a change.
pub struct Changes<'a> {
    /// The row after the change.
    pub row: &'a Organization,
    /// The folded name, if it has changed.
    pub name_folded: Option<&'a str>,
}

/// Stores a change.
///
/// # Errors
/// `Unique` with `OrganizationName` if the creator has another organization with this name.
pub async fn update(tx: &mut LockedTx<'_>, changes: &Changes<'_>) -> Result<(), db::Error> {
    let row = changes.row;
    sql("UPDATE organizations SET name = $2, name_folded = COALESCE($3, name_folded), description = $4,
                default_role = $5, allow_public_projects = $6, updated_at = $7, require_second_factor = $8,
                require_sign_on = $9
         WHERE id = $1")
    .bind(row.id)
    .bind(row.name.as_str())
    .bind(changes.name_folded)
    .bind(row.description.as_deref())
    .bind(row.default_role)
    .bind(row.allow_public_projects)
    .bind(row.updated_at)
    .bind(row.require_second_factor)
    .bind(row.require_sign_on)
    .defer(tx)
    .await
}

/// Removes the organization with everything in it, except its usage, and notifies every replica. Must be the
/// last statement of its transaction. Projects are removed first, with their keys and members. Memberships
/// and invitations are removed together with the organization's row, so that its counts aren't updated for
/// each of them.
pub async fn remove(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    now: Time,
) -> Result<(), db::Error> {
    sql("DELETE FROM projects WHERE organization_id = $1").bind(organization_id).defer(tx).await?;
    sql("DELETE FROM organizations WHERE id = $1").bind(organization_id).defer(tx).await?;
    changes::record(tx, Change::Organization(organization_id), now).await
}

/// Locks the organization: until this transaction ends, no other transaction can change the organization, its
/// members or its invitations. The lock is held once the transaction's next statement has returned. On
/// SQLite, a write transaction holds all locks from its start. If the organization doesn't exist, nothing is
/// locked, and the next read doesn't find it.
pub async fn lock(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    sql(LOCKED).bind(organization_id).lock(tx, Lock::Change).await
}

const LOCKED: &str = "SELECT id FROM organizations WHERE id = $1";

/// Locks the organization for a removal or a new name. On PostgreSQL, a transaction that adds a row which
/// refers to the organization holds a share lock on the organization's key. A removal, or a change of a
/// unique column, conflicts with this share lock. So taking this lock after [`lock`] could cause a deadlock.
pub async fn lock_for_removal(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    sql(LOCKED).bind(organization_id).lock(tx, Lock::Removal).await
}

/// An organization with its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrganizationDetail {
    pub organization: Organization,
    pub members_count: i64,
    pub projects_count: i64,
}

db::row!(OrganizationDetail { organization: Organization::from_row, members_count, projects_count });

impl OrganizationDetail {
    /// Returns the version, which depends on all fields of the organization in replies.
    pub fn version(&self) -> Result<Version, Error> {
        let Self { organization, members_count, projects_count } = self;
        let Organization {
            id,
            name,
            description,
            default_role,
            allow_public_projects,
            require_second_factor,
            require_sign_on,
            created_at,
            updated_at,
        } = organization;
        let settings = (default_role, allow_public_projects, require_second_factor, require_sign_on);
        let counts = (members_count, projects_count);
        Version::of(&(id, name, description, settings, created_at, updated_at, counts))
    }
}

/// Returns the organization with this id.
pub async fn detail(
    tx: &mut Tx,
    organization_id: OrganizationId,
) -> Result<Option<OrganizationDetail>, db::Error> {
    sql("SELECT id, name, description, default_role, allow_public_projects, require_second_factor, require_sign_on,
                created_at, updated_at, members_count, projects_count
         FROM organizations WHERE id = $1")
    .bind(organization_id)
    .optional(tx)
    .await
}

/// Returns the requirements of an organization for its members; no requirements if the organization doesn't
/// exist.
pub async fn requirements(tx: &mut Tx, organization_id: OrganizationId) -> Result<Requirements, db::Error> {
    let text = "SELECT require_second_factor, require_sign_on FROM organizations WHERE id = $1";
    Ok(sql(text).bind(organization_id).optional(tx).await?.unwrap_or_default())
}

/// An organization in a list, with the caller's role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedOrganization {
    pub id: OrganizationId,
    pub name: String,
    pub description: Option<String>,
    pub created_at: Time,
    pub updated_at: Time,
    /// The caller's role.
    pub role: OrganizationRole,
}

db::row!(ListedOrganization { id, name, description, created_at, updated_at, role });

/// The filter of a list of organizations.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The user who belongs to the organizations.
    pub user_id: UserId,
    /// The only organization to list, for an API key.
    pub only: Option<OrganizationId>,
    /// The text that the folded name must contain; empty for all organizations.
    pub search_folded: String,
    /// The role that the user must have; `None` for all.
    pub role: Option<OrganizationRole>,
}

/// The statement of [`list`]. It reads all memberships of the user.
pub const LIST: &str = "SELECT o.id, o.name, o.description, o.created_at, o.updated_at, m.role AS role
     FROM organization_members m JOIN organizations o ON o.id = m.organization_id
     WHERE m.user_id = $1 AND ($2 = '' OR o.id = $2) AND o.name_folded LIKE $3 ESCAPE '\\' AND ($4 = '' OR m.role = $4)
     ORDER BY o.created_at DESC, o.id LIMIT $5 OFFSET $6";

/// The statement of [`count`].
pub const COUNT: &str = "SELECT COUNT(*) AS value
     FROM organization_members m JOIN organizations o ON o.id = m.organization_id
     WHERE m.user_id = $1 AND ($2 = '' OR o.id = $2) AND o.name_folded LIKE $3 ESCAPE '\\' AND ($4 = '' OR m.role = $4)";

/// Returns one page of the organizations, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<Vec<ListedOrganization>, db::Error> {
    bind(sql(LIST), filter).bind(page.page_size).bind(page.offset()).all(tx).await
}

/// Returns the number of organizations on all pages of [`list`].
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
