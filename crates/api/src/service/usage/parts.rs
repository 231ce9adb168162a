//! The parts of a usage event: its quantities by component.

use serde_json::{Value, json};

use catalog::{Component, EventParts, Parts};
use input::fields::{Field, Fields, Location, Problems};
use input::json::Json;
use input::schema::{ObjectSchema, Property};
use input::types::Integer;

/// Tokens of an event; negative in a correction.
pub(super) type Tokens = Integer<-1_000_000_000, 1_000_000_000>;

/// The other quantities of an event, by the names of components.
#[derive(Debug, Default)]
pub(super) struct PartsField(pub(super) EventParts);

impl PartsField {
    fn names() -> String {
        Component::PARTS.map(|part| format!("`{}`", part.as_str())).join(", ")
    }
}

impl Field for PartsField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let Json::Object(members) = value else {
            let message = format!("`{}` must be an object, not {}.", at.path, value.type_name());
            return problems.add(at, "wrong_type", message);
        };
        let mut parts = Some(Parts::default());
        for (name, value) in members {
            let known = name.parse::<Component>().ok().filter(|part| Component::PARTS.contains(part));
            // Nearly all parts are read here, without allocating their path.
            if let (Some(part), Json::Integer(quantity @ Tokens::MIN..=Tokens::MAX)) = (known, &value) {
                parts = parts.map(|parts| parts.with(part, *quantity));
                continue;
            }
            let path = format!("{}.{name}", at.path);
            let place = Location { path: &path, ..*at };
            let Some(part) = known else {
                let message = format!("Unknown part `{name}`. Known parts are {}.", Self::names());
                parts = problems.add(&place, "unknown_field", message);
                continue;
            };
            let quantity = Tokens::read(value, &place, problems);
            parts = parts.zip(quantity).map(|(parts, Integer(quantity))| parts.with(part, quantity));
        }
        parts.map(|parts| Self(parts.into()))
    }
    fn schema() -> Value {
        let property =
            |part: &Component| Property::optional(part.as_str(), Tokens::schema(), description(*part));
        let properties = Component::PARTS.iter().map(property).collect();
        let mut schema = ObjectSchema { properties, is_open: false }.to_value();
        if let Some(members) = schema.as_object_mut() {
            members.insert("title".into(), "UsageParts".into());
            members.insert("examples".into(), json!([{"reasoning": 120, "search": 1}]));
        }
        schema
    }
}

fn description(part: Component) -> &'static str {
    match part {
        Component::CacheWrite5m => {
            "Tokens of the prompt that were written to a cache for 5 minutes, or for an unknown time."
        }
        Component::CacheWrite1h => "Tokens of the prompt that were written to a cache for an hour.",
        Component::AudioPrompt => "Audio tokens of the prompt.",
        Component::ImagePrompt => "Image tokens of the prompt.",
        Component::Reasoning => "Reasoning tokens of the answer.",
        Component::AudioCompletion => "Audio tokens of the answer.",
        Component::Request => "Requests; only in corrections.",
        Component::Image => "Images of the answer.",
        Component::Second => "Seconds of audio or video.",
        Component::Character => "Characters.",
        Component::Search => "Searches made by the upstream.",
        Component::Prompt | Component::CachedPrompt | Component::Completion => "",
    }
}

/// Adds a problem for each part that isn't allowed in this event.
pub(super) fn check_parts(
    fields: &mut Fields<'_, ()>,
    parts: Parts,
    (prompt, cached, completion): (i64, i64, i64),
    is_correction: bool,
) {
    for (part, quantity) in parts.iter() {
        let name = part.as_str();
        if is_correction {
            continue;
        }
        let message = match part {
            Component::Request => {
                "`parts.request` is allowed only in an event that `corrects` another: every other event \
                 counts as one request."
                    .to_owned()
            }
            _ if quantity < 0 => format!(
                "`parts.{name}` must be 0 or more: only an event that `corrects` another takes something back."
            ),
            _ => continue,
        };
        fields.problem::<()>("parts", "out_of_range", message);
    }
    let wholes = [
        (Component::Prompt, "prompt_tokens", prompt, cached),
        (Component::Completion, "completion_tokens", completion, 0),
    ];
    for (whole, name, tokens, cached) in wholes {
        let sum = parts.sum_of(whole).and_then(|sum| sum.checked_add(cached));
        let fits = sum.is_some_and(|sum| sum.abs() <= tokens.abs());
        if parts.sum_of(whole) != Some(0) && !fits {
            let message = format!(
                "Together, the `parts` of `{name}`{} must be at most `{name}`: each token belongs to at most \
                 one part.",
                if whole == Component::Prompt { " and `cached_prompt_tokens`" } else { "" }
            );
            fields.problem::<()>("parts", "out_of_range", message);
        }
    }
}
