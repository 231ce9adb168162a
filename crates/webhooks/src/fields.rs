//! Input fields of webhooks: URLs, event types, and the delivery filter.

use serde_json::{Value, json};
use strum::VariantArray;

use events::EventType;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::types::{items, one_of, string};

use crate::rules::urls::WebhookUrl;
use crate::store::deliveries::State;

impl Field for WebhookUrl {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        if text.chars().count() > Self::MAX_CHARS {
            let message = format!("`{}` must be at most {} characters.", at.path, Self::MAX_CHARS);
            return problems.add(at, "too_long", message);
        }
        match Self::parse(&text) {
            Some(url) => Some(url),
            None => problems.add(
                at,
                "invalid_url",
                format!(
                    "`{}` must be a URL such as https://example.com/events, without a login and a fragment.",
                    at.path
                ),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "format": "uri", "maxLength": Self::MAX_CHARS,
               "examples": ["https://example.com/events"]})
    }
}

/// The event types that a webhook receives: at least one, in the order of the contract, without duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventTypes(pub Vec<EventType>);

impl Field for EventTypes {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let named = items(value, at, problems, |item, at, problems| {
            one_of(item, at, problems, EventType::SUBSCRIBABLE)
        })?;
        if named.is_empty() {
            let message = format!("`{}` can't be empty: name the events to send.", at.path);
            return problems.add(at, "empty", message);
        }
        Some(Self(EventType::SUBSCRIBABLE.iter().filter(|of| named.contains(of)).copied().collect()))
    }
    fn schema() -> Value {
        let words: Vec<_> = EventType::SUBSCRIBABLE.iter().map(|of| of.as_str()).collect();
        json!({"type": "array", "minItems": 1, "items": {"type": "string", "title": "WebhookEventType", "enum": words},
               "examples": [["invoice.paid", "api_key.created"]]})
    }
}

impl Field for State {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        one_of(value, at, problems, Self::VARIANTS)
    }
    fn schema() -> Value {
        let words: Vec<_> = Self::VARIANTS.iter().map(|state| state.as_str()).collect();
        json!({"type": "string", "title": "WebhookDeliveryState", "enum": words, "examples": ["failed"]})
    }
}
