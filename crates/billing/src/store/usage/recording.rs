//! Recording of usage events, each of which counts once.
//!
//! Rows are written many at a time, in statements of a few fixed sizes, so that each connection keeps them
//! prepared.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use catalog::{EventParts, Kind, Parts, Tokens};
use db::sized::{Sizes, values};
use db::{FromRow, Row, Statement, Tx, Value, sql};
use kernel::clock::{Month, Time};
use kernel::ids::{ApiKeyId, CallerId, OrganizationId, ProjectId, UserId};
use kernel::money::Pico;

/// The organization and project that pay for an event, found by its API key, or by its project and user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payer {
    pub organization_id: OrganizationId,
    pub project_id: ProjectId,
}

db::row!(Payer { organization_id, project_id });

/// Returns the organization and project of an API key. An expired or deleted key still pays for its usage.
pub async fn payer(tx: &mut Tx, api_key_id: ApiKeyId) -> Result<Option<Payer>, db::Error> {
    // A single statement, because the key could be moved from one table to the other between two statements.
    sql("SELECT organization_id, project_id FROM api_keys WHERE id = $1
         UNION ALL SELECT organization_id, project_id FROM former_api_keys WHERE id = $1")
    .bind(api_key_id)
    .optional(tx)
    .await
}

/// Returns the payer of a project, including a deleted one, and whether the user exists. `None` if the
/// project never existed.
pub async fn user_payer(
    tx: &mut Tx,
    project_id: ProjectId,
    user_id: UserId,
) -> Result<Option<(Payer, bool)>, db::Error> {
    let found: Option<(OrganizationId, i64)> =
        sql("SELECT p.organization_id, (SELECT COUNT(*) FROM users WHERE id = $2)
         FROM (SELECT organization_id FROM projects WHERE id = $1
               UNION ALL SELECT organization_id FROM former_projects WHERE id = $1) p")
        .bind(project_id)
        .bind(user_id)
        .optional(tx)
        .await?;
    Ok(found.map(|(organization_id, people)| (Payer { organization_id, project_id }, people > 0)))
}

/// A usage event with its price.
#[derive(Clone, Debug)]
pub struct RatedEvent {
    pub payer: Payer,
    /// The program that reported the event.
    pub source: Arc<str>,
    /// Unique within the source.
    pub event_id: Arc<str>,
    /// The SHA-256 of its content.
    pub payload_hash: [u8; 32],
    /// The caller, stored as `api_key_id`.
    pub caller: CallerId,
    pub model: Arc<str>,
    pub kind: Kind,
    /// The time of the use, which determines its day. For a correction, the time of the corrected event.
    pub occurred_at: Time,
    /// Input tokens; 0 or negative in a correction.
    pub prompt_tokens: i64,
    /// Output tokens; 0 or negative in a correction.
    pub completion_tokens: i64,
    /// The part of the input tokens that came from the upstream's cache; `None` if it isn't known.
    pub cached_prompt_tokens: Option<i64>,
    /// Other quantities; 0 or negative in a correction.
    pub parts: EventParts,
    /// `true` if the counts are estimates.
    pub is_estimated: bool,
    /// The version of the price.
    pub price_version: i64,
    /// The list price.
    pub amount: Pico,
    /// The event of the same source that this event corrects.
    pub corrects: Option<Arc<str>>,
}

impl RatedEvent {
    /// Returns the unique key of the event. Events are written in the order of their keys.
    pub fn key(&self) -> (OrganizationId, &str, &str) {
        (self.payer.organization_id, &self.source, &self.event_id)
    }

    pub fn tokens(&self) -> Tokens {
        Tokens {
            prompt: self.prompt_tokens,
            cached_prompt: self.cached_prompt_tokens.unwrap_or(0),
            completion: self.completion_tokens,
            parts: self.parts.to_parts(),
        }
    }

    /// Compares the keys of two events. Events of one batch usually share the memory of their source.
    pub fn cmp_key(&self, other: &Self) -> Ordering {
        let sources = || match Arc::ptr_eq(&self.source, &other.source) {
            true => Ordering::Equal,
            false => self.source.cmp(&other.source),
        };
        let tenants = self.payer.organization_id.cmp(&other.payer.organization_id);
        tenants.then_with(sources).then_with(|| self.event_id.cmp(&other.event_id))
    }
}

/// A stored event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredEvent {
    /// The SHA-256 of its content.
    pub payload_hash: [u8; 32],
    /// The caller, stored as `api_key_id`.
    pub caller: CallerId,
    pub project_id: ProjectId,
    pub model: String,
    pub kind: String,
    pub occurred_at: Time,
    pub tokens: Tokens,
    /// The version of the price.
    pub price_version: i64,
    /// The list price.
    pub amount: Pico,
    /// `true` if the event corrects another event.
    pub is_correction: bool,
    /// The month in which the event is billed; `None` for versions that didn't record it.
    pub billed_month: Option<Month>,
    pub received_at: Time,
}

db::row!(StoredEvent {
    payload_hash,
    caller: "api_key_id",
    project_id,
    model,
    kind,
    occurred_at,
    tokens: tokens,
    price_version,
    amount: "amount_pico",
    is_correction: is_correction,
    billed_month,
    received_at
});

fn is_correction(row: &Row) -> Result<bool, db::Error> {
    Ok(row.get::<Option<String>>("corrects")?.is_some())
}

fn tokens(row: &Row) -> Result<Tokens, db::Error> {
    Ok(Tokens {
        prompt: row.get("prompt_tokens")?,
        cached_prompt: row.get("cached_prompt_tokens")?,
        completion: row.get("completion_tokens")?,
        parts: parts(row)?,
    })
}

/// Reads the column `parts`.
pub(in crate::store) fn parts(row: &Row) -> Result<Parts, db::Error> {
    let text = row.get::<Option<String>>("parts")?.unwrap_or_default();
    Parts::parse(&text).ok_or_else(|| db::Error::Internal(format!("the parts of usage are {text:?}")))
}

/// Returns the event with this key.
pub async fn stored(
    tx: &mut Tx,
    (organization_id, source, event_id): (OrganizationId, &str, &str),
) -> Result<Option<StoredEvent>, db::Error> {
    sql("SELECT payload_hash, api_key_id, project_id, model, kind, occurred_at, prompt_tokens,
                completion_tokens, COALESCE(cached_prompt_tokens, 0) AS cached_prompt_tokens,
                parts, price_version, amount_pico, corrects, billed_month, received_at
         FROM usage_events WHERE organization_id = $1 AND source = $2 AND event_id = $3")
    .bind(organization_id)
    .bind(source)
    .bind(event_id)
    .optional(tx)
    .await
}

/// The part of an event that records a call of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallEvent {
    pub tokens: Tokens,
    /// `true` if the counts are estimates.
    pub is_estimated: bool,
    /// The list price.
    pub amount: Pico,
}

db::row!(CallEvent { tokens: tokens, is_estimated: "estimated", amount: "amount_pico" });

/// The statement of [`of_call`].
pub const OF_CALL: &str =
    "SELECT prompt_tokens, completion_tokens, COALESCE(cached_prompt_tokens, 0) AS cached_prompt_tokens,
         parts, estimated, amount_pico
     FROM usage_events
     WHERE organization_id = $1 AND source = $2 AND event_id IN ($3, $4, $5) AND project_id = $6";

/// Returns the events of these ids.
pub async fn of_call(
    tx: &mut Tx,
    payer: Payer,
    source: &str,
    event_ids: &[String; 3],
) -> Result<Vec<CallEvent>, db::Error> {
    let [first, second, third] = event_ids;
    sql(OF_CALL)
        .bind(payer.organization_id)
        .bind(source)
        .bind(first.as_str())
        .bind(second.as_str())
        .bind(third.as_str())
        .bind(payer.project_id)
        .all(tx)
        .await
}

/// Returns the month in which an event is billed. If the month wasn't recorded, this is the first month that
/// has usage of the event's key and day, and whose invoice wasn't created before the event was received.
pub async fn billed_month(
    tx: &mut Tx,
    organization_id: OrganizationId,
    event: &StoredEvent,
) -> Result<Month, db::Error> {
    if let Some(month) = event.billed_month {
        return Ok(month);
    }
    let months: Vec<(Month, Option<Time>)> =
        sql("SELECT d.month AS month, (SELECT i.finalized_at FROM invoices i
                WHERE i.organization_id = d.organization_id AND i.month = d.month) AS finalized_at
             FROM usage_daily d
             WHERE d.organization_id = $1 AND d.project_id = $2 AND d.day = $3 AND d.api_key_id = $4
                 AND d.model = $5
               AND d.price_version = $6 AND d.kind = $7 ORDER BY d.month")
        .bind(organization_id)
        .bind(event.project_id)
        .bind(event.occurred_at.day())
        .bind(event.caller)
        .bind(event.model.as_str())
        .bind(event.price_version)
        .bind(event.kind.as_str())
        .all(tx)
        .await?;
    let was_open = |at: &Option<Time>| at.is_none_or(|finalized_at| finalized_at > event.received_at);
    let first = months.iter().find(|(_, at)| was_open(at)).or(months.last());
    Ok(first.map_or(event.occurred_at.day().month(), |(month, _)| *month))
}

/// The sums of all corrections of an event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CorrectionSums {
    /// 0 or negative.
    pub tokens: Tokens,
    /// 0 or negative.
    pub amount: Pico,
}

db::row!(CorrectionSums { tokens: tokens, amount: "amount_pico" });

impl CorrectionSums {
    fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            tokens: self.tokens.checked_add(other.tokens)?,
            amount: self.amount.checked_add(other.amount)?,
        })
    }
}

/// Returns the sums of the corrections of this event so far.
pub async fn sum_corrections(
    tx: &mut Tx,
    (organization_id, source, event_id): (OrganizationId, &str, &str),
) -> Result<CorrectionSums, db::Error> {
    let corrections: Vec<CorrectionSums> = sql(
        "SELECT prompt_tokens, completion_tokens, COALESCE(cached_prompt_tokens, 0) AS cached_prompt_tokens,
                    parts, amount_pico
             FROM usage_events WHERE organization_id = $1 AND source = $2 AND corrects = $3",
    )
    .bind(organization_id)
    .bind(source)
    .bind(event_id)
    .all(tx)
    .await?;
    let sum = corrections.into_iter().try_fold(CorrectionSums::default(), CorrectionSums::checked_add);
    sum.ok_or_else(|| db::Error::Internal(format!("the corrections of {event_id} don't fit in 64 bits")))
}

static HASHES: LazyLock<Sizes> = LazyLock::new(|| {
    Sizes::new(|rows| {
        let keys = (0..rows).map(|row| {
            let first = row * 3 + 1;
            format!("(organization_id = ${first} AND source = ${} AND event_id = ${})", first + 1, first + 2)
        });
        let keys: Vec<_> = keys.collect();
        format!(
            "SELECT organization_id, source, event_id, payload_hash FROM usage_events WHERE {}",
            keys.join(" OR ")
        )
    })
});

/// Returns the payload hash of each of these events; `None` for those that aren't stored.
pub async fn stored_hashes(
    tx: &mut Tx,
    keys: &[(OrganizationId, &str, &str)],
) -> Result<Vec<Option<[u8; 32]>>, db::Error> {
    let mut hashes = Vec::with_capacity(keys.len());
    for (text, chunk) in HASHES.chunks(keys) {
        let statement = chunk.iter().fold(sql(text), |statement, (organization_id, source, event_id)| {
            statement.bind(*organization_id).bind(*source).bind(*event_id)
        });
        let stored: Vec<StoredHash> = statement.all(tx).await?;
        hashes.extend(chunk.iter().map(|key| {
            stored
                .iter()
                .find(|StoredHash(found, _)| found.matches_key(*key))
                .map(|StoredHash(_, hash)| *hash)
        }));
    }
    Ok(hashes)
}

struct StoredHash(EventKey, [u8; 32]);

impl FromRow for StoredHash {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self(EventKey::from_row(row)?, row.get("payload_hash")?))
    }
}

static INSERT_EVENTS: LazyLock<Sizes> = LazyLock::new(|| Sizes::new(insert_events));

static INSERT_RETURNING: LazyLock<Sizes> =
    LazyLock::new(|| Sizes::new(|rows| insert_events(rows) + " RETURNING organization_id, source, event_id"));

fn insert_events(rows: usize) -> String {
    format!(
        "INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id,
             api_key_id, model, kind, occurred_at, received_at, prompt_tokens, completion_tokens,
             price_version, amount_pico, corrects, billed_month, cached_prompt_tokens, estimated, parts)
         VALUES {} ON CONFLICT (organization_id, source, event_id) DO NOTHING",
        values(rows, EVENT_COLUMNS)
    )
}

const EVENT_COLUMNS: usize = 19;

/// An event to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    pub event: &'a RatedEvent,
    /// The month in which the event is billed; for a correction, the month of the corrected event.
    pub billed_month: Month,
}

struct EventKey(OrganizationId, String, String);

impl EventKey {
    fn matches_key(&self, key: (OrganizationId, &str, &str)) -> bool {
        (self.0, &*self.1, &*self.2) == key
    }
}

impl FromRow for EventKey {
    fn from_row(row: &Row) -> Result<Self, db::Error> {
        Ok(Self(row.get("organization_id")?, row.get("source")?, row.get("event_id")?))
    }
}

/// The information that an insertion returns about its new rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertReport {
    /// The number of new rows. This is cheap, and sufficient if all or none of a statement's rows are new.
    Count,
    /// The new rows themselves.
    Rows,
}

/// Records events that aren't stored yet, and returns `true` for each new one. Returns `None` if only some
/// rows of a statement are new, because their number doesn't identify them; then the transaction must be
/// started over with [`InsertReport::Rows`].
///
/// The events have different keys and are given in the order of their keys, so that two transactions can't
/// deadlock. The primary key ensures that an event counts exactly once. A new event must be added to its day
/// in the same transaction.
pub async fn insert(
    tx: &mut Tx,
    events: &[NewEvent<'_>],
    report: InsertReport,
    now: Time,
) -> Result<Option<Vec<bool>>, db::Error> {
    let mut new = Vec::with_capacity(events.len());
    let texts = if report == InsertReport::Count { &INSERT_EVENTS } else { &INSERT_RETURNING };
    for (text, chunk) in texts.chunks(events) {
        let mut statement = sql(text).expecting(chunk.len() * EVENT_COLUMNS);
        for new in chunk {
            statement = bind_event(statement, *new, now)?;
        }
        if report == InsertReport::Count {
            let count = statement.execute(tx).await?;
            let all = u64::try_from(chunk.len()) == Ok(count);
            if !all && count > 0 {
                return Ok(None);
            }
            new.resize(new.len() + chunk.len(), all);
            continue;
        }
        let inserted: Vec<EventKey> = statement.all(tx).await?;
        new.extend(chunk.iter().map(|new| {
            let key = new.event.key();
            inserted.iter().any(|found| found.matches_key(key))
        }));
    }
    Ok(Some(new))
}

fn bind_event(statement: Statement, new: NewEvent<'_>, now: Time) -> Result<Statement, db::Error> {
    let event = new.event;
    Ok(statement.bind_all([
        event.payer.organization_id.into(),
        (&event.source).into(),
        (&event.event_id).into(),
        event.payload_hash.into(),
        event.payer.project_id.into(),
        event.caller.into(),
        (&event.model).into(),
        Value::Word(event.kind.as_str()),
        event.occurred_at.into(),
        now.into(),
        event.prompt_tokens.into(),
        event.completion_tokens.into(),
        event.price_version.into(),
        pico(event.amount)?.into(),
        event.corrects.clone().into(),
        new.billed_month.into(),
        event.cached_prompt_tokens.into(),
        event.is_estimated.into(),
        event.parts.to_codes().into(),
    ]))
}

/// Returns the stored form of an amount.
fn pico(amount: Pico) -> Result<i64, db::Error> {
    amount.to_i64().ok_or_else(|| db::Error::Internal(format!("{amount} doesn't fit in 64 bits as picos")))
}
