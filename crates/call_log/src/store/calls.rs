//! Rows of calls.

use std::sync::LazyLock;

use db::sized::{Sizes, values};
use db::{Statement, Tx, sql};
use kernel::clock::{SECOND_MS, Time};
use kernel::ids::{Id, Kind, ModelCallId};
use kernel::money::Pico;

use crate::entries::{Adjustment, Course, NewCall};

/// The first second of the log, 2020-01-01, so that seconds fit in 32 bits until 2088.
const FIRST_SECOND: i64 = 1_577_836_800;

/// The bits of an id below its milliseconds and its version.
const RANDOM_BITS: i64 = 12;

/// The stored form of an id. Its order is the order of ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct StoredId {
    /// Seconds since 2020-01-01.
    pub second: i64,
    /// Milliseconds of the second, then 12 random bits.
    pub part: i64,
    /// The lower 64 bits of the id. The highest of them is always 1.
    pub low: i64,
}

impl StoredId {
    /// Returns the stored form of an id.
    pub fn of<K: Kind>(id: Id<K>) -> Self {
        let first = Self::first_of(id.created_at());
        let bits = id.as_u128();
        let random = i64::try_from((bits >> 64) & 0xfff).unwrap_or(0);
        let low = u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        Self { part: first.part | random, low: low.cast_signed(), ..first }
    }

    /// Returns a value that isn't after any id of this time.
    pub fn first_of(time: Time) -> Self {
        let ms = time.unix_ms();
        let second = ms.div_euclid(SECOND_MS) - FIRST_SECOND;
        // Other times than those of 32 bits have no calls.
        let second = second.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        Self { second, part: ms.rem_euclid(SECOND_MS) << RANDOM_BITS, low: i64::MIN }
    }

    /// Returns the id.
    pub fn id<K: Kind>(self) -> Id<K> {
        let ms = (self.second + FIRST_SECOND) * SECOND_MS + (self.part >> RANDOM_BITS);
        let high = u128::try_from(self.part & 0xfff).unwrap_or(0);
        Id::from_parts(Time::from_unix_ms(ms), (high << 64) | u128::from(self.low.cast_unsigned()))
    }
}

/// The numbers of the names in a row; 0 for names that it doesn't have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Numbers {
    pub organization: i64,
    pub project: i64,
    pub caller: i64,
    pub model: i64,
    pub upstream: i64,
    pub upstream_model: i64,
    pub code: i64,
    pub source: i64,
}

const COLUMNS: usize = 31;

static INSERT: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        format!(
            "INSERT INTO calls (low, request_low, amount_pico, organization, project, caller, second, part,
                 request_second, request_part, model, upstream, upstream_model, code, source, prompt_tokens,
                 cached_prompt_tokens, completion_tokens, reasoning_tokens, first_event_ms, duration_ms,
                 repeated, events, operation, ended, flags, attempts, status, user_agent, event_id, end_user)
             VALUES {}",
            values(rows, COLUMNS)
        )
    })
});

/// Adds rows. Each call has one, because its first usage event is new in the same transaction.
pub async fn insert(tx: &mut Tx, calls: &[(&NewCall, Numbers)]) -> Result<(), db::Error> {
    for (text, chunk) in INSERT.chunks(calls) {
        let mut statement = sql(text).expecting(chunk.len() * COLUMNS);
        for (call, numbers) in chunk {
            statement = bind_call(statement, call, *numbers)?;
        }
        statement.defer(tx).await?;
    }
    Ok(())
}

fn bind_call(statement: Statement, call: &NewCall, numbers: Numbers) -> Result<Statement, db::Error> {
    let id = StoredId::of(call.id);
    let Course { request_id, operation, ended, client, .. } = &call.course;
    let (course, usage) = (&call.course, call.usage);
    let request = request_id.map(StoredId::of).unwrap_or_default();
    let flags = i64::from(course.is_stream) + 2 * i64::from(usage.is_estimated);
    let event_id = call.origin.as_ref().map(|origin| (&origin.event_id).into());
    let end_user = client.end_user.as_ref().map(Into::into);
    Ok(statement.bind_all([
        id.low.into(),
        request.low.into(),
        pico(usage.amount)?.into(),
        numbers.organization.into(),
        numbers.project.into(),
        numbers.caller.into(),
        id.second.into(),
        id.part.into(),
        request.second.into(),
        request.part.into(),
        numbers.model.into(),
        numbers.upstream.into(),
        numbers.upstream_model.into(),
        numbers.code.into(),
        numbers.source.into(),
        count(usage.prompt_tokens).into(),
        usage.cached_prompt_tokens.map_or(-1, count).into(),
        count(usage.completion_tokens).into(),
        usage.reasoning_tokens.map_or(-1, count).into(),
        course.first_event_ms.map_or(-1, count).into(),
        course.duration_ms.map_or(-1, count).into(),
        0_i64.into(),
        usage.events.into(),
        operation.number().into(),
        ended.number().into(),
        flags.into(),
        course.attempts.min(1_000).into(),
        i64::from(course.status.unwrap_or(0)).into(),
        client.user_agent.map_or(0, |family| family.number()).into(),
        event_id.unwrap_or(db::Value::Word("")),
        end_user.unwrap_or(db::Value::Word("")),
    ]))
}

/// Returns a count that fits in 32 bits.
fn count(count: i64) -> i64 {
    count.clamp(i64::from(i32::MIN), i64::from(i32::MAX))
}

fn pico(amount: Pico) -> Result<i64, db::Error> {
    amount.to_i64().ok_or_else(|| db::Error::Internal(format!("{amount} doesn't fit in 64 bits as picos")))
}

/// The statement of [`adjust`].
pub const ADJUST: &str = "UPDATE calls
     SET events = events + $5, prompt_tokens = prompt_tokens + $6, completion_tokens = completion_tokens + $7,
         cached_prompt_tokens = CASE WHEN cached_prompt_tokens < 0 AND $8 = 0 THEN cached_prompt_tokens
             ELSE (CASE WHEN cached_prompt_tokens < 0 THEN 0 ELSE cached_prompt_tokens END) + $8 END,
         amount_pico = amount_pico + $9
     WHERE organization = $1 AND second = $2 AND part = $3 AND low = $4 AND events > 0";

/// Adds a later charge or a correction to the row of its call, if the row exists.
pub async fn adjust(tx: &mut Tx, organization: i64, adjustment: &Adjustment) -> Result<(), db::Error> {
    let (id, usage) = (StoredId::of(adjustment.id), adjustment.usage);
    sql(ADJUST)
        .bind(organization)
        .bind(id.second)
        .bind(id.part)
        .bind(id.low)
        .bind(usage.events)
        .bind(usage.prompt_tokens)
        .bind(usage.completion_tokens)
        .bind(usage.cached_prompt_tokens.unwrap_or_default())
        .bind(pico(usage.amount)?)
        .defer(tx)
        .await
}

/// The statement of [`add_repeats`].
pub const ADD_REPEATS: &str = "UPDATE calls SET repeated = repeated + $5
     WHERE organization = $1 AND second = $2 AND part = $3 AND low = $4";

/// Adds to the number of further calls that the row of a refused call counts.
pub async fn add_repeats(
    tx: &mut Tx,
    organization: i64,
    id: ModelCallId,
    more: i64,
) -> Result<(), db::Error> {
    let id = StoredId::of(id);
    sql(ADD_REPEATS)
        .bind(organization)
        .bind(id.second)
        .bind(id.part)
        .bind(id.low)
        .bind(count(more))
        .defer(tx)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_their_stored_form() {
        let mut last = None;
        for (ms, random) in [
            (1_577_836_800_000, 0),
            (1_800_000_000_123, 1),
            (1_800_000_000_123, u128::MAX / 3),
            (1_800_000_000_124, u128::MAX),
            (3_000_000_000_999, 5),
        ] {
            let time = Time::from_unix_ms(ms);
            let id = ModelCallId::from_parts(time, random);
            let stored = StoredId::of(id);
            assert_eq!(stored.id::<kernel::ids::kind::ModelCall>(), id);
            assert!(StoredId::first_of(time) <= stored);
            assert!(Some(stored) > last, "{stored:?}");
            assert!(i32::try_from(stored.second).is_ok() && i32::try_from(stored.part).is_ok());
            last = Some(stored);
        }
    }
}
