//! Which usage events count (decisions, sections 5 and 8), and why the others don't.

use crate::catalog::{Kind, Model};
use crate::clock::{DAY_MS, MINUTE_MS, Time};
use crate::ids::ApiKeyId;
use crate::money::Pico;

/// How far ahead of our clock an event may be, in milliseconds.
const FUTURE_MS: i64 = 5 * MINUTE_MS;
/// How old an event may be: 13 months of at most 31 days, in milliseconds; ids are kept for longer.
const OLDEST_MS: i64 = 13 * 31 * DAY_MS;

/// Events from before this instant may be forgotten: a repetition of one is refused as too old, by every server whose clock is
/// right to a day. It is the start of a day, so that the days after it are whole.
pub fn forgettable_before(now: Time) -> Time {
    now.plus_ms(-OLDEST_MS - DAY_MS).day().start()
}

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

/// There is nothing to correct.
pub fn unknown_event(event_id: &str) -> Refusal {
    refusal(
        "unknown_event",
        format!("This source has reported no event `{event_id}`: there is nothing to correct."),
    )
}

/// It says something else than what it corrects.
pub fn correction_mismatch(event_id: &str) -> Refusal {
    refusal(
        "correction_mismatch",
        format!(
            "A correction names the `api_key_id`, `model` and `kind` of what it corrects: `{event_id}` has others."
        ),
    )
}

/// It corrects a correction.
pub fn corrects_a_correction(event_id: &str) -> Refusal {
    refusal(
        "invalid_correction",
        format!("`{event_id}` is a correction itself: correct the event that it corrects."),
    )
}

/// All corrections together take more than there was.
pub fn correction_too_large(prompt_tokens: i64, completion_tokens: i64) -> Refusal {
    refusal(
        "correction_too_large",
        format!(
            "Corrections can't take more than is left of the event: {prompt_tokens} prompt tokens and {completion_tokens} \
             completion tokens."
        ),
    )
}

/// Its price isn't known any more.
pub fn price_is_gone(event_id: &str) -> Refusal {
    refusal(
        "model_without_price",
        format!(
            "The catalog no longer has the price that `{event_id}` was counted at: it can only be corrected as a whole."
        ),
    )
}

/// Tokens are counted by events, and taken back by corrections.
pub fn check_tokens(is_correction: bool, prompt_tokens: i64, completion_tokens: i64) -> Result<(), Refusal> {
    let counts = [prompt_tokens, completion_tokens];
    if is_correction && (counts.iter().any(|count| *count > 0) || counts == [0, 0]) {
        let message = "A correction takes tokens back: `prompt_tokens` and `completion_tokens` are 0 or less, and not both 0.";
        return Err(refusal("invalid_correction", message));
    }
    Ok(())
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
    use crate::catalog::Catalog;

    #[test]
    fn the_edges_of_time_are_exact() {
        let now = Time::parse("2026-03-01T00:00:00Z").unwrap();
        let code = |ms| check_time(now.plus_ms(ms), now).map_err(|r| r.code);
        assert_eq!(code(FUTURE_MS), Ok(()));
        assert_eq!(code(FUTURE_MS + 1), Err("event_in_future"));
        assert_eq!(code(-OLDEST_MS), Ok(()));
        assert_eq!(code(-OLDEST_MS - 1), Err("event_too_old"));
    }

    #[test]
    fn only_a_correction_takes_tokens_back() {
        for (is_correction, prompt, completion, good) in [
            (false, 1, 2, true),
            (false, 0, 0, true),
            (true, -1, -2, true),
            (true, -1, 0, true),
            (true, 0, -1, true),
            (true, 0, 0, false),
            (true, 1, -2, false),
            (true, -1, 2, false),
            (true, 1, 2, false),
        ] {
            let found = check_tokens(is_correction, prompt, completion).map_err(|refusal| refusal.code);
            let due = if good { Ok(()) } else { Err("invalid_correction") };
            assert_eq!(found, due, "{is_correction} {prompt} {completion}");
        }
    }

    #[test]
    fn a_model_does_what_it_is_for() {
        let catalog = Catalog::built_in().unwrap();
        for (model, kind, completion, good) in [
            ("svc-1", Kind::Chat, 0, true),
            ("svc-1", Kind::Chat, 1, true),
            ("svc-1", Kind::Embeddings, 0, false),
            ("svc-embedding-1", Kind::Embeddings, 0, true),
            ("svc-embedding-1", Kind::Embeddings, 1, false),
            ("svc-embedding-1", Kind::Embeddings, -1, false),
            ("svc-embedding-1", Kind::Chat, 0, false),
        ] {
            let found =
                check_kind(catalog.get(model).unwrap(), kind, completion).map_err(|refusal| refusal.code);
            let due = if good { Ok(()) } else { Err("wrong_kind") };
            assert_eq!(found, due, "{model} {kind:?} {completion}");
        }
    }

    #[test]
    fn what_is_forgotten_was_refused_for_a_day() {
        for now in ["2026-03-01T00:00:00Z", "2026-03-01T23:59:59.999Z"] {
            let now = Time::parse(now).unwrap();
            let before = forgettable_before(now);
            assert_eq!(before, before.day().start());
            assert!(check_time(before.plus_ms(-1), now.plus_ms(-DAY_MS)).is_err());
        }
        assert_eq!(
            forgettable_before(Time::parse("2026-03-01T12:00:00Z").unwrap()).to_string(),
            "2025-01-21T00:00:00.000Z"
        );
    }
}
