//! Lists of the projects in an organization that a caller can view.
//!
//! The statement depends on the caller, so that each statement can use an index. A caller who manages the
//! organization's projects can view all of them, a member can view their own projects and public projects,
//! and an API key can view at most its own project.

use std::sync::LazyLock;

use crate::roles::{OrganizationAction, OrganizationRole, ProjectRole, Visibility};
use db::window::Window;
use db::{Page, Statement, Tx, contains_pattern, sql};
use kernel::clock::Time;
use kernel::ids::{OrganizationId, ProjectId, UserId};

/// A project in a list, with the caller's explicit role in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedProject {
    pub id: ProjectId,
    pub name: String,
    pub description: Option<String>,
    pub visibility: Visibility,
    pub created_at: Time,
    pub updated_at: Time,
    /// The caller's explicit role. Not read if the caller manages every project.
    pub role: Option<ProjectRole>,
    /// `true` if every member of the organization may view the project. Not read if the caller manages every
    /// project.
    pub open_to_organization: bool,
}

db::row!(ListedProject {
    id,
    name,
    description,
    visibility,
    created_at,
    updated_at,
    role,
    open_to_organization
});

/// The filter of a list of the projects that the caller can view.
#[derive(Clone, Debug)]
pub struct Filter {
    pub organization_id: OrganizationId,
    /// The caller.
    pub user_id: UserId,
    /// The caller's role in the organization.
    pub organization_role: OrganizationRole,
    /// The only project to list, for an API key.
    pub only: Option<ProjectId>,
    /// The text that the folded name must contain; empty for all projects.
    pub search_folded: String,
    /// The effective role that the caller must have; `None` for all.
    pub role: Option<ProjectRole>,
}

impl Filter {
    /// Returns `true` if the caller manages every project, so that their effective role is owner in all
    /// projects ([`crate::roles::effective_project_role`]).
    fn manages(&self) -> bool {
        self.organization_role.allows(OrganizationAction::ManageProjects)
    }
}

/// The columns of a [`ListedProject`] in the table `p`, without the columns that depend on the caller.
const COLUMNS: &str = "p.id, p.name, p.description, p.visibility, p.created_at, p.updated_at";

/// A page of all projects, newest first. Rows before the page are skipped in the index, and the table is read
/// only for the page. `CROSS JOIN` makes SQLite join the tables in this order.
pub static FROM_START: LazyLock<String> = LazyLock::new(|| all_from("created_at DESC, id"));

/// Does the same as [`FROM_START`], but skips the rows after the page.
pub static FROM_END: LazyLock<String> = LazyLock::new(|| all_from("created_at, id DESC"));

fn all_from(order: &str) -> String {
    format!(
        "SELECT {COLUMNS}, CAST(NULL AS TEXT) AS role, 0 AS open_to_organization
         FROM (SELECT id FROM projects WHERE organization_id = $1 ORDER BY {order} LIMIT $2 OFFSET $3) page
         CROSS JOIN projects p WHERE p.id = page.id ORDER BY p.created_at DESC, p.id"
    )
}

/// A page of all projects whose name matches, newest first.
pub static SEARCHED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {COLUMNS}, CAST(NULL AS TEXT) AS role, 0 AS open_to_organization
         FROM projects p WHERE p.organization_id = $1 AND p.name_folded LIKE $2 ESCAPE '\\'
         ORDER BY p.created_at DESC, p.id LIMIT $3 OFFSET $4"
    )
});

/// The number of projects whose name matches.
pub const SEARCHED_COUNT: &str =
    "SELECT COUNT(*) FROM projects p WHERE p.organization_id = $1 AND p.name_folded LIKE $2 ESCAPE '\\'";

/// A member's own projects, and the other public projects if the organization allows public projects.
const VISIBLE: &str =
    "FROM (SELECT a.id, a.name, a.name_folded, a.description, a.visibility, a.created_at, a.updated_at,
                  m.role AS role, 0 AS open_to_organization
           FROM project_members m CROSS JOIN projects a
           WHERE m.user_id = $2 AND a.id = m.project_id AND a.organization_id = $1
           UNION ALL
           SELECT b.id, b.name, b.name_folded, b.description, b.visibility, b.created_at, b.updated_at,
                  NULL AS role, 1 AS open_to_organization FROM projects b
           WHERE b.organization_id = $1 AND b.visibility = 'public'
             AND EXISTS (SELECT 1 FROM organizations o WHERE o.id = $1 AND o.allow_public_projects = 1)
             AND NOT EXISTS (SELECT 1 FROM project_members n WHERE n.project_id = b.id AND n.user_id = $2)) p
     WHERE p.name_folded LIKE $3 ESCAPE '\\' AND ($4 = '' OR COALESCE(p.role, 'viewer') = $4)";

/// The number of projects in `VISIBLE`. Public projects aren't counted, because the organization's row
/// contains their number.
pub const VISIBLE_TOTAL: &str = "SELECT
     (SELECT COUNT(*) FROM project_members m CROSS JOIN projects a
      WHERE m.user_id = $2 AND a.id = m.project_id AND a.organization_id = $1
        AND (o.allow_public_projects = 0 OR a.visibility <> 'public'))
     + CASE WHEN o.allow_public_projects = 1 THEN o.public_projects_count ELSE 0 END AS total
     FROM organizations o WHERE o.id = $1";

/// Returns the statement of a page of `VISIBLE`, counted from its start or its end. It reads only as many own
/// and public projects as the page could contain.
pub fn visible_window(from_end: bool) -> String {
    let order = if from_end { "created_at, id DESC" } else { "created_at DESC, id" };
    format!(
        "SELECT {COLUMNS}, page.role AS role, page.is_open AS open_to_organization
         FROM (SELECT id, created_at, role, is_open FROM
                   (SELECT a.id, a.created_at, m.role AS role, 0 AS is_open FROM project_members m CROSS JOIN projects a
                    WHERE m.user_id = $2 AND a.id = m.project_id AND a.organization_id = $1
                    ORDER BY {order} LIMIT $3) own
               UNION ALL
               SELECT id, created_at, role, is_open FROM
                   (SELECT b.id, b.created_at, CAST(NULL AS TEXT) AS role, 1 AS is_open FROM projects b
                    WHERE b.organization_id = $1 AND b.visibility = 'public'
                      AND (SELECT o.allow_public_projects FROM organizations o WHERE o.id = $1) = 1
                      AND NOT EXISTS (SELECT 1 FROM project_members n WHERE n.project_id = b.id AND n.user_id = $2)
                    ORDER BY {order} LIMIT $3) others
               ORDER BY {order} LIMIT $4 OFFSET $5) page
         CROSS JOIN projects p WHERE p.id = page.id ORDER BY p.created_at DESC, p.id"
    )
}

/// The project of an API key, if the caller can view it.
const ONE: &str = "FROM projects p JOIN organizations o ON o.id = p.organization_id
     LEFT JOIN project_members m ON m.project_id = p.id AND m.user_id = $2
     WHERE p.id = $5 AND p.organization_id = $1 AND p.name_folded LIKE $3 ESCAPE '\\'
       AND ($6 = 1 OR m.role IS NOT NULL OR (p.visibility = 'public' AND o.allow_public_projects = 1))
       AND ($4 = '' OR CASE WHEN $6 = 1 THEN 'owner' ELSE COALESCE(m.role, 'viewer') END = $4)";

/// Returns the number of projects that the caller can view, and one page of them, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<ListedProject>), db::Error> {
    match filter.only {
        Some(only) => one(tx, filter, only, page).await,
        None if !filter.manages() => visible(tx, filter, page).await,
        None => match filter.role {
            None | Some(ProjectRole::Owner) => all(tx, filter, page).await,
            Some(_) => Ok((0, Vec::new())),
        },
    }
}

async fn all(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<ListedProject>), db::Error> {
    let organization_id = filter.organization_id;
    if filter.search_folded.is_empty() {
        // The organization's row contains the count, so the projects aren't counted.
        let count: Option<(i64,)> = sql("SELECT projects_count FROM organizations WHERE id = $1")
            .bind(organization_id)
            .optional(tx)
            .await?;
        let total = count.map_or(0, |(count,)| count);
        let rows = match Window::of(page, total) {
            Some(window) => fetch_window(tx, organization_id, window).await?,
            None => Vec::new(),
        };
        return Ok((total, rows));
    }
    let pattern = contains_pattern(&filter.search_folded);
    let count = sql(SEARCHED_COUNT).bind(organization_id).bind(pattern.as_str());
    let (total,): (i64,) = count.heavy().one(tx).await?;
    let rows =
        sql(SEARCHED.as_str()).bind(organization_id).bind(pattern).bind(page.page_size).bind(page.offset());
    Ok((total, rows.heavy().all(tx).await?))
}

async fn fetch_window(
    tx: &mut Tx,
    organization_id: OrganizationId,
    window: Window,
) -> Result<Vec<ListedProject>, db::Error> {
    let text = if window.from_end { &FROM_END } else { &FROM_START };
    sql(text.as_str()).bind(organization_id).bind(window.limit).bind(window.offset).all(tx).await
}

/// Returns the statement of a page of `VISIBLE` with a filter.
pub fn visible_page() -> String {
    format!(
        "SELECT {COLUMNS}, p.role, p.open_to_organization {VISIBLE} ORDER BY p.created_at DESC, p.id LIMIT $5 OFFSET $6"
    )
}

async fn visible(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<ListedProject>), db::Error> {
    if filter.search_folded.is_empty() && filter.role.is_none() {
        let (organization_id, user_id) = (filter.organization_id, filter.user_id);
        let total: Option<(i64,)> =
            sql(VISIBLE_TOTAL).bind(organization_id).bind(user_id).optional(tx).await?;
        let total = total.map_or(0, |(total,)| total);
        let Some(window) = Window::of(page, total) else {
            return Ok((total, Vec::new()));
        };
        let rows = sql(visible_window(window.from_end))
            .bind(organization_id)
            .bind(user_id)
            .bind(window.offset.saturating_add(window.limit))
            .bind(window.limit)
            .bind(window.offset);
        return Ok((total, rows.heavy().all(tx).await?));
    }
    let count = bind(sql(format!("SELECT COUNT(*) {VISIBLE}")), filter);
    let (total,): (i64,) = count.heavy().one(tx).await?;
    let rows = bind(sql(visible_page()), filter).bind(page.page_size).bind(page.offset());
    Ok((total, rows.heavy().all(tx).await?))
}

async fn one(
    tx: &mut Tx,
    filter: &Filter,
    only: ProjectId,
    page: Page,
) -> Result<(i64, Vec<ListedProject>), db::Error> {
    let text = format!(
        "SELECT {COLUMNS}, m.role AS role,
                CASE WHEN p.visibility = 'public' AND o.allow_public_projects = 1 THEN 1 ELSE 0 END AS open_to_organization
         {ONE}"
    );
    let row = bind(sql(text), filter).bind(only).bind(filter.manages()).optional(tx).await?;
    let total = i64::from(row.is_some());
    Ok((total, row.into_iter().filter(|_| Window::of(page, total).is_some()).collect()))
}

fn bind(statement: Statement, filter: &Filter) -> Statement {
    statement
        .bind(filter.organization_id)
        .bind(filter.user_id)
        .bind(contains_pattern(&filter.search_folded))
        .bind(filter.role.map_or("", ProjectRole::as_str))
}
