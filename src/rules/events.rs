//! Which usage events count (decisions, sections 5 and 8), and why the others don't.

use crate::catalog::{Kind, Model};
use crate::clock::{DAY_MS, MINUTE_MS, Time};
use crate::ids::ApiKeyId;
use crate::money::Pico;

/// How far ahead of our clock an event may be, in milliseconds.
const FUTURE_MS: i64 = 5 * MINUTE_MS;
/// How old an event may be: 13 months of at most 31 days, in milliseconds; ids are kept for longer.
const OLDEST_MS: i64 = 13 * 31 * DAY_MS;

/// The most that one event may cost: 1,000 of the currency. A day's row then has room for thousands of the dearest ones.
pub const MOST_EXPENSIVE: Pico = Pico::from_units(1_000_000_000_000_000);

/// Why an event doesn't count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// A stable lower_snake word.
    pub code: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

fn refusal(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// Another event has this id already.
pub fn conflict() -> Refusal {
    refusal(
        "event_conflict",
        "Another event of this source has this id and says something else: nothing was counted.",
    )
}

/// Nobody has this key.
pub fn unknown_api_key(api_key_id: ApiKeyId) -> Refusal {
    refusal("unknown_api_key", format!("There is no API key {api_key_id}."))
}

/// The catalog has no such model.
pub fn unknown_model(model: &str) -> Refusal {
    refusal("unknown_model", format!("There is no model `{model}` in the catalog."))
}

/// A model without a price can't be used.
pub fn no_price(model: &str) -> Refusal {
    refusal("model_without_price", format!("The model `{model}` had no price at that time."))
}

/// The price doesn't fit the books.
pub fn too_expensive() -> Refusal {
    refusal("amount_out_of_range", format!("One event may cost at most {MOST_EXPENSIVE} of the currency."))
}

/// Neither from the future nor from the distant past.
pub fn check_time(time: Time, now: Time) -> Result<(), Refusal> {
    if time > now.plus_ms(FUTURE_MS) {
        let message =
            format!("`time` is more than 5 minutes ahead of this server's clock, which shows {now}.");
        return Err(refusal("event_in_future", message));
    }
    if time < now.plus_ms(-OLDEST_MS) {
        return Err(refusal("event_too_old", "`time` is more than 13 months ago."));
    }
    Ok(())
}

/// A chat model has no embeddings, and the other way round; embeddings have no completion.
pub fn check_kind(model: &Model, kind: Kind, completion_tokens: i64) -> Result<(), Refusal> {
    if model.kind != kind {
        let message =
            format!("The model `{}` is for {}, not for {}.", model.id, model.kind.as_str(), kind.as_str());
        return Err(refusal("wrong_kind", message));
    }
    if kind == Kind::Embeddings && completion_tokens != 0 {
        return Err(refusal("wrong_kind", "Embeddings have no completion tokens."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_time_are_exact() {
        let now = Time::parse("2026-03-01T00:00:00Z").unwrap();
        let code = |ms| check_time(now.plus_ms(ms), now).map_err(|r| r.code);
        assert_eq!(code(FUTURE_MS), Ok(()));
        assert_eq!(code(FUTURE_MS + 1), Err("event_in_future"));
        assert_eq!(code(-OLDEST_MS), Ok(()));
        assert_eq!(code(-OLDEST_MS - 1), Err("event_too_old"));
    }
}
