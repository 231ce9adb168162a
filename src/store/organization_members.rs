//! Who belongs to which organization, and as what.

use crate::access::HeldTx;
use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{OrganizationId, UserId};
use crate::roles::OrganizationRole;
use crate::store::changes::{self, Change};
use crate::store::users::Audience;
use crate::store::window::Window;
use crate::store::{Page, contains_pattern};

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

/// Adds a member.
pub async fn insert(
    tx: &mut HeldTx<'_>,
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
    .defer(tx)
    .await
}

/// A member and who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The person.
    pub user_id: UserId,
    /// As given.
    pub email: String,
    /// The form in which addresses are compared.
    pub email_folded: String,
    /// As given.
    pub username: String,
    /// What they are here.
    pub role: OrganizationRole,
    /// Since when they belong to it.
    pub joined_at: Time,
    /// Since when they have this role.
    pub updated_at: Time,
}

impl FromRow for Member {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: String = row.get("role")?;
        Ok(Self {
            user_id: row.get("user_id")?,
            email: row.get("email")?,
            email_folded: row.get("email_folded")?,
            username: row.get("username")?,
            role: OrganizationRole::parse(&word)
                .ok_or_else(|| db::Error::Internal(format!("role is {word:?}")))?,
            joined_at: row.get("joined_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
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
        let user_id: Option<String> = row.get("user_id")?;
        Ok(Self {
            caller_role: caller_role.as_deref().and_then(OrganizationRole::parse),
            member: user_id.map(|_| Member::from_row(row)).transpose()?,
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

/// Whom to tell by mail of what somebody does to the organization; `None` without that person.
pub async fn audience(
    tx: &mut Tx,
    organization_id: OrganizationId,
    by: UserId,
) -> Result<Option<Audience>, db::Error> {
    let rows = sql(
        "SELECT u.id, u.email, u.username FROM users u
         WHERE u.id IN (SELECT user_id FROM organization_members WHERE organization_id = $1 UNION SELECT $2)",
    )
    .bind(organization_id)
    .bind(by)
    .heavy()
    .all(tx)
    .await?;
    Ok(Audience::of(rows, by))
}

/// Gives a member another role. Replicas let go of what they hold of the person; the last statement of its transaction.
pub async fn set_role(
    tx: &mut HeldTx<'_>,
    organization_id: OrganizationId,
    user_id: UserId,
    role: OrganizationRole,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE organization_members SET role = $3, updated_at = $4 WHERE organization_id = $1 AND user_id = $2")
        .bind(organization_id)
        .bind(user_id)
        .bind(role.as_str())
        .bind(now)
        .defer(tx)
        .await?;
    changes::record(tx, Change::User(user_id), now).await
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
    sql("DELETE FROM organization_members WHERE organization_id = $1 AND user_id = $2")
        .bind(organization_id)
        .bind(user_id)
        .defer(tx)
        .await?;
    changes::record(tx, Change::User(user_id), now).await
}

/// By the person's own memberships: the organization may have many projects that they aren't in.
pub const LEAVE_PROJECTS: &str = "DELETE FROM project_members WHERE user_id = $2
     AND EXISTS (SELECT 1 FROM projects p WHERE p.id = project_members.project_id AND p.organization_id = $1)";

/// Which members a list shows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The tenant.
    pub organization_id: OrganizationId,
    /// Only those whose folded address or username holds this.
    pub search_folded: String,
    /// Only those with this role.
    pub role: Option<OrganizationRole>,
}

impl Filter {
    /// Whether it lets everybody through.
    fn is_open(&self) -> bool {
        self.search_folded.is_empty() && self.role.is_none()
    }
}

/// All members, newest first: the index steps over what comes before the page, the tables are asked for its rows only.
/// `CROSS JOIN` keeps SQLite to this order.
pub const FROM_START: &str =
    "SELECT m.user_id, u.email, u.email_folded, u.username, m.role, m.joined_at, m.updated_at
     FROM (SELECT user_id FROM organization_members WHERE organization_id = $1
           ORDER BY joined_at DESC, user_id LIMIT $2 OFFSET $3) page
     CROSS JOIN organization_members m CROSS JOIN users u
     WHERE m.organization_id = $1 AND m.user_id = page.user_id AND u.id = m.user_id
     ORDER BY m.joined_at DESC, m.user_id";

/// The same, stepping over what comes after the page.
pub const FROM_END: &str =
    "SELECT m.user_id, u.email, u.email_folded, u.username, m.role, m.joined_at, m.updated_at
     FROM (SELECT user_id FROM organization_members WHERE organization_id = $1
           ORDER BY joined_at, user_id DESC LIMIT $2 OFFSET $3) page
     CROSS JOIN organization_members m CROSS JOIN users u
     WHERE m.organization_id = $1 AND m.user_id = page.user_id AND u.id = m.user_id
     ORDER BY m.joined_at DESC, m.user_id";

/// The members that a filter lets through, newest first.
pub const FILTERED: &str =
    "SELECT m.user_id, u.email, u.email_folded, u.username, m.role, m.joined_at, m.updated_at
     FROM organization_members m CROSS JOIN users u
     WHERE m.organization_id = $1 AND u.id = m.user_id AND ($2 = '' OR m.role = $2)
       AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')
     ORDER BY m.joined_at DESC, m.user_id LIMIT $4 OFFSET $5";

/// How many these are.
pub const COUNTED: &str = "SELECT COUNT(*) FROM organization_members m CROSS JOIN users u
     WHERE m.organization_id = $1 AND u.id = m.user_id AND ($2 = '' OR m.role = $2)
       AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')";

/// One page of members, newest first, and how many there are in all.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<Member>), db::Error> {
    if filter.is_open() {
        // However large the organization is, its count stands beside it.
        let count: Option<(i64,)> = sql("SELECT members_count FROM organizations WHERE id = $1")
            .bind(filter.organization_id)
            .optional(tx)
            .await?;
        let total = count.map_or(0, |(count,)| count);
        let rows = match page.window(total) {
            Some(window) => stretch(tx, filter.organization_id, window).await?,
            None => Vec::new(),
        };
        return Ok((total, rows));
    }
    let (total,): (i64,) = bind(sql(COUNTED), filter).heavy().one(tx).await?;
    let rows = bind(sql(FILTERED), filter).bind(page.page_size).bind(page.offset()).heavy().all(tx).await?;
    Ok((total, rows))
}

async fn stretch(
    tx: &mut Tx,
    organization_id: OrganizationId,
    window: Window,
) -> Result<Vec<Member>, db::Error> {
    let text = if window.from_end { FROM_END } else { FROM_START };
    sql(text).bind(organization_id).bind(window.limit).bind(window.offset).all(tx).await
}

fn bind(statement: db::Statement, filter: &Filter) -> db::Statement {
    statement
        .bind(filter.organization_id)
        .bind(filter.role.map_or("", OrganizationRole::as_str))
        .bind(contains_pattern(&filter.search_folded))
}
