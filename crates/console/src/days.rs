//! Ranges of days in the filters of pages. The last day is included, while ranges in the API are half-open.

use api::Api;
use input::fields::{Field, Fields, Location, Problems};
use input::json::Json;
use input::types::string;
use kernel::clock::Day;

/// The code of a range that ends before it begins.
pub const END_BEFORE_START: &str = "end_before_start";

/// The message for [`END_BEFORE_START`].
pub const LAST_BEFORE_FIRST: &str = "The last day can't be before the first day.";

/// A range of days. Without a first or last day, the range is unbounded on that side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Days {
    pub first: Option<Day>,
    /// The last day, which is included.
    pub last: Option<Day>,
}

impl Days {
    /// Reads `start_date` and `end_date`.
    pub fn read(fields: &mut Fields<'_, Api>) -> Option<Self> {
        let first: Option<Option<DayField>> = fields.optional("start_date");
        let last: Option<Option<DayField>> = fields.optional("end_date");
        let day = |day: Option<DayField>| day.map(|DayField(day)| day);
        let (first, last) = (day(first?), day(last?));
        if first.zip(last).is_some_and(|(first, last)| last < first) {
            return fields.problem("end_date", END_BEFORE_START, LAST_BEFORE_FIRST);
        }
        Some(Self { first, last })
    }

    /// Returns the day after the last day.
    pub fn end_exclusive(self) -> Option<Day> {
        self.last.map(|last| last.plus(1))
    }
}

/// A day in a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayField(pub Day);

impl Field for DayField {
    fn read(value: Json<'_>, at: &Location<'_>, problems: &mut Problems) -> Option<Self> {
        let text = string(value, at, problems)?;
        match Day::parse(&text) {
            Some(day) => Some(Self(day)),
            None => {
                let message = format!("`{}` must be a date such as 2026-01-31.", at.path);
                problems.add(at, "invalid_date", message)
            }
        }
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({"type": "string", "format": "date"})
    }
}
