//! Budgets, and their use. Only the holder of the wallet's lock writes these tables.

use std::sync::LazyLock;

use crate::rules::budgets::{Period, Subject, Thresholds};
use crate::store::amounts::{PICO_PER_WHOLE, whole_and_rest};
use crate::store::wallets::nano;
use db::sized::Sizes;
use db::{FromRow, Page, Row, Tx, sql};
use kernel::clock::{Day, Time};
use kernel::error::Error;
use kernel::ids::{ApiKeyId, BudgetId, OrganizationId, ProjectId};
use kernel::money::{Nano, Pico};
use kernel::version::Version;

/// A budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    pub id: BudgetId,
    pub organization_id: OrganizationId,
    pub subject: Subject,
    /// The project, or the project of the API key.
    pub project_id: Option<ProjectId>,
    pub name: String,
    pub period: Period,
    /// The maximum amount that may be used in a period.
    pub limit: Nano,
    /// `true` if calls that could exceed the limit are refused.
    pub hard: bool,
    pub thresholds: Thresholds,
    /// The sum of the live reservations.
    pub reserved: Nano,
    pub created_at: Time,
    pub updated_at: Time,
}

db::row!(Budget {
    id,
    organization_id,
    subject: "subject_id",
    project_id,
    name,
    period,
    limit: "limit_nano",
    hard,
    thresholds,
    reserved: "reserved_nano",
    created_at,
    updated_at
});

impl Budget {
    /// Returns the version of the fields that users change. The spent amount isn't included, because it
    /// changes all the time.
    ///
    /// # Errors
    /// The budget can't be written as JSON.
    pub fn version(&self) -> Result<Version, Error> {
        let Self { id, name, limit, hard, thresholds, updated_at, .. } = self;
        Version::of(&(id, name, limit, hard, thresholds.to_string(), updated_at))
    }

    /// Returns the first day of the first counted period, which is the one in which the budget was created.
    pub fn first_period(&self) -> Day {
        self.period.start(self.created_at.day())
    }

    /// Returns the API key that is the budget's subject, if any.
    pub const fn api_key_id(&self) -> Option<ApiKeyId> {
        match self.subject {
            Subject::ApiKey(id) => Some(id),
            Subject::Organization(_) | Subject::Project(_) => None,
        }
    }
}

/// The use of a budget in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Use {
    /// The list price of the usage.
    pub spent: Pico,
    /// The highest threshold that was reached, in percent; 0 if none was.
    pub highest_threshold: i64,
}

/// A budget with its use in one period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BudgetAndUse {
    pub budget: Budget,
    pub used: Use,
}

impl FromRow for BudgetAndUse {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self { budget: Budget::from_row(row)?, used: Use::from_row(row)? })
    }
}

impl FromRow for Use {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            spent: whole_and_rest(row.get("spent_whole")?, row.get("spent_pico")?),
            highest_threshold: row.get("highest_threshold")?,
        })
    }
}

/// Returns the amount in whole units and pico, the stored form.
pub(super) fn parts(amount: Pico) -> Result<(i64, i64), db::Error> {
    let part = |units| {
        i64::try_from(units).map_err(|_| db::Error::Internal(format!("{amount} doesn't fit in 64 bits")))
    };
    Ok((part(amount.units() / PICO_PER_WHOLE)?, part(amount.units() % PICO_PER_WHOLE)?))
}

/// Selects budgets `b` with their use in the period of the day `$1`, whose month begins on the day `$2`.
const SELECT: &str = "SELECT b.id, b.organization_id, b.subject_id, b.project_id, b.name, b.period,
         b.limit_nano, b.hard, b.thresholds, b.reserved_nano, b.created_at, b.updated_at,
         COALESCE(u.spent_whole, 0) AS spent_whole, COALESCE(u.spent_pico, 0) AS spent_pico,
         COALESCE((SELECT MAX(a.threshold) FROM budget_alerts a
             WHERE a.budget_id = b.id AND a.period_start
                 = CASE b.period WHEN 'day' THEN CAST($1 AS BIGINT) WHEN 'month' THEN CAST($2 AS BIGINT)
                   ELSE 0 END), 0) AS highest_threshold
     FROM budgets b LEFT JOIN budget_uses u ON u.budget_id = b.id AND u.period_start
         = CASE b.period WHEN 'day' THEN CAST($1 AS BIGINT) WHEN 'month' THEN CAST($2 AS BIGINT) ELSE 0 END";

/// The statements of [`of_subjects`].
pub static OF_SUBJECTS: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let subjects: Vec<_> = (3..rows + 3).map(|number| format!("${number}")).collect();
        format!("{SELECT} WHERE b.subject_id IN ({})", subjects.join(", "))
    })
});

/// Returns the budgets of these subjects with their use in the period of `today`. The wallets must be locked.
pub async fn of_subjects(
    tx: &mut Tx,
    subjects: &[Subject],
    today: Day,
) -> Result<Vec<BudgetAndUse>, db::Error> {
    let mut budgets = Vec::new();
    for (text, chunk) in OF_SUBJECTS.chunks(subjects) {
        let statement = sql(text).bind(today).bind(today.month_start());
        let statement = chunk.iter().fold(statement, |statement, subject| statement.bind(*subject));
        budgets.extend(statement.all::<BudgetAndUse>(tx).await?);
    }
    Ok(budgets)
}

/// The statement of [`page`].
pub static PAGE: LazyLock<String> =
    LazyLock::new(|| format!("{SELECT} WHERE b.organization_id = $3 ORDER BY b.id DESC LIMIT $4 OFFSET $5"));

/// Returns one page of an organization's budgets, the newest first, with their use in the period of `today`.
pub async fn page(
    tx: &mut Tx,
    organization_id: OrganizationId,
    today: Day,
    page: Page,
) -> Result<Vec<BudgetAndUse>, db::Error> {
    sql(PAGE.as_str())
        .bind(today)
        .bind(today.month_start())
        .bind(organization_id)
        .bind(page.page_size)
        .bind(page.offset())
        .all(tx)
        .await
}

/// The statement of [`get`].
pub static GET: LazyLock<String> =
    LazyLock::new(|| format!("{SELECT} WHERE b.organization_id = $3 AND b.id = $4"));

/// Returns a budget of an organization with its use in the period of `today`.
pub async fn get(
    tx: &mut Tx,
    organization_id: OrganizationId,
    id: BudgetId,
    today: Day,
) -> Result<Option<BudgetAndUse>, db::Error> {
    sql(GET.as_str()).bind(today).bind(today.month_start()).bind(organization_id).bind(id).optional(tx).await
}

/// Returns the number of an organization's budgets.
pub async fn count(tx: &mut Tx, organization_id: OrganizationId) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM budgets WHERE organization_id = $1").bind(organization_id).one(tx).await?;
    Ok(count)
}

/// Returns the number of budgets of a subject.
pub async fn count_of_subject(tx: &mut Tx, subject: Subject) -> Result<i64, db::Error> {
    let (count,): (i64,) =
        sql("SELECT COUNT(*) FROM budgets WHERE subject_id = $1").bind(subject).one(tx).await?;
    Ok(count)
}

/// Adds a budget, and counts it in the wallet, which must be locked.
///
/// # Errors
/// [`db::Error::Unique`] if the organization has a budget with this name.
pub async fn insert(tx: &mut Tx, budget: &Budget, name_folded: &str) -> Result<(), db::Error> {
    sql("INSERT INTO budgets (id, organization_id, scope, subject_id, project_id, name, period, limit_nano,
             hard, thresholds, reserved_nano, created_at, updated_at, name_folded)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)")
    .bind(budget.id)
    .bind(budget.organization_id)
    .bind(budget.subject.scope())
    .bind(budget.subject)
    .bind(budget.project_id)
    .bind(budget.name.as_str())
    .bind(budget.period)
    .bind(nano(budget.limit)?)
    .bind(budget.hard)
    .bind(&budget.thresholds)
    .bind(nano(budget.reserved)?)
    .bind(budget.created_at)
    .bind(budget.updated_at)
    .bind(name_folded)
    .execute(tx)
    .await?;
    add_to_count(tx, budget.organization_id, 1).await
}

/// Writes the fields of a budget that users change. `name_folded` is the folded form of a new name.
///
/// # Errors
/// [`db::Error::Unique`] if the organization has another budget with this name.
pub async fn update(tx: &mut Tx, budget: &Budget, name_folded: Option<&str>) -> Result<(), db::Error> {
    sql("UPDATE budgets SET name = $2, limit_nano = $3, hard = $4, thresholds = $5, updated_at = $6,
             name_folded = COALESCE($7, name_folded)
         WHERE id = $1")
    .bind(budget.id)
    .bind(budget.name.as_str())
    .bind(nano(budget.limit)?)
    .bind(budget.hard)
    .bind(&budget.thresholds)
    .bind(budget.updated_at)
    .bind(name_folded)
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes a budget with its records.
pub async fn delete(tx: &mut Tx, budget: &Budget) -> Result<(), db::Error> {
    sql("DELETE FROM budget_alerts WHERE budget_id = $1").bind(budget.id).defer(tx).await?;
    sql("DELETE FROM budget_uses WHERE budget_id = $1").bind(budget.id).defer(tx).await?;
    sql("DELETE FROM budgets WHERE id = $1").bind(budget.id).defer(tx).await?;
    add_to_count(tx, budget.organization_id, -1).await
}

/// Deletes all budgets of an organization.
pub async fn delete_all(tx: &mut Tx, organization_id: OrganizationId) -> Result<(), db::Error> {
    for text in [
        "DELETE FROM budget_alerts WHERE budget_id IN (SELECT id FROM budgets WHERE organization_id = $1)",
        "DELETE FROM budget_uses WHERE budget_id IN (SELECT id FROM budgets WHERE organization_id = $1)",
        "DELETE FROM budgets WHERE organization_id = $1",
        "UPDATE wallets SET budgets = 0 WHERE organization_id = $1",
    ] {
        sql(text).bind(organization_id).defer(tx).await?;
    }
    Ok(())
}

async fn add_to_count(tx: &mut Tx, organization_id: OrganizationId, more: i64) -> Result<(), db::Error> {
    sql("UPDATE wallets SET budgets = budgets + $2 WHERE organization_id = $1")
        .bind(organization_id)
        .bind(more)
        .defer(tx)
        .await
}

/// Sets the sum of the live reservations of a budget.
pub async fn set_reserved(tx: &mut Tx, id: BudgetId, reserved: Nano) -> Result<(), db::Error> {
    sql("UPDATE budgets SET reserved_nano = $2 WHERE id = $1").bind(id).bind(nano(reserved)?).defer(tx).await
}

/// Returns the use of a budget in the period that begins on this day.
pub async fn used(tx: &mut Tx, id: BudgetId, period_start: Day) -> Result<Use, db::Error> {
    let used = sql("SELECT spent_whole, spent_pico,
             COALESCE((SELECT MAX(a.threshold) FROM budget_alerts a
                 WHERE a.budget_id = $1 AND a.period_start = $2), 0) AS highest_threshold
         FROM budget_uses WHERE budget_id = $1 AND period_start = $2")
    .bind(id)
    .bind(period_start)
    .optional(tx)
    .await?;
    Ok(used.unwrap_or_default())
}

/// Sets the spent amount of a budget in the period that begins on this day.
pub async fn set_spent(tx: &mut Tx, id: BudgetId, period_start: Day, spent: Pico) -> Result<(), db::Error> {
    let (whole, pico) = parts(spent)?;
    sql("INSERT INTO budget_uses (budget_id, period_start, spent_whole, spent_pico) VALUES ($1, $2, $3, $4)
         ON CONFLICT (budget_id, period_start) DO UPDATE
         SET spent_whole = excluded.spent_whole, spent_pico = excluded.spent_pico")
    .bind(id)
    .bind(period_start)
    .bind(whole)
    .bind(pico)
    .defer(tx)
    .await
}

const SUMS: &str = "SELECT day,
         CAST(SUM(amount_whole + amount_pico / 1000000000000) AS BIGINT) AS amount_whole,
         CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS amount_pico
     FROM usage_daily WHERE organization_id = $1 AND day >= $2";

/// The statements of [`usage_since`]: of an organization, a project and an API key.
pub static USAGE_SINCE: LazyLock<[String; 3]> = LazyLock::new(|| {
    ["", " AND project_id = $3", " AND project_id = $3 AND api_key_id = $4"]
        .map(|condition| format!("{SUMS}{condition} GROUP BY day"))
});

/// Returns the list price of the usage of a budget's subject, by day, from this day on. The wallet must be
/// locked: other transactions may have additions to daily rows that aren't committed yet, and they see the
/// budget when they lock the wallet.
pub async fn usage_since(tx: &mut Tx, budget: &Budget, first: Day) -> Result<Vec<(Day, Pico)>, db::Error> {
    let [of_organization, of_project, of_key] = &*USAGE_SINCE;
    let statement = match budget.subject {
        Subject::Organization(_) => sql(of_organization.as_str()),
        Subject::Project(_) => sql(of_project.as_str()),
        Subject::ApiKey(_) => sql(of_key.as_str()),
    };
    let mut statement = statement.bind(budget.organization_id).bind(first);
    if let Some(project_id) = budget.project_id {
        statement = statement.bind(project_id);
    }
    if let Some(api_key_id) = budget.api_key_id() {
        statement = statement.bind(api_key_id);
    }
    let rows: Vec<(Day, i64, i64)> = statement.heavy().all(tx).await?;
    Ok(rows.into_iter().map(|(day, whole, pico)| (day, whole_and_rest(whole, pico))).collect())
}

/// The statements of [`reserved`]: of an organization, a project and an API key.
pub static RESERVED: LazyLock<[String; 3]> = LazyLock::new(|| {
    ["", " AND project_id = $2", " AND project_id = $2 AND api_key_id = $3"].map(|condition| {
        format!(
            "SELECT CAST(COALESCE(SUM(amount_nano), 0) AS BIGINT) FROM reservations
             WHERE organization_id = $1{condition}"
        )
    })
});

/// Returns the sum of the live reservations of a budget's subject. The wallet must be locked.
pub async fn reserved(tx: &mut Tx, budget: &Budget) -> Result<Nano, db::Error> {
    let [of_organization, of_project, of_key] = &*RESERVED;
    let statement = match budget.subject {
        Subject::Organization(_) => sql(of_organization.as_str()),
        Subject::Project(_) => sql(of_project.as_str()),
        Subject::ApiKey(_) => sql(of_key.as_str()),
    };
    let mut statement = statement.bind(budget.organization_id);
    if let Some(project_id) = budget.project_id {
        statement = statement.bind(project_id);
    }
    if let Some(api_key_id) = budget.api_key_id() {
        statement = statement.bind(api_key_id);
    }
    let (reserved,): (Nano,) = statement.one(tx).await?;
    Ok(reserved)
}

/// Returns `true` if the organization has this project.
pub async fn has_project(
    tx: &mut Tx,
    organization_id: OrganizationId,
    project_id: ProjectId,
) -> Result<bool, db::Error> {
    let found: Option<(ProjectId,)> = sql("SELECT id FROM projects WHERE id = $1 AND organization_id = $2")
        .bind(project_id)
        .bind(organization_id)
        .optional(tx)
        .await?;
    Ok(found.is_some())
}

/// Returns the project of an API key of the organization; `None` if it has no such key.
pub async fn project_of_key(
    tx: &mut Tx,
    organization_id: OrganizationId,
    api_key_id: ApiKeyId,
) -> Result<Option<ProjectId>, db::Error> {
    let found: Option<(ProjectId,)> =
        sql("SELECT project_id FROM api_keys WHERE id = $1 AND organization_id = $2")
            .bind(api_key_id)
            .bind(organization_id)
            .optional(tx)
            .await?;
    Ok(found.map(|(project_id,)| project_id))
}

const NAMES: &str = "SELECT b.id, COALESCE((SELECT p.name FROM projects p WHERE p.id = b.subject_id),
         (SELECT k.name FROM api_keys k WHERE k.id = b.subject_id)) AS name
     FROM budgets b WHERE b.organization_id = $1";

static NAMES_OF_PAGE: LazyLock<String> =
    LazyLock::new(|| format!("{NAMES} ORDER BY b.id DESC LIMIT $2 OFFSET $3"));
static NAME: LazyLock<String> = LazyLock::new(|| format!("{NAMES} AND b.id = $2"));

/// Returns the names of the projects and keys that are the subjects of a page of budgets; `None` for deleted
/// ones.
pub async fn subject_names(
    tx: &mut Tx,
    organization_id: OrganizationId,
    page: Page,
) -> Result<Vec<(BudgetId, Option<String>)>, db::Error> {
    let statement = sql(NAMES_OF_PAGE.as_str()).bind(organization_id);
    statement.bind(page.page_size).bind(page.offset()).all(tx).await
}

/// Returns the name of the project or key that is the subject of a budget; `None` if it was deleted.
pub async fn subject_name(
    tx: &mut Tx,
    organization_id: OrganizationId,
    id: BudgetId,
) -> Result<Option<String>, db::Error> {
    let found: Option<(BudgetId, Option<String>)> =
        sql(NAME.as_str()).bind(organization_id).bind(id).optional(tx).await?;
    Ok(found.and_then(|(_, name)| name))
}
