//! Who belongs to which project, and as what.

use crate::access::HeldTx;
use crate::clock::Time;
use crate::db::{self, FromRow, Row, Tx, sql};
use crate::ids::{ProjectId, UserId};
use crate::roles::ProjectRole;
use crate::store::users::Audience;
use crate::store::window::Window;
use crate::store::{Page, contains_pattern};

/// Adds a member.
pub async fn insert(
    tx: &mut HeldTx<'_>,
    project_id: ProjectId,
    user_id: UserId,
    role: ProjectRole,
    now: Time,
) -> Result<(), db::Error> {
    sql("INSERT INTO project_members (project_id, user_id, role, added_at, updated_at) VALUES ($1, $2, $3, $4, $4)")
        .bind(project_id)
        .bind(user_id)
        .bind(role.as_str())
        .bind(now)
        .defer(tx)
        .await
}

/// Adds somebody who is no member yet; whether they were none. The primary key decides.
pub async fn add(
    tx: &mut HeldTx<'_>,
    project_id: ProjectId,
    user_id: UserId,
    role: ProjectRole,
    now: Time,
) -> Result<bool, db::Error> {
    let inserted = sql("INSERT INTO project_members (project_id, user_id, role, added_at, updated_at)
         VALUES ($1, $2, $3, $4, $4) ON CONFLICT (project_id, user_id) DO NOTHING")
    .bind(project_id)
    .bind(user_id)
    .bind(role.as_str())
    .bind(now)
    .execute(tx)
    .await?;
    Ok(inserted == 1)
}

/// A member and who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The person.
    pub user_id: UserId,
    /// As given.
    pub email: String,
    /// As given.
    pub username: String,
    /// What they are here.
    pub role: ProjectRole,
    /// Since when they belong to it.
    pub added_at: Time,
    /// Since when they have this role.
    pub updated_at: Time,
}

impl FromRow for Member {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let word: String = row.get("role")?;
        Ok(Self {
            user_id: row.get("user_id")?,
            email: row.get("email")?,
            username: row.get("username")?,
            role: ProjectRole::parse(&word)
                .ok_or_else(|| db::Error::Internal(format!("role is {word:?}")))?,
            added_at: row.get("added_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

/// Whom to tell by mail of what somebody does to the project; `None` without that person.
pub async fn audience(tx: &mut Tx, project_id: ProjectId, by: UserId) -> Result<Option<Audience>, db::Error> {
    let rows = sql("SELECT u.id, u.email, u.username FROM users u
         WHERE u.id IN (SELECT user_id FROM project_members WHERE project_id = $1 UNION SELECT $2)")
    .bind(project_id)
    .bind(by)
    .heavy()
    .all(tx)
    .await?;
    Ok(Audience::of(rows, by))
}

/// Gives a member another role.
pub async fn set_role(
    tx: &mut HeldTx<'_>,
    project_id: ProjectId,
    user_id: UserId,
    role: ProjectRole,
    now: Time,
) -> Result<(), db::Error> {
    sql("UPDATE project_members SET role = $3, updated_at = $4 WHERE project_id = $1 AND user_id = $2")
        .bind(project_id)
        .bind(user_id)
        .bind(role.as_str())
        .bind(now)
        .defer(tx)
        .await
}

/// Takes somebody out of the project.
pub async fn remove(tx: &mut HeldTx<'_>, project_id: ProjectId, user_id: UserId) -> Result<(), db::Error> {
    sql("DELETE FROM project_members WHERE project_id = $1 AND user_id = $2")
        .bind(project_id)
        .bind(user_id)
        .defer(tx)
        .await
}

/// Which members a list shows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The project.
    pub project_id: ProjectId,
    /// Only those whose folded address or username holds this.
    pub search_folded: String,
    /// Only those with this role.
    pub role: Option<ProjectRole>,
}

impl Filter {
    /// Whether it lets everybody through.
    fn is_open(&self) -> bool {
        self.search_folded.is_empty() && self.role.is_none()
    }
}

/// All members, newest first: the index steps over what comes before the page, the tables are asked for its rows only.
/// `CROSS JOIN` keeps SQLite to this order.
pub const FROM_START: &str = "SELECT m.user_id, u.email, u.username, m.role, m.added_at, m.updated_at
     FROM (SELECT user_id FROM project_members WHERE project_id = $1
           ORDER BY added_at DESC, user_id LIMIT $2 OFFSET $3) page
     CROSS JOIN project_members m CROSS JOIN users u
     WHERE m.project_id = $1 AND m.user_id = page.user_id AND u.id = m.user_id
     ORDER BY m.added_at DESC, m.user_id";

/// The same, stepping over what comes after the page.
pub const FROM_END: &str = "SELECT m.user_id, u.email, u.username, m.role, m.added_at, m.updated_at
     FROM (SELECT user_id FROM project_members WHERE project_id = $1
           ORDER BY added_at, user_id DESC LIMIT $2 OFFSET $3) page
     CROSS JOIN project_members m CROSS JOIN users u
     WHERE m.project_id = $1 AND m.user_id = page.user_id AND u.id = m.user_id
     ORDER BY m.added_at DESC, m.user_id";

/// The members that a filter lets through, newest first.
pub const FILTERED: &str = "SELECT m.user_id, u.email, u.username, m.role, m.added_at, m.updated_at
     FROM project_members m CROSS JOIN users u
     WHERE m.project_id = $1 AND u.id = m.user_id AND ($2 = '' OR m.role = $2)
       AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')
     ORDER BY m.added_at DESC, m.user_id LIMIT $4 OFFSET $5";

/// How many there are.
pub const COUNTED: &str = "SELECT COUNT(*) FROM project_members m CROSS JOIN users u
     WHERE m.project_id = $1 AND u.id = m.user_id AND ($2 = '' OR m.role = $2)
       AND (u.email_folded LIKE $3 ESCAPE '\\' OR u.username_folded LIKE $3 ESCAPE '\\')";

/// One page of members, newest first, and how many there are in all.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<Member>), db::Error> {
    if filter.is_open() {
        // However large the project is, its count stands beside it.
        let count: Option<(i64,)> = sql("SELECT members_count FROM projects WHERE id = $1")
            .bind(filter.project_id)
            .optional(tx)
            .await?;
        let total = count.map_or(0, |(count,)| count);
        let rows = match page.window(total) {
            Some(window) => stretch(tx, filter.project_id, window).await?,
            None => Vec::new(),
        };
        return Ok((total, rows));
    }
    let (total,): (i64,) = bind(sql(COUNTED), filter).heavy().one(tx).await?;
    let rows = bind(sql(FILTERED), filter).bind(page.page_size).bind(page.offset()).heavy().all(tx).await?;
    Ok((total, rows))
}

async fn stretch(tx: &mut Tx, project_id: ProjectId, window: Window) -> Result<Vec<Member>, db::Error> {
    let text = if window.from_end { FROM_END } else { FROM_START };
    sql(text).bind(project_id).bind(window.limit).bind(window.offset).all(tx).await
}

fn bind(statement: db::Statement, filter: &Filter) -> db::Statement {
    statement
        .bind(filter.project_id)
        .bind(filter.role.map_or("", ProjectRole::as_str))
        .bind(contains_pattern(&filter.search_folded))
}
