//! The events of a message of Anthropic's API: `message_start` with the tokens of the prompt,
//! `content_block_delta` with text, `message_delta` with the tokens of the answer so far, `message_stop`.

use hyper::body::Bytes;

use super::stream::{Cleaned, StreamCleaner, edited, is_error};
use crate::count::reading::Text;
use crate::count::{ChoiceText, ChunkCounts, MessageUsage, TextTokens, Usage};
use crate::json::{Edit, Object};
use crate::lenient::Lenient;
use crate::prefix_cache::hidden_message_usage;
use crate::revealing_names::with_revealing_names;
use crate::sse::Frame;

/// The members of an event that are read.
const NAMES: &[&str] =
    with_revealing_names!["type", "message", "delta", "usage", "timings", "error", "object"];
/// The members of an event's message that are read.
const MESSAGE_NAMES: &[&str] = with_revealing_names!["model", "usage", "timings"];
/// The members of an event's delta that are read.
const DELTA_NAMES: &[&str] = &["stop_reason"];

impl StreamCleaner {
    pub(super) fn clean_message_event(&mut self, frame: &Frame, data: &Bytes) -> Cleaned {
        let event = match Object::read_lax(data.clone(), NAMES) {
            Ok(event) => event,
            Err(error) => return self.pass_unread(frame, data, &error),
        };
        let name = event.get("type").unwrap_or_default();
        if name == b"\"error\"" || is_error(&event) {
            return self.error_event(data);
        }
        match name {
            b"\"message_start\"" => return self.clean_start(frame, data, &event),
            b"\"content_block_delta\"" => self.count_text(&event),
            b"\"message_delta\"" => self.count_end(&event),
            _ => {}
        }
        let mut edit = self.options.edit(&event);
        self.hide_cached(&event, &mut edit);
        let bytes = edited(frame, &edit);
        if name == b"\"message_stop\"" { Cleaned::Last(bytes) } else { Cleaned::Forward(bytes) }
    }

    fn clean_start(&mut self, frame: &Frame, data: &Bytes, event: &Object) -> Cleaned {
        let message = event.slice("message").map(|text| Object::read_lax(text, MESSAGE_NAMES));
        if let Some(error) = self.may_reveal(message.as_ref()) {
            return self.pass_unread(frame, data, &error);
        }
        let message = message.and_then(Result::ok);
        if let Some(usage) = message.as_ref().and_then(|message| message.get("usage")) {
            self.message_usage = MessageUsage::read(usage);
            // The output tokens of this event cover only the beginning of the answer, so they are ignored.
            // Until a later `usage` object, the answer is estimated from its text.
            let usage = self.message_usage.total().map(|usage| Usage { completion_tokens: 0, ..usage });
            self.count(TextTokens::default(), false, usage.map(Box::new));
        }
        let mut edit = self.options.edit(event);
        let inner = message.as_ref().map(|message| {
            let mut edit = self.options.edit(message);
            self.hide_cached(message, &mut edit);
            edit
        });
        if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
            edit.set("message", inner.to_bytes().to_vec());
        }
        Cleaned::Forward(edited(frame, &edit))
    }

    /// Removes cached tokens from the `usage` object of an event or of its message, if they are hidden from
    /// the client.
    fn hide_cached(&self, object: &Object, edit: &mut Edit<'_>) {
        if let Some(usage) =
            object.get("usage").filter(|usage| self.options.hides_cached && *usage != b"null")
        {
            let total = self.message_usage.total().map(|usage| usage.prompt_tokens);
            edit.set("usage", hidden_message_usage(usage, total));
        }
    }

    fn count_text(&mut self, event: &Object) {
        let delta = event.get("delta").unwrap_or_default();
        let text = serde_json::from_slice::<Lenient<Text>>(delta);
        self.count(text.map_or(TextTokens::default(), |Lenient(Text(text))| text), false, None);
    }

    fn count_end(&mut self, event: &Object) {
        let delta = event.slice("delta").and_then(|text| Object::read_lax(text, DELTA_NAMES).ok());
        let reason = delta.as_ref().and_then(|delta| delta.get("stop_reason"));
        let is_finished = reason.is_some_and(|reason| !matches!(reason, b"null" | b"\"\""));
        let later = event.get("usage").map(MessageUsage::read).unwrap_or_default();
        self.message_usage = self.message_usage.then(later);
        let usage = self.message_usage.total().filter(|_| later.has_output()).map(Box::new);
        self.is_message_counted |= usage.is_some();
        if is_finished {
            // The `usage` object of the event with the stop reason covers the whole answer.
            self.count(TextTokens::default(), true, None);
            let service_tier = self.message_usage.service_tier();
            self.counter.add(&ChunkCounts { usage, service_tier, ..ChunkCounts::default() });
        } else {
            self.count(TextTokens::default(), false, usage);
        }
    }

    fn count(&mut self, text: TextTokens, is_finished: bool, usage: Option<Box<Usage>>) {
        let choice = ChoiceText { text, is_finished, ..ChoiceText::default() };
        let (choices, service_tier) = (vec![choice], self.message_usage.service_tier());
        self.counter.add(&ChunkCounts { choices, usage, service_tier, ..ChunkCounts::default() });
    }
}
