//! Members of organizations and of projects: the two tables are alike, and so are their statements.

use std::fmt::Debug;
use std::sync::LazyLock;

use crate::access::HeldTx;
use crate::roles::{OrganizationRole, ProjectRole};
use accounts::store::users::Audience;
use cluster::changes;
use cluster::changes::Change;
use db::window::Window;
use db::{FromRow, Row, Tx, Value, sql};
use db::{Page, contains_pattern};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, ProjectId, UserId};

/// The id of what people are members of.
pub trait Group: Copy + Into<Value> + Send + Sync {
    /// The roles of its members.
    type Role: Copy + Eq + Debug + Send + Sync;
    /// The statements about its members.
    fn statements() -> &'static Statements;
    /// A role's word in the database.
    fn word(role: Self::Role) -> &'static str;
    /// Reads that word.
    fn role(word: &str) -> Option<Self::Role>;
}

impl Group for OrganizationId {
    type Role = OrganizationRole;
    fn statements() -> &'static Statements {
        static STATEMENTS: LazyLock<Statements> = LazyLock::new(|| {
            Statements::of("organization_members", "organization_id", "joined_at", "organizations")
        });
        &STATEMENTS
    }
    fn word(role: OrganizationRole) -> &'static str {
        role.as_str()
    }
    fn role(word: &str) -> Option<OrganizationRole> {
        OrganizationRole::parse(word)
    }
}

impl Group for ProjectId {
    type Role = ProjectRole;
    fn statements() -> &'static Statements {
        static STATEMENTS: LazyLock<Statements> =
            LazyLock::new(|| Statements::of("project_members", "project_id", "added_at", "projects"));
        &STATEMENTS
    }
    fn word(role: ProjectRole) -> &'static str {
        role.as_str()
    }
    fn role(word: &str) -> Option<ProjectRole> {
        ProjectRole::parse(word)
    }
}

/// The statements about the members of the group `$1`.
pub struct Statements {
    insert: String,
    add: String,
    set_role: String,
    remove: String,
    audience: String,
    count: String,
    /// One page of all members, newest first: the index steps over what comes before the page, the tables are asked for its rows
    /// only. `CROSS JOIN` keeps SQLite to this order.
    pub from_start: String,
    /// The same, stepping over what comes after the page.
    pub from_end: String,
    /// One page of the members that a filter lets through, newest first.
    pub filtered: String,
    /// How many these are.
    pub counted: String,
}

impl Statements {
    /// Those of a table whose rows name their group in the column `id` and their beginning in `since`.
    fn of(table: &str, id: &str, since: &str, groups: &str) -> Self {
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
            counted: format!("SELECT COUNT(*) {matching}"),
        }
    }
}

/// Adds a member.
pub async fn insert<G: Group>(
    tx: &mut HeldTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<(), db::Error> {
    let statement = sql(G::statements().insert.as_str()).bind(group).bind(user_id);
    statement.bind(G::word(role)).bind(now).defer(tx).await
}

/// Adds a person who is no member yet; returns `false` if they are one. The primary key decides.
pub async fn add<G: Group>(
    tx: &mut HeldTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<bool, db::Error> {
    let statement = sql(G::statements().add.as_str()).bind(group).bind(user_id);
    Ok(statement.bind(G::word(role)).bind(now).execute(tx).await? == 1)
}

/// A member and who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member<G: Group> {
    /// The person.
    pub user_id: UserId,
    /// As given.
    pub email: String,
    /// The form in which addresses are compared.
    pub email_folded: String,
    /// As given.
    pub username: String,
    /// Their role in the group.
    pub role: G::Role,
    /// Since when they belong to it.
    pub joined_at: Time,
    /// Since when they have this role.
    pub updated_at: Time,
}

impl<G: Group> FromRow for Member<G> {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: String = row.get("role")?;
        Ok(Self {
            user_id: row.get("user_id")?,
            email: row.get("email")?,
            email_folded: row.get("email_folded")?,
            username: row.get("username")?,
            role: G::role(&word).ok_or_else(|| db::Error::Internal(format!("role is {word:?}")))?,
            joined_at: row.get("joined_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

impl<G: Group> Member<G> {
    /// Reads the member of a row that has none where nobody was found.
    pub fn optional(row: &Row) -> Result<Option<Self>, db::Error> {
        let user_id: Option<String> = row.get("user_id")?;
        user_id.map(|_| Self::from_row(row)).transpose()
    }
}

/// The recipients of a mail about what a person does to the group; `None` without that person.
pub async fn audience<G: Group>(tx: &mut Tx, group: G, by: UserId) -> Result<Option<Audience>, db::Error> {
    let rows = sql(G::statements().audience.as_str()).bind(group).bind(by).heavy().all(tx).await?;
    Ok(Audience::of(rows, by))
}

/// Gives a member another role. Replicas let go of what they hold of the person; the last statement of its transaction.
pub async fn set_role<G: Group>(
    tx: &mut HeldTx<'_>,
    group: G,
    user_id: UserId,
    role: G::Role,
    now: Time,
) -> Result<(), db::Error> {
    let statement = sql(G::statements().set_role.as_str()).bind(group).bind(user_id);
    statement.bind(G::word(role)).bind(now).defer(tx).await?;
    changes::record(tx, Change::User(user_id), now).await
}

/// Takes a person out of the group. Replicas let go of what they hold of the person; the last statement of its transaction.
pub(super) async fn remove<G: Group>(
    tx: &mut HeldTx<'_>,
    group: G,
    user_id: UserId,
    now: Time,
) -> Result<(), db::Error> {
    sql(G::statements().remove.as_str()).bind(group).bind(user_id).defer(tx).await?;
    changes::record(tx, Change::User(user_id), now).await
}

/// Which members a list shows.
#[derive(Clone, Debug)]
pub struct Filter<G: Group> {
    /// The organization or the project.
    pub group: G,
    /// Only those whose folded address or username holds this.
    pub search_folded: String,
    /// Only those with this role.
    pub role: Option<G::Role>,
}

impl<G: Group> Filter<G> {
    fn bind(&self, text: &'static str) -> db::Statement {
        sql(text)
            .bind(self.group)
            .bind(self.role.map_or("", G::word))
            .bind(contains_pattern(&self.search_folded))
    }
}

/// One page of members, newest first, and how many there are in all.
pub async fn list<G: Group>(
    tx: &mut Tx,
    filter: &Filter<G>,
    page: Page,
) -> Result<(i64, Vec<Member<G>>), db::Error> {
    let statements = G::statements();
    if filter.search_folded.is_empty() && filter.role.is_none() {
        // However large the group is, its count stands beside it.
        let count = sql(statements.count.as_str()).bind(filter.group).optional(tx).await?;
        let total = count.map_or(0, |(count,): (i64,)| count);
        let Some(window) = Window::of(page, total) else { return Ok((total, Vec::new())) };
        let text = if window.from_end { &statements.from_end } else { &statements.from_start };
        let rows =
            sql(text.as_str()).bind(filter.group).bind(window.limit).bind(window.offset).all(tx).await?;
        return Ok((total, rows));
    }
    let (total,): (i64,) = filter.bind(&statements.counted).heavy().one(tx).await?;
    let filtered = filter.bind(&statements.filtered).bind(page.page_size).bind(page.offset());
    Ok((total, filtered.heavy().all(tx).await?))
}
