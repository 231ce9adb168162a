//! Usage: daily rows, corrections of closed months, and events. The database sums them up by day, model and
//! price.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use db::{FromRow, Row, Tx, sql};
use kernel::clock::{Day, Month, Time};

use super::NANO_PER_WHOLE;
use crate::recount::quantities::{self, Quantities, REQUEST, UseKey, Used};

const PICO_PER_WHOLE: i128 = 1_000_000_000_000;
/// Number of events that a statement adds up.
const EVENTS_AT_ONCE: i64 = 4_000;
/// Greater than any source of events.
const LAST_SOURCE: &str = "\u{10ffff}";

/// Daily rows of one key that are billed in one month.
#[derive(Clone, Debug)]
pub struct DayRow {
    pub month: Month,
    pub key: UseKey,
    pub used: Used,
    /// The sum of the rows in whole nanos, each row rounded down.
    pub nanos: i128,
}

/// The role of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EventPlace {
    /// A call, or the part of it that was known when it was charged.
    Call,
    /// The rest of a gateway call that was partly charged earlier.
    Rest,
    Correction,
}

impl EventPlace {
    fn read(row: &Row) -> Result<Self, db::Error> {
        let place: i64 = row.get("place")?;
        match place {
            0 => Ok(Self::Call),
            1 => Ok(Self::Rest),
            _ => Ok(Self::Correction),
        }
    }
}

/// The calls of one key and minute.
#[derive(Clone, Debug)]
pub struct CallsRow {
    pub key: UseKey,
    pub place: EventPlace,
    /// The lowest number of prompt tokens; the next field is the highest.
    pub fewest_tokens: i64,
    pub most_tokens: i64,
    /// The number of calls from a version that didn't record the month in which it billed them.
    pub without_month: i64,
    pub first_at: Time,
    pub last_at: Time,
    pub first_received_at: Time,
}

/// The events of one key.
#[derive(Clone, Debug)]
pub struct EventsRow {
    pub key: UseKey,
    pub used: Used,
    /// The numbers of requests that single events are charged for, with the roles of these events.
    pub requests: BTreeSet<(EventPlace, i128)>,
    /// The number of events from a version that didn't record the month in which it billed them.
    pub without_month: i64,
    pub first_at: Time,
    pub last_at: Time,
    pub first_received_at: Time,
}

/// Usage that a correction took out of a closed month.
#[derive(Clone, Debug)]
pub struct CreditedRow {
    /// The month in which the usage was billed.
    pub month: Month,
    /// The month that was open when the usage was taken back; its daily rows have this month.
    pub booked_month: Month,
    pub key: UseKey,
    /// Zero or negative.
    pub used: Used,
    pub nanos: i128,
}

fn key(row: &Row) -> Result<UseKey, db::Error> {
    let (day, model): (Day, String) = (row.get("day")?, row.get("model")?);
    Ok(UseKey { day, model, kind: row.get("kind")?, version: row.get("price_version")? })
}

/// Reads tokens, without parts, and their cost.
fn used(row: &Row) -> Result<Used, db::Error> {
    let (prompt, cached): (i64, i64) = (row.get("prompt_tokens")?, row.get("cached_prompt_tokens")?);
    let completion: i64 = row.get("completion_tokens")?;
    let quantities = Quantities {
        prompt: prompt.into(),
        cached: cached.into(),
        completion: completion.into(),
        ..Quantities::default()
    };
    let (whole, rest): (i64, i64) = (row.get("whole")?, row.get("rest_pico")?);
    Ok(Used { quantities, amount: i128::from(whole) * PICO_PER_WHOLE + i128::from(rest) })
}

impl FromRow for DayRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (whole, rest): (i64, i64) = (row.get("whole")?, row.get("rest_nano")?);
        let nanos = i128::from(whole) * NANO_PER_WHOLE + i128::from(rest);
        Ok(Self { month: row.get("month")?, key: key(row)?, used: used(row)?, nanos })
    }
}

/// Adds up the daily rows by billed month, day, model and price.
pub const DAILY: &str = "SELECT month, day, model, kind, price_version,
         CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
         CAST(SUM(cached_prompt_tokens) AS BIGINT) AS cached_prompt_tokens,
         CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
         CAST(SUM(usage_daily.amount_whole + amount_pico / 1000000000000) AS BIGINT) AS whole,
         CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest_pico,
         CAST(SUM((amount_pico % 1000000000000) / 1000 - CASE WHEN amount_pico % 1000 < 0 THEN 1 ELSE 0 END)
             AS BIGINT) AS rest_nano
     FROM usage_daily WHERE organization_id = $1 GROUP BY month, day, model, kind, price_version";

/// Adds up the parts of daily rows in the same way.
pub const DAILY_PARTS: &str = "SELECT month, day, model, kind, price_version, component, CAST(SUM(quantity) AS BIGINT) AS quantity
     FROM usage_daily_parts WHERE organization_id = $1 GROUP BY month, day, model, kind, price_version, component";

/// A part of daily rows.
struct DayPart {
    month: Month,
    key: UseKey,
    component: String,
    quantity: i64,
}

impl FromRow for DayPart {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (component, quantity) = (row.get("component")?, row.get("quantity")?);
        Ok(Self { month: row.get("month")?, key: key(row)?, component, quantity })
    }
}

/// Returns the sums of the daily rows, with their parts. Parts without a row get their own row.
pub async fn days(tx: &mut Tx, organization_id: &str) -> Result<Vec<DayRow>, db::Error> {
    let days: Vec<DayRow> = sql(DAILY).bind(organization_id).heavy().all(tx).await?;
    let parts: Vec<DayPart> = sql(DAILY_PARTS).bind(organization_id).heavy().all(tx).await?;
    if parts.is_empty() {
        return Ok(days);
    }
    let mut rows: BTreeMap<(Month, UseKey), DayRow> =
        days.into_iter().map(|row| ((row.month, row.key.clone()), row)).collect();
    for DayPart { month, key, component, quantity } in parts {
        let none = |key| DayRow { month, key, used: Used::default(), nanos: 0 };
        let row = rows.entry((month, key.clone())).or_insert_with(|| none(key));
        quantities::whole_of(&component).ok_or_else(|| {
            db::Error::Internal(format!("the part {component:?} of a daily row isn't known"))
        })?;
        row.used.quantities.add_part(&component, quantity.into());
    }
    Ok(rows.into_values().collect())
}

/// Reads the column `parts`.
fn parts(row: &Row) -> Result<quantities::ByPart, db::Error> {
    quantities::parse(row.get::<Option<String>>("parts")?.as_deref().unwrap_or_default())
}

/// Reads tokens and parts, and their cost.
fn used_with_parts(row: &Row) -> Result<Used, db::Error> {
    let mut used = used(row)?;
    used.quantities.parts = parts(row)?;
    Ok(used)
}

impl FromRow for CreditedRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let (month, booked_month) = (row.get("month")?, row.get("booked_month")?);
        let nanos: i64 = row.get("posted_nano")?;
        Ok(Self { month, booked_month, key: key(row)?, used: used_with_parts(row)?, nanos: nanos.into() })
    }
}

/// Returns the usage that corrections took out of closed months.
pub async fn credited(tx: &mut Tx, organization_id: &str) -> Result<Vec<CreditedRow>, db::Error> {
    sql("SELECT month, booked_month, day, model, kind, price_version, prompt_tokens, cached_prompt_tokens,
                completion_tokens, parts, amount_whole AS whole, amount_pico AS rest_pico, posted_nano
         FROM credited_usage WHERE organization_id = $1")
    .bind(organization_id)
    .heavy()
    .all(tx)
    .await
}

/// Reads a group of events with the same parts. The stored parts are those of a single event.
impl FromRow for EventsRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        let each = Quantities { parts: parts(row)?, ..Quantities::default() };
        let events: i64 = row.get("events")?;
        let mut used = used(row)?;
        used.quantities.add(&each, events.into());
        Ok(Self {
            key: key(row)?,
            used,
            requests: [(EventPlace::read(row)?, each.part(REQUEST))].into(),
            without_month: row.get("without_month")?,
            first_at: row.get("first_at")?,
            last_at: row.get("last_at")?,
            first_received_at: row.get("first_received_at")?,
        })
    }
}

/// Selects the key of the event that is `$4` events after the key `$2`, `$3`.
pub const EVENTS_END: &str = "SELECT source, event_id FROM usage_events
     WHERE organization_id = $1 AND (source, event_id) > ($2, $3) ORDER BY source, event_id LIMIT 1 OFFSET $4";

/// The role of an event. An event that completes a call's charge has the call's id with a numeric suffix.
macro_rules! place {
    () => {
        "CASE WHEN corrects IS NOT NULL THEN 2 WHEN source = 'gateway' AND event_id LIKE '%.2' THEN 1 ELSE 0 END"
    };
}

/// Adds up the events between two keys by day, model and price. The first key is exclusive. Events are also
/// grouped by their parts, so events without parts, which is the usual case, stay together.
pub const EVENTS: &str = concat!(
    "SELECT occurred_at / 86400000 AS day, model, kind, price_version, parts, ",
    place!(),
    " AS place, COUNT(*) AS events,
         CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
         CAST(SUM(COALESCE(cached_prompt_tokens, 0)) AS BIGINT) AS cached_prompt_tokens,
         CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
         CAST(SUM(amount_pico / 1000000000000) AS BIGINT) AS whole,
         CAST(SUM(amount_pico % 1000000000000) AS BIGINT) AS rest_pico,
         CAST(SUM(CASE WHEN billed_month IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS without_month,
         MIN(occurred_at) AS first_at, MAX(occurred_at) AS last_at, MIN(received_at) AS first_received_at
     FROM usage_events
     WHERE organization_id = $1 AND (source, event_id) > ($2, $3) AND (source, event_id) <= ($4, $5)
     GROUP BY occurred_at / 86400000, model, kind, price_version, parts, ",
    place!()
);

/// Adds up the calls between two keys by minute, model and price, for models that have prices with
/// conditions. Corrections are excluded: a correction has the price of the event that it corrects, regardless
/// of its own time.
pub const CALLS: &str = concat!(
    "SELECT occurred_at / 86400000 AS day, model, kind, price_version, ",
    place!(),
    " AS place, MIN(prompt_tokens) AS fewest_tokens, MAX(prompt_tokens) AS most_tokens,
         CAST(SUM(CASE WHEN billed_month IS NULL THEN 1 ELSE 0 END) AS BIGINT) AS without_month,
         MIN(occurred_at) AS first_at, MAX(occurred_at) AS last_at, MIN(received_at) AS first_received_at
     FROM usage_events
     WHERE organization_id = $1 AND (source, event_id) > ($2, $3) AND (source, event_id) <= ($4, $5)
         AND corrects IS NULL AND model IN (SELECT model FROM conditional_prices)
     GROUP BY occurred_at / 60000, occurred_at / 86400000, model, kind, price_version, ",
    place!()
);

impl FromRow for CallsRow {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self {
            key: key(row)?,
            place: EventPlace::read(row)?,
            fewest_tokens: row.get("fewest_tokens")?,
            most_tokens: row.get("most_tokens")?,
            without_month: row.get("without_month")?,
            first_at: row.get("first_at")?,
            last_at: row.get("last_at")?,
            first_received_at: row.get("first_received_at")?,
        })
    }
}

impl EventsRow {
    /// Adds other events of the same key.
    fn add(&mut self, other: Self) {
        self.used.add(&other.used);
        self.requests.extend(other.requests);
        self.without_month += other.without_month;
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        self.first_received_at = self.first_received_at.min(other.first_received_at);
    }
}

/// The keys of two events. The first one is exclusive, the second one inclusive.
type Slice = [(String, String); 2];

async fn between<T: FromRow>(
    tx: &mut Tx,
    (organization_id, statement): (&str, &'static str),
    [after, until]: &Slice,
) -> Result<Vec<T>, db::Error> {
    sql(statement)
        .bind(organization_id)
        .bind(after.0.as_str())
        .bind(after.1.as_str())
        .bind(until.0.as_str())
        .bind(until.1.as_str())
        .heavy()
        .all(tx)
        .await
}

/// Returns the sums of the events, read in slices, and if `with_calls` is set, also the rows of [`CALLS`].
pub async fn events(
    tx: &mut Tx,
    organization_id: &str,
    with_calls: bool,
) -> Result<(Vec<EventsRow>, Vec<CallsRow>), db::Error> {
    let mut after = (String::new(), String::new());
    let mut sums: BTreeMap<UseKey, EventsRow> = BTreeMap::new();
    let mut calls = Vec::new();
    loop {
        let end: Option<(String, String)> = sql(EVENTS_END)
            .bind(organization_id)
            .bind(after.0.as_str())
            .bind(after.1.as_str())
            .bind(EVENTS_AT_ONCE - 1)
            .heavy()
            .optional(tx)
            .await?;
        let is_last = end.is_none();
        let slice = [after, end.unwrap_or_else(|| (LAST_SOURCE.to_owned(), String::new()))];
        let rows: Vec<EventsRow> = between(tx, (organization_id, EVENTS), &slice).await?;
        for row in rows {
            match sums.entry(row.key.clone()) {
                Entry::Vacant(new) => {
                    new.insert(row);
                }
                Entry::Occupied(mut sum) => sum.get_mut().add(row),
            }
        }
        if with_calls {
            calls.append(&mut between(tx, (organization_id, CALLS), &slice).await?);
        }
        if is_last {
            return Ok((sums.into_values().collect(), calls));
        }
        [_, after] = slice;
    }
}

/// Returns the time before which events may have been deleted because of their age.
pub async fn events_gone_before(tx: &mut Tx) -> Result<Time, db::Error> {
    let (before,): (Time,) = sql("SELECT usage_events_before FROM retention").one(tx).await?;
    Ok(before)
}
