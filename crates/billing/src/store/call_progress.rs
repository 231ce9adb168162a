//! The progress of calls of the gateway, in the rows of their reservations. The wallet of the organization is
//! locked while a row is written.

use std::fmt::Write;
use std::sync::LazyLock;

use super::reservations::ReservedAmount;
use db::sized::Sizes;
use db::{FromRow, Row, Tx, sql};
use kernel::clock::Time;
use kernel::ids::{CallerId, OrganizationId, ProjectId, ReservationId};

/// The tokens of a call so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Tokens of the prompt, including those from a cache.
    pub prompt_tokens: i64,
    /// Tokens of the prompt that came from a cache; `None` if it isn't known.
    pub cached_prompt_tokens: Option<i64>,
    /// Tokens of all answers.
    pub completion_tokens: i64,
    /// `true` if some of the counts are estimates.
    pub is_estimated: bool,
}

db::row!(Progress { prompt_tokens, cached_prompt_tokens, completion_tokens, is_estimated: "estimated" });

const WRITE_COLUMNS: usize = 5;

static WRITE: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let mut values = String::new();
        for row in 0..rows {
            let comma = if row == 0 { "" } else { ", " };
            let first = row * WRITE_COLUMNS + 2;
            // Writing to a string can't fail.
            write!(values, "{comma}(${first}").ok();
            for number in first + 1..first + WRITE_COLUMNS {
                write!(values, ", CAST(${number} AS BIGINT)").ok();
            }
            values.push(')');
        }
        format!(
            "UPDATE reservations SET expires_at = $1, prompt_tokens = progress.column2,
                 cached_prompt_tokens = progress.column3, completion_tokens = progress.column4,
                 estimated = progress.column5
             FROM (VALUES {values}) AS progress WHERE id = progress.column1 AND closed = 0
             RETURNING id, organization_id, project_id, api_key_id, amount_nano"
        )
    })
});

/// Extends these reservations, and writes the progress of their calls. Returns those that existed and weren't
/// about to be captured. The wallets must be locked.
pub async fn write(
    tx: &mut Tx,
    calls: &[(ReservationId, Progress)],
    expires_at: Time,
) -> Result<Vec<ReservedAmount>, db::Error> {
    let mut written = Vec::new();
    for (text, chunk) in WRITE.chunks(calls) {
        let statement = chunk.iter().fold(sql(text).bind(expires_at), |statement, (id, progress)| {
            statement
                .bind(*id)
                .bind(progress.prompt_tokens)
                .bind(progress.cached_prompt_tokens)
                .bind(progress.completion_tokens)
                .bind(progress.is_estimated)
        });
        written.extend(statement.all::<ReservedAmount>(tx).await?);
    }
    Ok(written)
}

/// A call whose gateway hasn't extended its reservation in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterruptedCall {
    pub reservation_id: ReservationId,
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
    pub caller: Option<CallerId>,
    pub model: String,
    /// The id of the call.
    pub request_id: Option<String>,
    pub progress: Progress,
}

impl FromRow for InterruptedCall {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            reservation_id: row.get("id")?,
            organization_id: row.get("organization_id")?,
            project_id: row.get("project_id")?,
            caller: row.get("api_key_id")?,
            model: row.get("model")?,
            request_id: row.get("request_id")?,
            progress: Progress::from_row(row)?,
        })
    }
}

/// Closes this reservation if it is still expired and its call has progress. The progress of a closed
/// reservation doesn't change. Returns the call, even if the reservation was already closed. The wallet must
/// be locked.
pub async fn close(tx: &mut Tx, id: ReservationId, now: Time) -> Result<Option<InterruptedCall>, db::Error> {
    sql("UPDATE reservations SET closed = 1
         WHERE id = $1 AND expires_at <= $2 AND completion_tokens IS NOT NULL
         RETURNING id, organization_id, project_id, api_key_id, model, request_id, prompt_tokens,
             cached_prompt_tokens, completion_tokens, estimated")
    .bind(id)
    .bind(now)
    .optional(tx)
    .await
}
