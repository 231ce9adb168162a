//! Lists of the API keys of a project.

use std::sync::LazyLock;

use db::window::Window;
use db::{Page, Statement, Tx, contains_pattern, sql};
use kernel::clock::Time;
use kernel::ids::ProjectId;

use super::{ApiKey, COLUMNS, JOINED};

/// A status of keys, computed from the clock, so that it doesn't depend on a job
/// (docs/contract/api-keys.md#api-key).
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StatusFilter {
    /// Not expired.
    Active,
    /// Expired.
    Expired,
}

/// The filter of a list of keys.
#[derive(Clone, Debug)]
pub struct Filter {
    pub project_id: ProjectId,
    /// Text that the folded name must contain.
    pub search_folded: String,
    /// The status that a key must have; `None` for all.
    pub status: Option<StatusFilter>,
    /// The time that determines the status.
    pub now: Time,
}

/// Selects a page of all keys of a project, newest first. The rows before the page are skipped in the index,
/// and the table is read only for the page. `CROSS JOIN` forces SQLite to join in this order.
pub static FROM_START: LazyLock<String> = LazyLock::new(|| all_from("created_at DESC, id"));

/// Selects the same as [`FROM_START`], but skips the rows after the page.
pub static FROM_END: LazyLock<String> = LazyLock::new(|| all_from("created_at, id DESC"));

fn all_from(order: &str) -> String {
    let page = format!("SELECT id FROM api_keys WHERE project_id = $1 ORDER BY {order} LIMIT $2 OFFSET $3");
    of_page(&page)
}

/// Returns the statement that reads the keys of a page, newest first; `page` is the statement that selects
/// their ids. The limit is the maximum page size as a literal, because PostgreSQL plans without the value of
/// a parameter, and would expect a tenth of all keys.
fn of_page(page: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM (SELECT id FROM ({page}) of_page LIMIT 100) page CROSS JOIN {JOINED}
         WHERE k.id = page.id ORDER BY k.created_at DESC, k.id"
    )
}

/// Selects the number of all keys of a project, which is stored in its row.
const TOTAL: &str = "SELECT api_keys_count FROM projects WHERE id = $1";

const MATCHING: &str = "FROM api_keys m WHERE m.project_id = $1 AND m.name_folded LIKE $2 ESCAPE '\\'
       AND ($3 = '' OR CASE WHEN m.expires_at IS NOT NULL AND m.expires_at <= $4 THEN 'expired' ELSE 'active' END = $3)";

/// Selects a page of the matching keys, newest first.
pub static FILTERED: LazyLock<String> = LazyLock::new(|| {
    of_page(&format!("SELECT m.id {MATCHING} ORDER BY m.created_at DESC, m.id LIMIT $5 OFFSET $6"))
});

/// Selects the number of matching keys.
pub static FILTERED_COUNT: LazyLock<String> = LazyLock::new(|| format!("SELECT COUNT(*) {MATCHING}"));

/// Returns the total number of keys, and one page of them, newest first.
pub async fn list(tx: &mut Tx, filter: &Filter, page: Page) -> Result<(i64, Vec<ApiKey>), db::Error> {
    if filter.search_folded.is_empty() && filter.status.is_none() {
        let total: Option<(i64,)> = sql(TOTAL).bind(filter.project_id).optional(tx).await?;
        let total = total.map_or(0, |(total,)| total);
        let rows = match Window::of(page, total) {
            Some(window) => fetch_window(tx, filter.project_id, window).await?,
            None => Vec::new(),
        };
        return Ok((total, rows));
    }
    let (total,): (i64,) = bind(&FILTERED_COUNT, filter).heavy().one(tx).await?;
    let rows = bind(&FILTERED, filter).bind(page.page_size).bind(page.offset());
    Ok((total, rows.heavy().all(tx).await?))
}

async fn fetch_window(tx: &mut Tx, project_id: ProjectId, window: Window) -> Result<Vec<ApiKey>, db::Error> {
    let text = if window.from_end { &FROM_END } else { &FROM_START };
    sql(text.as_str()).bind(project_id).bind(window.limit).bind(window.offset).all(tx).await
}

fn bind(text: &'static str, filter: &Filter) -> Statement {
    sql(text)
        .bind(filter.project_id)
        .bind(contains_pattern(&filter.search_folded))
        .bind(match filter.status {
            None => "",
            Some(StatusFilter::Active) => "active",
            Some(StatusFilter::Expired) => "expired",
        })
        .bind(filter.now)
}
