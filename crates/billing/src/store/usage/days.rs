//! Daily rows: adds recorded events to them, and returns the increase of the posted amounts.

use std::sync::LazyLock;

use super::accumulation::{Accumulation, RowLimits, tokens_fit};
use super::recording::RatedEvent;
use super::sum_keys::{SumGroup, SumKey};
use super::totals::{Subject, Totals};
use crate::rules::budgets::Spender;
use crate::rules::invoicing::BilledUsage;
use crate::store::amounts::{PICO_PER_WHOLE, stored_amount, whole_and_rest};
use crate::store::wallets::nano;
use catalog::{Component, Kind, Parts};
use db::sized::{Sizes, values};
use db::{FromRow, Row, Statement, Tx, sql};
use kernel::clock::{Day, Month};
use kernel::ids::{CallerId, OrganizationId, ProjectId};
use kernel::money::{Nano, Pico};

/// Maximum amount of a row in whole units of the currency, positive or negative: in nanos, it takes almost 64
/// bits.
const MAX_WHOLE: i128 = 9_200_000_000;
/// Maximum tokens of either kind in a row, positive or negative.
const MAX_TOKENS: i64 = 4_000_000_000_000_000_000;

/// The key of a daily row. Rows are written in this order, so that two batches can't deadlock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey<'a> {
    pub organization_id: OrganizationId,
    pub(super) project_id: ProjectId,
    pub(super) day: Day,
    pub(super) caller: CallerId,
    pub(super) model: &'a str,
    pub(super) price_version: i64,
    pub(super) kind: &'static str,
    /// The month in which the row is billed.
    pub month: Month,
}

impl<'a> DailyKey<'a> {
    /// Returns the key of the row to which an event belongs if it is billed in this month.
    pub fn of(event: &'a RatedEvent, month: Month) -> Self {
        Self {
            organization_id: event.payer.organization_id,
            project_id: event.payer.project_id,
            day: event.occurred_at.day(),
            caller: event.caller,
            model: &event.model,
            price_version: event.price_version,
            kind: event.kind.as_str(),
            month,
        }
    }

    /// Returns the caller with its project and organization.
    pub(crate) fn spender(&self) -> Spender {
        let Self { organization_id, project_id, caller, .. } = *self;
        Spender { organization_id, project_id, caller: Some(caller) }
    }

    /// Returns the day of the usage.
    pub const fn day(&self) -> Day {
        self.day
    }

    /// Returns the project and, unless a user called, the API key whose totals include the row.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> + use<> {
        let api_key = match self.caller {
            CallerId::ApiKey(id) => Some(Subject::ApiKey(id)),
            CallerId::User(_) => None,
        };
        [Some(Subject::Project(self.project_id)), api_key].into_iter().flatten()
    }

    /// Returns the two rows of `usage_daily_sums` that include the row.
    pub fn sum_keys(&self) -> [SumKey<'a>; 2] {
        let Self { organization_id, project_id, day, kind, .. } = *self;
        [SumGroup::Model(self.model), SumGroup::Caller(self.caller)].map(|group| SumKey {
            organization_id,
            project_id,
            day,
            group,
            kind,
        })
    }

    /// Returns a part of this row as billed usage. `posted` is the amount that the wallet is charged for the
    /// part.
    pub fn used(&self, kind: Kind, sums: &DailySums, posted: Nano) -> BilledUsage {
        BilledUsage {
            model: self.model.to_owned(),
            kind,
            price_version: self.price_version,
            day: self.day,
            prompt_tokens: sums.prompt_tokens,
            completion_tokens: sums.completion_tokens,
            cached_prompt_tokens: sums.cached_prompt_tokens,
            parts: sums.parts,
            amount: sums.amount,
            posted,
        }
    }

    fn matches_row(&self, row: &DailyRow) -> bool {
        (self.organization_id, self.project_id, self.day, self.caller)
            == (row.organization_id, row.project_id, row.day, row.caller)
            && (self.model, self.price_version, self.kind, self.month)
                == (&*row.model, row.price_version, &*row.kind, row.month)
    }
}

/// The sums of events that are added to a daily row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DailySums {
    pub(super) requests: i64,
    pub(super) prompt_tokens: i64,
    pub(super) completion_tokens: i64,
    cached_prompt_tokens: i64,
    pub(super) parts: Parts,
    /// The list price.
    pub amount: Pico,
}

impl DailySums {
    /// Returns the sums of one event. A correction isn't a request.
    pub fn of(event: &RatedEvent) -> Self {
        Self {
            requests: i64::from(event.corrects.is_none()),
            prompt_tokens: event.prompt_tokens,
            completion_tokens: event.completion_tokens,
            cached_prompt_tokens: event.cached_prompt_tokens.unwrap_or_default(),
            parts: event.parts.to_parts(),
            amount: event.amount,
        }
    }

    /// Returns the sums of both; `None` if a row can't hold them.
    pub fn plus(self, other: Self) -> Option<Self> {
        let tokens = |sum: i64, more: i64| {
            sum.checked_add(more).filter(|sum| (-MAX_TOKENS..=MAX_TOKENS).contains(sum))
        };
        let amount = self.amount.checked_add(other.amount)?;
        fits(amount).then_some(())?;
        Some(Self {
            requests: self.requests.checked_add(other.requests)?,
            prompt_tokens: tokens(self.prompt_tokens, other.prompt_tokens)?,
            completion_tokens: tokens(self.completion_tokens, other.completion_tokens)?,
            cached_prompt_tokens: tokens(self.cached_prompt_tokens, other.cached_prompt_tokens)?,
            parts: sum_of_parts(self.parts, other.parts)?,
            amount,
        })
    }

    /// Returns the requests and tokens. Tokens of both kinds together don't exceed 64 bits.
    pub fn totals(&self) -> Totals {
        Totals { requests: self.requests, tokens: self.prompt_tokens + self.completion_tokens }
    }

    /// Returns the stored form of the amount.
    pub(super) fn stored_parts(self) -> Result<(i64, i64), db::Error> {
        stored_amount(self.amount)
    }
}

/// Returns the sums of both; `None` if a row can't hold them.
fn sum_of_parts(one: Parts, other: Parts) -> Option<Parts> {
    let mut sums = one;
    for (part, more) in other.iter() {
        let sum = one.get(part).checked_add(more)?;
        sums.set(part, Some(sum).filter(|sum| (-MAX_TOKENS..=MAX_TOKENS).contains(sum))?);
    }
    Some(sums)
}

/// Returns `true` if a row can hold this amount.
fn fits(amount: Pico) -> bool {
    let max = MAX_WHOLE * PICO_PER_WHOLE;
    (-max..=max).contains(&amount.units())
}

/// A daily row after an addition.
struct DailyRow {
    organization_id: OrganizationId,
    project_id: ProjectId,
    day: Day,
    caller: CallerId,
    model: String,
    price_version: i64,
    kind: String,
    month: Month,
    amount: Pico,
}

impl FromRow for DailyRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            organization_id: row.get("organization_id")?,
            project_id: row.get("project_id")?,
            day: row.get("day")?,
            caller: row.get("api_key_id")?,
            model: row.get("model")?,
            price_version: row.get("price_version")?,
            kind: row.get("kind")?,
            month: row.get("month")?,
            amount: whole_and_rest(row.get("amount_whole")?, row.get("amount_pico")?),
        })
    }
}

const COLUMNS: usize = 16;

/// The limits of a daily row.
const DAILY_LIMITS: RowLimits = RowLimits { whole: MAX_WHOLE, half_tokens: MAX_TOKENS / 2 + 1 };

/// The number by which a server raises `additions` of a daily row with each addition. Earlier versions, which
/// don't keep `usage_daily_sums` or `usage_totals`, raise it by 1 or 0, and triggers keep these tables for
/// them.
const ADDITION: i64 = 2;

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let Accumulation { set, whole, pico, fits } = Accumulation::of("usage_daily", DAILY_LIMITS);
        let cached_fit = tokens_fit("usage_daily", "cached_prompt_tokens", DAILY_LIMITS.half_tokens);
        format!(
            "INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version,
                 kind, day, month, requests, prompt_tokens, completion_tokens, amount_whole, amount_pico,
                 posted_nano, additions, cached_prompt_tokens)
             VALUES {}
             ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind,
                 month) DO UPDATE
             SET {set},
                 cached_prompt_tokens = usage_daily.cached_prompt_tokens + excluded.cached_prompt_tokens,
                 posted_nano = {whole} * 1000000000 + ({pico} - ({pico} % 1000 + 1000) % 1000) / 1000,
                 additions = usage_daily.additions + excluded.additions
             WHERE {fits} AND {cached_fit}
             RETURNING organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                 amount_whole, amount_pico",
            values(rows, COLUMNS)
        )
    })
});

/// Adds to daily rows, which are given in the order of their keys. The same must be added to their sums
/// ([`super::sums::add`]) and totals ([`super::totals::add`]): `additions` signals to the triggers of the
/// table that this happens. Returns the amount of each row before the addition. Returns `None` if a row can't
/// hold the sum; then the caller must not commit.
pub async fn add(tx: &mut Tx, days: &[(DailyKey<'_>, DailySums)]) -> Result<Option<Vec<Pico>>, db::Error> {
    let mut before = Vec::with_capacity(days.len());
    for (text, chunk) in ADD.chunks(days) {
        let mut statement = sql(text).expecting(chunk.len() * COLUMNS);
        for (key, sums) in chunk {
            statement = bind_day(statement, key, sums)?;
        }
        let rows: Vec<DailyRow> = statement.all(tx).await?;
        for (index, (key, sums)) in chunk.iter().enumerate() {
            // The rows usually come in the given order, but the databases don't guarantee it.
            let row = rows.get(index).filter(|row| key.matches_row(row));
            let row = row.or_else(|| rows.iter().find(|row| key.matches_row(row)));
            // The limit in the statement is slightly higher.
            let Some(row) = row.filter(|row| fits(row.amount)) else { return Ok(None) };
            before.push(Pico::from_units(row.amount.units() - sums.amount.units()));
        }
    }
    Ok(add_parts(tx, days).await?.then_some(before))
}

const PART_COLUMNS: usize = 10;

static ADD_PARTS: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let fits = tokens_fit("usage_daily_parts", "quantity", DAILY_LIMITS.half_tokens);
        format!(
            "INSERT INTO usage_daily_parts (organization_id, project_id, day, api_key_id, model, price_version,
                 kind, month, component, quantity)
             VALUES {}
             ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month,
                 component) DO UPDATE
             SET quantity = usage_daily_parts.quantity + excluded.quantity WHERE {fits}",
            values(rows, PART_COLUMNS)
        )
    })
});

/// Adds to the parts of daily rows. Returns `false` if a part can't hold the sum.
async fn add_parts(tx: &mut Tx, days: &[(DailyKey<'_>, DailySums)]) -> Result<bool, db::Error> {
    let parts = days.iter().flat_map(|(key, sums)| sums.parts.iter().map(move |part| (key, part)));
    let parts: Vec<(&DailyKey<'_>, (Component, i64))> = parts.collect();
    let mut changed = 0;
    for (text, chunk) in ADD_PARTS.chunks(&parts) {
        let mut statement = sql(text).expecting(chunk.len() * PART_COLUMNS);
        for (key, (component, quantity)) in chunk {
            statement = statement
                .bind(key.organization_id)
                .bind(key.project_id)
                .bind(key.day)
                .bind(key.caller)
                .bind(key.model)
                .bind(key.price_version)
                .bind(key.kind)
                .bind(key.month)
                .bind(component.as_str())
                .bind(*quantity);
        }
        changed += statement.execute(tx).await?;
    }
    Ok(u64::try_from(parts.len()) == Ok(changed))
}

fn bind_day(statement: Statement, key: &DailyKey<'_>, sums: &DailySums) -> Result<Statement, db::Error> {
    let (posted, (whole, pico)) = (sums.amount.floor_nano(), sums.stored_parts()?);
    Ok(statement
        .bind(key.organization_id)
        .bind(key.project_id)
        .bind(key.caller)
        .bind(key.model)
        .bind(key.price_version)
        .bind(key.kind)
        .bind(key.day)
        .bind(key.month)
        .bind(sums.requests)
        .bind(sums.prompt_tokens)
        .bind(sums.completion_tokens)
        .bind(whole)
        .bind(pico)
        .bind(nano(posted)?)
        .bind(ADDITION)
        .bind(sums.cached_prompt_tokens))
}
