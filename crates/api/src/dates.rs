//! The bounds of ranges: dates and timestamps.

use serde_json::{Value, json};

use billing::rules::periods::DateBound;
use input::fields::{Field, Location, Problems};
use input::json::Json;
use input::types::string;

/// A date or a timestamp that bounds a range.
pub struct DateField(pub DateBound);

impl Field for DateField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match DateBound::parse(&text) {
            Some(bound) => Some(Self(bound)),
            None => problems.add(
                at,
                "invalid_date",
                format!(
                    "`{}` must be a date such as 2026-01-31 or a timestamp such as 2026-01-31T09:30:00Z.",
                    at.path
                ),
            ),
        }
    }
    fn schema() -> Value {
        json!({"type": "string", "anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}], "examples": ["2026-01-01"]})
    }
}
