//! The events of a response: `event: NAME` and `data: {"type": NAME, …}`. The last one is
//! `response.completed` or `response.incomplete`, with the usage.

use hyper::body::Bytes;

use super::stream::{Cleaned, StreamCleaner, edited, is_error};
use crate::count::reading::Text;
use crate::count::{ChoiceText, ChunkCounts, Searches, TextTokens, Usage, service_tier};
use crate::json::{JsonError, Object};
use crate::lenient::Lenient;
use crate::prefix_cache::hidden_usage;
use crate::revealing_names::with_revealing_names;
use crate::sse::Frame;

/// The fields of an event that are read.
const NAMES: &[&str] =
    with_revealing_names!["type", "response", "item", "delta", "timings", "error", "object"];
/// The fields of an event's response that are read.
const RESPONSE_NAMES: &[&str] = with_revealing_names!["model", "usage", "service_tier", "timings"];

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventKind {
    /// A piece of generated output.
    Delta,
    /// A complete item of the output.
    Item,
    /// The end of a successful answer.
    End,
    /// The end of a failed answer.
    Failure,
    Other,
}

impl EventKind {
    fn of(name: &[u8]) -> Self {
        match name.trim_ascii() {
            b"\"response.completed\"" | b"\"response.incomplete\"" => Self::End,
            b"\"response.failed\"" | b"\"error\"" => Self::Failure,
            b"\"response.output_item.done\"" => Self::Item,
            // Audio data isn't text.
            b"\"response.audio.delta\"" | b"\"response.output_audio.delta\"" => Self::Other,
            name if name.ends_with(b".delta\"") => Self::Delta,
            _ => Self::Other,
        }
    }
}

impl StreamCleaner {
    pub(super) fn clean_response_event(&mut self, frame: &Frame, data: &Bytes) -> Cleaned {
        let event = match Object::read_lax(data.clone(), NAMES) {
            Ok(event) => event,
            Err(error) => return self.pass_unread(frame, data, &error),
        };
        let kind = event.get("type").map_or(EventKind::Other, EventKind::of);
        let is_end = kind == EventKind::End;
        let response = event.slice("response").map(read_response);
        if let Some(error) = self.may_reveal(response.as_ref()) {
            return self.pass_unread(frame, data, &error);
        }
        let response = response.and_then(Result::ok);
        self.count_response_event(kind, &event, response.as_ref());
        match kind {
            EventKind::Failure => {
                let error = event.slice("response").unwrap_or_else(|| data.clone());
                return self.error_event(&error);
            }
            _ if is_error(&event) => return self.error_event(data),
            _ => {}
        }
        let inner = response.as_ref().map(|(response, _)| {
            let mut edit = self.options.edit(response);
            if let Some(usage) =
                response.get("usage").filter(|usage| self.options.hides_cached && *usage != b"null")
            {
                edit.set("usage", hidden_usage(usage));
            }
            edit
        });
        let inner = inner.filter(|edit| !edit.is_empty()).map(|edit| edit.to_bytes());
        let mut edit = self.options.edit(&event);
        if let Some(inner) = inner {
            edit.set("response", inner.to_vec());
        }
        let bytes = edited(frame, &edit);
        if is_end { Cleaned::Last(bytes) } else { Cleaned::Forward(bytes) }
    }

    fn count_response_event(
        &mut self,
        kind: EventKind,
        event: &Object,
        response: Option<&(Object, Searches)>,
    ) {
        let is_end = kind == EventKind::End;
        // Usage reported before the end doesn't cover the whole answer.
        let has_usage = matches!(kind, EventKind::End | EventKind::Failure);
        let ended = response.filter(|_| has_usage);
        let usage = ended.and_then(|(response, _)| Usage::read(response.get("usage")?));
        let timings = event.get("timings").and_then(Usage::read_timings);
        let choice = |text| ChoiceText { text, is_finished: is_end, ..ChoiceText::default() };
        let delta = event.get("delta").filter(|_| kind == EventKind::Delta);
        let text = delta.and_then(|delta| serde_json::from_slice::<Lenient<Text>>(delta).ok());
        let mut choices: Vec<_> = text.map(|Lenient(Text(text))| choice(text)).into_iter().collect();
        if is_end {
            choices.push(choice(TextTokens::default()));
        }
        if let Some(item) = event.get("item").filter(|_| kind == EventKind::Item) {
            self.counter.add_searches(Searches::read(item));
        }
        if let Some((_, searches)) = ended {
            self.counter.note_searches(*searches);
        }
        let running = if usage.is_some() { None } else { timings.map(Box::new) };
        let partial = ended.and_then(|(response, _)| response.get("usage")).filter(|_| usage.is_none());
        let partial = partial.map(|usage| Box::new(Usage::read_partial(usage)));
        let service_tier = response.and_then(|(response, _)| service_tier(response.get("service_tier")?));
        self.counter.add(&ChunkCounts { choices, usage: running, partial, service_tier });
        if usage.is_some() {
            let usage = Usage::merge(usage, timings).map(Box::new);
            self.counter.add(&ChunkCounts { usage, ..ChunkCounts::default() });
        }
    }
}

/// Reads the response in an event, and the finished searches in its output.
fn read_response(text: Bytes) -> Result<(Object, Searches), JsonError> {
    let (response, searches) = Object::read_lax_with::<Lenient<Searches>>(text, RESPONSE_NAMES, "output")?;
    Ok((response, searches.map(|Lenient(searches)| searches).unwrap_or_default()))
}
