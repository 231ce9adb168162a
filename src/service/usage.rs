//! POST /service/v1/usage: a batch of usage events, each counted exactly once.
//!
//! Events succeed or fail one by one, results come in the order of the events, and the answer is sent only after what it
//! says is durable (decisions, sections 5 and 8).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::ServiceScope;
use crate::app::App;
use crate::catalog::{Catalog, Kind};
use crate::clock::Time;
use crate::db::Tx;
use crate::error::{Detail, Error};
use crate::ids::ApiKeyId;
use crate::input::fields::{At, Entry as FieldEntry, Field, Origin, Problems};
use crate::input::json::Json;
use crate::input::types::{Integer, one_of};
use crate::input::{Body, Fields, Record, fields};
use crate::reply::Bare;
use crate::rules::events::{self, Refusal};
use crate::rules::rating;
use crate::secrets::sha256;
use crate::store;
use crate::store::usage::{DailyKey, DailySums, Payer, RatedEvent, Recorded};

/// Events as they came; each is looked at on its own.
#[derive(Debug)]
pub struct Batch {
    events: Vec<Json>,
}

impl Record for Batch {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let events = fields.required::<EventList>("events");
        Some(Self { events: events?.0 })
    }
}

/// The most events of one batch.
const MAX_EVENTS: usize = 1_000;

#[derive(Debug)]
struct EventList(Vec<Json>);

impl Field for EventList {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Json::Array(events) if (1..=MAX_EVENTS).contains(&events.len()) => Some(Self(events)),
            Json::Array(events) => {
                let code = if events.is_empty() { "empty" } else { "too_many" };
                problems.add(at, code, format!("`{}` must hold 1 to {MAX_EVENTS} events.", at.path))
            }
            other => problems.wrong_type(at, "an array", &other),
        }
    }
    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": fields::describe::<Event>().to_value(),
               "examples": [[{"id": "call-1", "source": "vllm-1", "time": "2026-01-31T09:30:00Z",
                              "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n", "model": "svc-1", "kind": "chat",
                              "prompt_tokens": 12, "completion_tokens": 34}]]})
    }
}

/// One event.
#[derive(Debug)]
struct Event {
    id: EventText,
    source: EventText,
    time: Time,
    api_key_id: ApiKeyId,
    model: EventText,
    kind: Kind,
    prompt_tokens: Integer<0, 1_000_000_000>,
    completion_tokens: Integer<0, 1_000_000_000>,
}

impl Record for Event {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required("id");
        let source = fields.required("source");
        let time = fields.required("time");
        let api_key_id = fields.required("api_key_id");
        let model = fields.required("model");
        let kind = fields.required("kind");
        let prompt_tokens = fields.required("prompt_tokens");
        let completion_tokens = fields.or("completion_tokens", Integer(0));
        Some(Self {
            id: id?,
            source: source?,
            time: time?,
            api_key_id: api_key_id?,
            model: model?,
            kind: kind?,
            prompt_tokens: prompt_tokens?,
            completion_tokens: completion_tokens?,
        })
    }
}

/// 1 to 256 printable characters.
#[derive(Debug)]
struct EventText(String);

impl Field for EventText {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        let text = crate::input::types::string(value, at, problems)?;
        let length = text.chars().count();
        if !(1..=256).contains(&length) || text.chars().any(char::is_control) {
            let message = format!("`{}` must be 1 to 256 characters without control characters.", at.path);
            return problems.add(at, "invalid_text", message);
        }
        Some(Self(text))
    }
    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 256, "examples": ["call-1"]})
    }
}

impl Field for Kind {
    fn read(value: Json, at: &At<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, &[Self::Chat, Self::Embeddings], Self::as_str)
    }
    fn schema() -> Value {
        json!({"type": "string", "enum": ["chat", "embeddings"], "examples": ["chat"]})
    }
}

impl Event {
    /// What two events with the same id must agree in. Lengths stand before texts, so that no two contents look alike.
    fn payload_hash(&self) -> [u8; 32] {
        let text = format!(
            "{}|{}|{}:{}|{}|{}|{}",
            self.time.unix_ms(),
            self.api_key_id,
            self.model.0.len(),
            self.model.0,
            self.kind.as_str(),
            self.prompt_tokens.0,
            self.completion_tokens.0
        );
        sha256(text.as_bytes())
    }
}

/// One result an event, in their order.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Results {
    results: Vec<EventResult>,
}

/// What became of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventResult {
    /// The event's id, when it could be read.
    id: Option<String>,
    status: EventStatus,
    /// Why it was refused.
    code: Option<&'static str>,
    /// Why it was refused, in words.
    message: Option<String>,
    /// One entry a bad field.
    details: Vec<DetailText>,
}

/// Whether an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventStatus {
    /// It counts, from now on.
    Accepted,
    /// It counted already.
    Duplicate,
    /// It doesn't count; the same event won't either.
    Refused,
}

/// A bad field of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DetailText {
    param: String,
    code: &'static str,
    message: String,
}

/// An event on its way: who to answer about, and what is known of it so far.
struct Entry {
    id: Option<String>,
    event: Result<RatedEvent, Problem>,
}

enum Problem {
    Unreadable(Error),
    Refused(Refusal),
    Duplicate,
}

/// Records the events in one transaction.
pub async fn usage(app: App, _: ServiceScope, Body(body): Body<Batch>) -> Result<Bare<Results>, Error> {
    let now = app.clock.now();
    let mut tx = app.db.write().await?;
    let entries = rate_all(&app, &mut tx, body.events, now).await?;
    let recorded = record_all(&mut tx, &entries, now).await?;
    tx.commit().await?;
    let results = entries.into_iter().zip(recorded).map(|(entry, recorded)| result(entry, recorded));
    Ok(Bare(Results { results: results.collect() }))
}

/// Reads and rates every event; what is wrong with one is its own matter.
async fn rate_all(app: &App, tx: &mut Tx, events: Vec<Json>, now: Time) -> Result<Vec<Entry>, Error> {
    let mut payers: HashMap<ApiKeyId, Option<Payer>> = HashMap::new();
    let mut entries = Vec::with_capacity(events.len());
    let catalog = Arc::clone(&app.catalog.now());
    for event in events {
        let (id, event) = read_event(app, event);
        let event = match event {
            Err(error) => Err(Problem::Unreadable(error)),
            Ok(event) => {
                let payer = match payers.get(&event.api_key_id) {
                    Some(payer) => *payer,
                    None => {
                        let payer = store::usage::payer(tx, event.api_key_id).await?;
                        payers.insert(event.api_key_id, payer);
                        payer
                    }
                };
                match rate(&catalog, &event, payer, now) {
                    Ok(rated) => Ok(rated),
                    Err(refusal) => Err(look_again(tx, &event, payer, refusal).await?),
                }
            }
        };
        entries.push(Entry { id, event });
    }
    Ok(entries)
}

/// Records what can be, and says of each entry what became of it. Rows are written in one order whatever the order of the
/// events, so that two batches never wait for each other in a circle.
async fn record_all(tx: &mut Tx, entries: &[Entry], now: Time) -> Result<Vec<Option<Recorded>>, Error> {
    let mut good: Vec<_> = entries
        .iter()
        .enumerate()
        .filter_map(|(index, entry)| entry.event.as_ref().ok().map(|event| (index, event)))
        .collect();
    good.sort_by_cached_key(|(_, event)| {
        (event.payer.organization_id.as_u128(), event.source.clone(), event.event_id.clone())
    });
    let mut recorded = vec![None; entries.len()];
    let mut days: BTreeMap<DailyKey, DailySums> = BTreeMap::new();
    for (index, event) in good {
        let outcome = store::usage::record(tx, event, now).await?;
        if outcome == Recorded::New {
            let sums = days.entry(DailyKey::of(event)).or_default();
            *sums = sums.plus(event).ok_or_else(|| Error::internal("a day's usage passed 64 bits"))?;
        }
        if let Some(slot) = recorded.get_mut(index) {
            *slot = Some(outcome);
        }
    }
    for (key, sums) in &days {
        store::usage::add_to_day(tx, key, sums).await?;
    }
    Ok(recorded)
}

/// An event and its id; the id also of one that can't be read otherwise.
fn read_event(app: &App, event: Json) -> (Option<String>, Result<Event, Error>) {
    let Json::Object(members) = event else {
        let message = format!("An event must be an object, not {}.", event.type_name());
        let detail = Detail { param: String::new(), code: "wrong_type", message };
        return (None, Err(Error::invalid(vec![detail])));
    };
    let id = members.iter().find_map(|(name, value)| match value {
        Json::Text(id) if name == "id" && id.len() <= 1_024 => Some(id.clone()),
        _ => None,
    });
    let entries =
        members.into_iter().map(|(name, value)| FieldEntry { name, value, origin: Origin::Body }).collect();
    (id, fields::read(app, entries))
}

/// What can't be rated now may have counted long ago, when its model was still there: then it is a duplicate.
async fn look_again(
    tx: &mut Tx,
    event: &Event,
    payer: Option<Payer>,
    refusal: Refusal,
) -> Result<Problem, Error> {
    let Some(payer) = payer else {
        return Ok(Problem::Refused(refusal));
    };
    let (source, id) = (&event.source.0, &event.id.0);
    Ok(match store::usage::payload_hash(tx, payer.organization_id, source, id).await? {
        Some(hash) if hash == event.payload_hash() => Problem::Duplicate,
        Some(_) => Problem::Refused(events::conflict()),
        None => Problem::Refused(refusal),
    })
}

fn rate(catalog: &Catalog, event: &Event, payer: Option<Payer>, now: Time) -> Result<RatedEvent, Refusal> {
    let payload_hash = event.payload_hash();
    let payer = payer.ok_or_else(|| events::unknown_api_key(event.api_key_id))?;
    events::check_time(event.time, now)?;
    // It may have been retired since its use, or its answer took until after that: the use was real, and has a price.
    let model = catalog.get_even_retired(&event.model.0);
    let model = model.ok_or_else(|| events::unknown_model(&event.model.0))?;
    events::check_kind(model, event.kind, event.completion_tokens.0)?;
    let price = model.price_at(event.time).ok_or_else(|| events::no_price(&model.id))?;
    let amount = rating::rate(price, event.prompt_tokens.0, event.completion_tokens.0)
        .filter(|amount| *amount <= events::MOST_EXPENSIVE)
        .ok_or_else(events::too_expensive)?;
    Ok(RatedEvent {
        payer,
        source: event.source.0.clone(),
        event_id: event.id.0.clone(),
        payload_hash,
        api_key_id: event.api_key_id,
        model: event.model.0.clone(),
        kind: event.kind,
        occurred_at: event.time,
        prompt_tokens: event.prompt_tokens.0,
        completion_tokens: event.completion_tokens.0,
        price_version: price.effective_at.unix_ms(),
        amount,
    })
}

fn result(entry: Entry, recorded: Option<Recorded>) -> EventResult {
    let good = |status| EventResult { id: None, status, code: None, message: None, details: Vec::new() };
    let refused = |refusal: Refusal| EventResult {
        code: Some(refusal.code),
        message: Some(refusal.message),
        ..good(EventStatus::Refused)
    };
    let result = match (entry.event, recorded) {
        (Err(Problem::Unreadable(error)), _) => EventResult {
            code: Some("invalid_event"),
            message: Some(error.public_message().to_owned()),
            details: error
                .details
                .into_iter()
                .map(|d| DetailText { param: d.param, code: d.code, message: d.message })
                .collect(),
            ..good(EventStatus::Refused)
        },
        (Err(Problem::Refused(refusal)), _) => refused(refusal),
        (Ok(_), Some(Recorded::New)) => good(EventStatus::Accepted),
        (Ok(_), Some(Recorded::Duplicate)) | (Err(Problem::Duplicate), _) => good(EventStatus::Duplicate),
        (Ok(_), Some(Recorded::Conflict) | None) => refused(events::conflict()),
    };
    EventResult { id: entry.id, ..result }
}
