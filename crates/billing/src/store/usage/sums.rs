//! The table `usage_daily_sums`: usage per project and day, once by model and once by caller. It always
//! contains the sums of the daily rows. A report that isn't grouped by both model and caller reads only this
//! table, which has fewer rows.

use std::sync::LazyLock;

use super::accumulation::{Accumulation, RowLimits};
use super::days::DailySums;
use db::sized::{Sizes, values};
use db::{Tx, sql};

pub use super::sum_keys::{SumGroup, SumKey};

/// Value of `grouped_by` in rows of models.
pub const MODEL: &str = "model";
/// Value of `grouped_by` in rows of callers.
pub const CALLER: &str = "caller";

/// The limits of a row, which must exceed those of a daily row. SQL halves both numbers of tokens before it
/// adds and compares them, to avoid an overflow. Halves are rounded toward zero, so the sum of two halves is
/// off by at most one. Within the limit, the total therefore fits in 64 bits.
pub(super) const LIMITS: RowLimits =
    RowLimits { whole: 4_000_000_000_000_000_000, half_tokens: i64::MAX / 2 - 1 };

static ADD: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let Accumulation { set, fits, .. } = Accumulation::of("usage_daily_sums", LIMITS);
        format!(
            "INSERT INTO usage_daily_sums (organization_id, project_id, grouped_by, group_id, day, kind, requests,
                 prompt_tokens, completion_tokens, amount_whole, amount_pico)
             VALUES {}
             ON CONFLICT (organization_id, project_id, grouped_by, day, group_id, kind) DO UPDATE
             SET {set}
             WHERE {fits}",
            values(rows, 11)
        )
    })
});

/// Adds to the rows of organizations whose wallets are locked. Returns `false` if a row would overflow: then
/// the caller must not commit.
pub async fn add(tx: &mut Tx, added: &[(SumKey<'_>, DailySums)]) -> Result<bool, db::Error> {
    let mut changed = 0;
    for (text, chunk) in ADD.chunks(added) {
        let mut statement = sql(text);
        for (key, sums) in chunk {
            let (whole, pico) = sums.stored_parts()?;
            statement = statement.bind(key.organization_id).bind(key.project_id);
            statement = match key.group {
                SumGroup::Model(model) => statement.bind(MODEL).bind(model),
                SumGroup::Caller(caller) => statement.bind(CALLER).bind(caller),
            };
            statement = statement
                .bind(key.day)
                .bind(key.kind)
                .bind(sums.requests)
                .bind(sums.prompt_tokens)
                .bind(sums.completion_tokens)
                .bind(whole)
                .bind(pico);
        }
        changed += statement.execute(tx).await?;
    }
    Ok(u64::try_from(added.len()) == Ok(changed))
}
