//! Members of organizations and of projects. The two tables have the same structure, so they share
//! statements.

use std::fmt::Debug;
use std::sync::LazyLock;

use crate::access::LockedTx;
use crate::roles::{OrganizationRole, ProjectRole};
use accounts::store::users::Audience;
use cluster::changes::{self, Change};
use db::window::Window;
use db::{FromRow, FromValue, Page, Row, Tx, Value, contains_pattern, sql};
use kernel::clock::Time;
use kernel::ids::{ConnectionId, OrganizationId, ProjectId, UserId};

/// The id of a group of users: an organization or a project.
pub trait Group: Copy + Into<Value> + Send + Sync {
    /// The type of the members' roles.
    type Role: Copy + Eq + Debug + Send + Sync + FromValue + Into<Value>;
    /// Returns the statements for the group's members.
    fn statements() -> &'static Statements;
}

impl Group for OrganizationId {
    type Role = OrganizationRole;
    fn statements() -> &'static Statements {
        static STATEMENTS: LazyLock<Statements> = LazyLock::new(|| {
            Statements::new("organization_members", "organization_id", "joined_at", "organizations")
        });
        &STATEMENTS
    }
}

impl Group for ProjectId {
    type Role = ProjectRole;
    fn statements() -> &'static Statements {
        static STATEMENTS: LazyLock<Statements> =
            LazyLock::new(|| Statements::new("project_members", "project_id", "added_at", "projects"));
        &STATEMENTS
    }
}

/// The statements for the members of the group `$1`.
pub struct Statements {
    insert: String,
    add: String,
    set_role: String,
    remove: String,
    audience: String,
    count: String,
    /// A page of all members, newest first. Rows before the page are skipped in the index, and the tables are
    /// read only for the page. `CROSS JOIN` makes SQLite join the tables in this order.
    pub from_start: String,
    /// Does the same as `from_start`, but skips the rows after the page.
    pub from_end: String,
    /// A page of the members that match a filter, newest first.
    pub filtered: String,
    /// The number of members that match a filter.
    pub filtered_count: String,
}

impl Statements {
    /// Returns the statements for a table of members. `id` is the column with the group's id, `since` is the
    /// column with the start of the membership, and `groups` is the table of groups.
    fn new(table: &str, id: &str, since: &str, groups: &str) -> Self {
        let insert = format!(
            "INSERT INTO {table} ({id}, user_id, role, {since}, updated_at) VALUES ($1, $2, $3, $4, $4)"
        );
        let columns = format!(
            "m.user_id, u.email, u.email_folded, u.username, m.role, m.{since} AS joined_at, m.updated_at"
        );
        let newest_first = format!("ORDER BY m.{since} DESC, m.user_id");
        let page = |order: &str| {
            format!(
                "SELECT {columns}
                 FROM (SELECT user_id FROM {table} WHERE {id} = $1 ORDER BY {order} LIMIT $2 OFFSET $3) page
                 CROSS JOIN {table} m CROSS JOIN users u
                 WHERE m.{id} = $1 AND m.user_id = page.user_id AND u.id = m.user_id {newest_first}"
            )
        };
        let matching = format!(
            "FROM {table} m CROSS JOIN users u
             WHERE m.{id} = $1 AND u.id = m.user_id AND ($2 = '' OR m.role = $2)
               AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')"
        );
        Self {
            add: format!("{insert} ON CONFLICT ({id}, user_id) DO NOTHING"),
            insert,
            set_role: format!(
                "UPDATE {table} SET role = $3, updated_at = $4 WHERE {id} = $1 AND user_id = $2"
            ),
            remove: format!("DELETE FROM {table} WHERE {id} = $1 AND user_id = $2"),
            audience: format!(
                "SELECT u.id, u.email, u.username FROM users u
                 WHERE u.id IN (SELECT user_id FROM {table} WHERE {id} = $1 UNION SELECT $2)"
            ),
            count: format!("SELECT members_count FROM {groups} WHERE id = $1"),
            from_start: page(&format!("{since} DESC, user_id")),
            from_end: page(&format!("{since}, user_id DESC")),
            filtered: format!("SELECT {columns} {matching} {newest_first} LIMIT $4 OFFSET $5"),
            filtered_count: format!("SELECT COUNT(*) {matching}"),
        }
    }
}

/// Adds a member.
pub async fn insert<G: Group>(
    tx: &mut LockedTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<(), db::Error> {
    let statement = sql(G::statements().insert.as_str()).bind(group).bind(user_id);
    statement.bind(role).bind(now).defer(tx).await
}

/// Adds a user unless they are already a member. Returns `false` if they are. The primary key decides races.
pub async fn add<G: Group>(
    tx: &mut LockedTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<bool, db::Error> {
    let statement = sql(G::statements().add.as_str()).bind(group).bind(user_id);
    Ok(statement.bind(role).bind(now).execute(tx).await? == 1)
}

/// Returns the id of the provider whose sign-on created a membership in an organization; `None` if no sign-on
/// did.
pub async fn managed_by(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
) -> Result<Option<String>, db::Error> {
    let text = "SELECT managed_by FROM organization_members WHERE organization_id = $1 AND user_id = $2";
    let found: Option<(Option<String>,)> = sql(text).bind(organization_id).bind(user_id).optional(tx).await?;
    Ok(found.and_then(|(provider_id,)| provider_id))
}

/// Stores the provider whose sign-on created a membership in an organization.
pub async fn set_managed_by(
    tx: &mut LockedTx<'_>,
    organization_id: OrganizationId,
    user_id: UserId,
    provider_id: &str,
) -> Result<(), db::Error> {
    sql("UPDATE organization_members SET managed_by = $3 WHERE organization_id = $1 AND user_id = $2")
        .bind(organization_id)
        .bind(user_id)
        .bind(provider_id)
        .defer(tx)
        .await
}

/// A member of an organization, with the data that decides whether a sign-on is required.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignOnStanding {
    pub role: OrganizationRole,
    /// The address of the member's account.
    pub email: String,
    /// The provider whose sign-ons created the membership.
    pub managed_by: Option<String>,
    /// The issuer of the connection.
    pub issuer: Option<String>,
}

db::row!(SignOnStanding { role, email, managed_by, issuer });

/// Returns a member, and the issuer of one of their connections; `None` if the user isn't a member.
pub async fn sign_on_standing(
    tx: &mut Tx,
    organization_id: OrganizationId,
    user_id: UserId,
    connection_id: Option<ConnectionId>,
) -> Result<Option<SignOnStanding>, db::Error> {
    let statement = sql(SIGN_ON_STANDING).bind(organization_id).bind(user_id);
    statement.bind(connection_id).optional(tx).await
}

/// The statement of [`sign_on_standing`].
pub const SIGN_ON_STANDING: &str = "SELECT m.role, u.email, m.managed_by, c.issuer
     FROM organization_members m JOIN users u ON u.id = m.user_id
     LEFT JOIN connections c ON c.id = $3 AND c.user_id = m.user_id
     WHERE m.organization_id = $1 AND m.user_id = $2";

/// A member of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<G: Group> {
    pub user_id: UserId,
    pub email: String,
    /// The folded address, for comparisons.
    pub email_folded: String,
    pub username: String,
    pub role: G::Role,
    pub joined_at: Time,
    /// The time at which the member got this role.
    pub updated_at: Time,
}

impl<G: Group> FromRow for Member<G> {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            user_id: row.get("user_id")?,
            email: row.get("email")?,
            email_folded: row.get("email_folded")?,
            username: row.get("username")?,
            role: row.get("role")?,
            joined_at: row.get("joined_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

impl<G: Group> Member<G> {
    /// Reads the member of an outer join; `None` if its columns are null.
    pub fn optional(row: &Row) -> Result<Option<Self>, db::Error> {
        let user_id: Option<String> = row.get("user_id")?;
        user_id.map(|_| Self::from_row(row)).transpose()
    }
}

/// Returns the recipients of an e-mail about a user's change to the group; `None` if the user doesn't exist.
pub async fn audience<G: Group>(tx: &mut Tx, group: G, by: UserId) -> Result<Option<Audience>, db::Error> {
    let rows = sql(G::statements().audience.as_str()).bind(group).bind(by).heavy().all(tx).await?;
    Ok(Audience::of(rows, by))
}

/// Changes a member's role, and notifies every replica. Must be the last statement of its transaction.
pub async fn set_role<G: Group>(
    tx: &mut LockedTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<(), db::Error> {
    let statement = sql(G::statements().set_role.as_str()).bind(group).bind(user_id);
    statement.bind(role).bind(now).defer(tx).await?;
    changes::record(tx, Change::User(user_id), now).await
}

/// Removes a user from the group, and notifies every replica. Must be the last statement of its transaction.
pub(super) async fn remove<G: Group>(
    tx: &mut LockedTx<'_>,
    group: G,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    sql(G::statements().remove.as_str()).bind(group).bind(user_id).defer(tx).await?;
    changes::record(tx, Change::User(user_id), now).await
}

/// The filter of a list of members.
#[derive(Clone, Debug)]
pub struct Filter<G: Group> {
    /// The organization or the project.
    pub group: G,
    /// The text that the folded address or username must contain; empty for all members.
    pub search_folded: String,
    /// The role that a member must have; `None` for all.
    pub role: Option<G::Role>,
}

impl<G: Group> Filter<G> {
    fn bind(&self, text: &'static str) -> db::Statement {
        sql(text)
            .bind(self.group)
            .bind(self.role.map_or(Value::Word(""), Into::into))
            .bind(contains_pattern(&self.search_folded))
    }
}

/// Returns the number of matching members, and one page of them, newest first.
pub async fn list<G: Group>(
    tx: &mut Tx,
    filter: &Filter<G>,
    page: Page,
) -> Result<(i64, Vec<Member<G>>), db::Error> {
    let statements = G::statements();
    if filter.search_folded.is_empty() && filter.role.is_none() {
        // The group's row contains the count, so the members aren't counted.
        let count = sql(statements.count.as_str()).bind(filter.group).optional(tx).await?;
        let total = count.map_or(0, |(count,): (i64,)| count);
        let Some(window) = Window::of(page, total) else { return Ok((total, Vec::new())) };
        let text = if window.from_end { &statements.from_end } else { &statements.from_start };
        let rows =
            sql(text.as_str()).bind(filter.group).bind(window.limit).bind(window.offset).all(tx).await?;
        return Ok((total, rows));
    }
    let (total,): (i64,) = filter.bind(&statements.filtered_count).heavy().one(tx).await?;
    let filtered = filter.bind(&statements.filtered).bind(page.page_size).bind(page.offset());
    Ok((total, filtered.heavy().all(tx).await?))
}
