//! What recorded events add to daily rows, and by how much that raises what is posted.

use std::sync::LazyLock;

use super::recording::{RatedEvent, pico};
use crate::catalog::Kind;
use crate::clock::{Day, Month};
use crate::db::{self, FromRow, Row, Statement, Tx, sql};
use crate::ids::{ApiKeyId, OrganizationId, ProjectId};
use crate::money::{Nano, Pico};
use crate::rules::invoicing::Used;
use crate::store::sized::{Sizes, values};

/// What a daily row is for. Rows are written in this order, so that two batches never wait for each other in a circle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DailyKey<'a> {
    /// The tenant.
    pub organization_id: OrganizationId,
    project_id: ProjectId,
    day: Day,
    api_key_id: ApiKeyId,
    model: &'a str,
    price_version: i64,
    kind: &'static str,
    /// The month in which it is counted.
    pub month: Month,
}

impl<'a> DailyKey<'a> {
    /// The row that this event belongs to when it is counted in this month.
    pub fn of(event: &'a RatedEvent, month: Month) -> Self {
        Self {
            organization_id: event.payer.organization_id,
            project_id: event.payer.project_id,
            day: event.occurred_at.day(),
            api_key_id: event.api_key_id,
            model: &event.model,
            price_version: event.price_version,
            kind: event.kind.as_str(),
            month,
        }
    }

    /// A part of this row as it stands on bills; `posted` is what the wallet is charged for it.
    pub fn used(&self, kind: Kind, sums: &DailySums, posted: Nano) -> Used {
        Used {
            model: self.model.to_owned(),
            kind,
            price_version: self.price_version,
            day: self.day,
            prompt_tokens: sums.prompt_tokens,
            completion_tokens: sums.completion_tokens,
            amount: sums.amount,
            posted,
        }
    }

    fn is_of(&self, row: &DailyRow) -> bool {
        (self.organization_id, self.project_id, self.day, self.api_key_id)
            == (row.organization_id, row.project_id, row.day, row.api_key_id)
            && (self.model, self.price_version, self.kind, self.month)
                == (&*row.model, row.price_version, &*row.kind, row.month)
    }
}

/// What events add to a daily row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DailySums {
    requests: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    /// The price of it all.
    pub amount: Pico,
}

impl DailySums {
    /// The sums with this event; `None` past 64 bits of tokens. A correction is no request.
    pub fn plus(self, event: &RatedEvent) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(i64::from(event.corrects.is_none()))?,
            prompt_tokens: self.prompt_tokens.checked_add(event.prompt_tokens)?,
            completion_tokens: self.completion_tokens.checked_add(event.completion_tokens)?,
            amount: self.amount.checked_add(event.amount)?,
        })
    }
}

/// A daily row after it was added to.
struct DailyRow {
    organization_id: OrganizationId,
    project_id: ProjectId,
    day: Day,
    api_key_id: ApiKeyId,
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
            api_key_id: row.get("api_key_id")?,
            model: row.get("model")?,
            price_version: row.get("price_version")?,
            kind: row.get("kind")?,
            month: row.get("month")?,
            amount: Pico::from_units(row.get::<i64>("amount_pico")?.into()),
        })
    }
}

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        // Whole nanos, rounded down: the databases themselves round towards zero.
        let amount = "(usage_daily.amount_pico + excluded.amount_pico)";
        format!(
            "INSERT INTO usage_daily (organization_id, project_id, api_key_id, model, price_version, kind, day, month,
                requests, prompt_tokens, completion_tokens, amount_pico, posted_nano)
             VALUES {}
             ON CONFLICT (organization_id, project_id, day, api_key_id, model, price_version, kind, month) DO UPDATE
             SET requests = usage_daily.requests + excluded.requests,
                 prompt_tokens = usage_daily.prompt_tokens + excluded.prompt_tokens,
                 completion_tokens = usage_daily.completion_tokens + excluded.completion_tokens,
                 amount_pico = {amount},
                 posted_nano = ({amount} - ({amount} % 1000 + 1000) % 1000) / 1000
             RETURNING organization_id, project_id, api_key_id, model, price_version, kind, day, month, amount_pico",
            values(rows, 13)
        )
    })
});

/// Adds to daily rows, which the caller brings in the order of their keys; the amount of each before that.
pub async fn add(tx: &mut Tx, days: &[(DailyKey<'_>, DailySums)]) -> Result<Vec<Pico>, db::Error> {
    let mut before = Vec::with_capacity(days.len());
    for (text, chunk) in ADD.chunks(days) {
        let mut statement = sql(text).expecting(chunk.len() * 13);
        for (key, sums) in chunk {
            statement = bind_day(statement, key, sums)?;
        }
        let rows: Vec<DailyRow> = statement.all(tx).await?;
        for (index, (key, sums)) in chunk.iter().enumerate() {
            // They come in the order in which they were given, but nobody promises that.
            let row = rows.get(index).filter(|row| key.is_of(row));
            let row = row.or_else(|| rows.iter().find(|row| key.is_of(row)));
            let row = row.ok_or_else(|| db::Error::Internal("a daily row gave no answer".to_owned()))?;
            before.push(Pico::from_units(row.amount.units() - sums.amount.units()));
        }
    }
    Ok(before)
}

fn bind_day(statement: Statement, key: &DailyKey<'_>, sums: &DailySums) -> Result<Statement, db::Error> {
    let posted = sums.amount.floor_nano();
    Ok(statement
        .bind(key.organization_id)
        .bind(key.project_id)
        .bind(key.api_key_id)
        .bind(key.model)
        .bind(key.price_version)
        .bind(key.kind)
        .bind(key.day)
        .bind(key.month)
        .bind(sums.requests)
        .bind(sums.prompt_tokens)
        .bind(sums.completion_tokens)
        .bind(pico(sums.amount)?)
        .bind(posted.to_i64()))
}
