//! The conditions for counting a usage event, and the reasons for refusals
//! (docs/contract/service.md#usage-events).

use catalog::{Kind, Model, Tokens};
use kernel::clock::{DAY_MS, MINUTE_MS, Time};
use kernel::ids::{ApiKeyId, CallerId, ProjectId, UserId};
use strum::{IntoStaticStr, VariantArray};

/// The source of the events of our own gateway.
pub const GATEWAY_SOURCE: &str = "gateway";

/// The maximum time by which an event may be in the future, in milliseconds.
const MAX_AHEAD_MS: i64 = 5 * MINUTE_MS;
/// Maximum age of an event: 13 months of at most 31 days, in milliseconds. Ids are kept for longer.
const MAX_AGE_MS: i64 = 13 * 31 * DAY_MS;

/// Returns the time before which events may be deleted, because every server whose clock is accurate to a day
/// refuses repeated events as too old. It is the start of a day, so the days after it are complete.
pub fn deletable_before(now: Time) -> Time {
    now.plus_ms(-MAX_AGE_MS - DAY_MS).day().start()
}

pub use catalog::MAX_CALL_PRICE;

/// The maximum time by which an event may precede the creation of its caller, in milliseconds, because clocks
/// differ.
const MAX_BEFORE_CALLER_MS: i64 = 5 * MINUTE_MS;

/// The refusal of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub reason: Reason,
    /// A human-readable message that includes how to fix the event.
    pub message: String,
}

/// The reason for a refusal, as a code for programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// The event can't be read.
    InvalidEvent,
    UnknownApiKey,
    UnknownProject,
    UnknownUser,
    UnknownModel,
    /// The model is of a different kind.
    WrongKind,
    /// The model had no price at that time.
    ModelWithoutPrice,
    EventInFuture,
    EventTooOld,
    /// The event is older than its API key, or than its user's account.
    EventBeforeKey,
    /// Another event has this id.
    EventConflict,
    /// The cost of the event exceeds the maximum of the books.
    AmountOutOfRange,
    /// The event to correct doesn't exist.
    UnknownEvent,
    /// The correction names another caller, model or kind than the corrected event.
    CorrectionMismatch,
    /// The correction takes back more than the remainder of the event.
    CorrectionTooLarge,
    /// The correction has positive token counts, or corrects a correction.
    InvalidCorrection,
}

impl Reason {
    /// All reasons, in the order of the type.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the value in responses and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if the same event may be accepted later: when time has passed, when the catalog has the
    /// model or the price, or when the event to correct has arrived.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::UnknownModel | Self::ModelWithoutPrice | Self::EventInFuture | Self::UnknownEvent
        )
    }
}

fn refusal(reason: Reason, message: impl Into<String>) -> Refusal {
    Refusal { reason, message: message.into() }
}

/// Returns the refusal of an event whose id belongs to another event.
pub fn conflict() -> Refusal {
    refusal(
        Reason::EventConflict,
        "This source already reported an event with this id and different contents. Nothing was counted.",
    )
}

/// Returns the refusal of an event with an unknown API key.
pub fn unknown_api_key(api_key_id: ApiKeyId) -> Refusal {
    refusal(Reason::UnknownApiKey, format!("API key {api_key_id} doesn't exist."))
}

/// Returns the refusal of an event with a project that never existed.
pub fn unknown_project(project_id: ProjectId) -> Refusal {
    refusal(Reason::UnknownProject, format!("Project {project_id} doesn't exist."))
}

/// Returns the refusal of an event with an unknown user.
pub fn unknown_user(user_id: UserId) -> Refusal {
    refusal(Reason::UnknownUser, format!("User {user_id} doesn't exist."))
}

/// Returns the refusal of an event with an unknown model.
pub fn unknown_model(model: &str) -> Refusal {
    refusal(Reason::UnknownModel, format!("The catalog has no model `{model}`."))
}

/// Returns the refusal of an event whose model had no price.
pub fn no_price(model: &str) -> Refusal {
    refusal(Reason::ModelWithoutPrice, format!("The model `{model}` had no price at that time."))
}

/// Returns the refusal of an event that costs too much.
pub fn too_expensive() -> Refusal {
    refusal(Reason::AmountOutOfRange, format!("An event may cost at most {MAX_CALL_PRICE}."))
}

/// Returns the refusal of an event that overflows a daily row or the wallet.
pub fn overflow() -> Refusal {
    let message = "With this amount, the day's usage or the organization's balance would exceed the maximum.";
    refusal(Reason::AmountOutOfRange, message)
}

/// Returns the refusal of a correction of an unknown event.
pub fn unknown_event(event_id: &str) -> Refusal {
    refusal(
        Reason::UnknownEvent,
        format!(
            "This source has reported no event `{event_id}`: report it first, then send the correction again."
        ),
    )
}

/// Returns the refusal of a correction that differs from the event that it corrects.
pub fn correction_mismatch(event_id: &str) -> Refusal {
    refusal(
        Reason::CorrectionMismatch,
        format!(
            "A correction must have the caller (`api_key_id`, or `project_id` and `user_id`), `model` and \
             `kind` of the event that it corrects: those of `{event_id}` are different."
        ),
    )
}

/// Returns the refusal of a correction of a correction.
pub fn corrects_a_correction(event_id: &str) -> Refusal {
    refusal(
        Reason::InvalidCorrection,
        format!("`{event_id}` is itself a correction: correct the original event instead."),
    )
}

/// Returns the refusal of a correction that takes back more than the remaining tokens, which are `left`.
pub fn correction_too_large(left: Tokens) -> Refusal {
    let Tokens { prompt, cached_prompt, completion, parts } = left;
    let cached = match cached_prompt {
        0 => String::new(),
        cached => format!(" (of which {cached} are cached)"),
    };
    let parts: String =
        parts.iter().map(|(part, quantity)| format!(", `{}` {quantity}", part.as_str())).collect();
    refusal(
        Reason::CorrectionTooLarge,
        format!(
            "Corrections can't take back more than the remainder of the event: {prompt} prompt \
             tokens{cached} and \
             {completion} completion tokens{parts}."
        ),
    )
}

/// Returns the refusal of a partial correction whose price is no longer known.
pub fn price_is_gone(event_id: &str) -> Refusal {
    refusal(
        Reason::ModelWithoutPrice,
        format!(
            "The catalog no longer has the price that `{event_id}` was counted at: it can only be corrected \
             as a whole."
        ),
    )
}

/// Checks that a correction takes something back, and that parts don't exceed their whole.
pub fn check_tokens(is_correction: bool, tokens: Tokens) -> Result<(), Refusal> {
    if !is_correction {
        let message = "The parts of the prompt or of the completion are more than the whole.";
        return tokens.is_valid().then_some(()).ok_or_else(|| refusal(Reason::InvalidEvent, message));
    }
    let counts = [tokens.prompt, tokens.completion];
    if counts.iter().any(|count| *count > 0) || counts == [0, 0] && tokens.parts.is_empty() {
        let message = "A correction takes tokens back: `prompt_tokens` and `completion_tokens` are 0 or \
            less, and not both 0 unless it takes back other parts.";
        return Err(refusal(Reason::InvalidCorrection, message));
    }
    if let Some((part, _)) = tokens.parts.iter().find(|(_, quantity)| *quantity > 0) {
        let message = format!("In a correction `parts.{}` is 0 or less.", part.as_str());
        return Err(refusal(Reason::InvalidCorrection, message));
    }
    if !(tokens.prompt..=0).contains(&tokens.cached_prompt) {
        let message = "In a correction `cached_prompt_tokens` is 0 or less, and not below `prompt_tokens`, of \
            which it is a part.";
        return Err(refusal(Reason::InvalidCorrection, message));
    }
    if !tokens.checked_neg().is_some_and(Tokens::is_valid) {
        let message = "A correction can't take back more parts of the prompt or the completion than it takes \
                       back of the whole.";
        return Err(refusal(Reason::InvalidCorrection, message));
    }
    Ok(())
}

/// Checks that an event is neither in the future nor too old.
pub fn check_time(time: Time, now: Time) -> Result<(), Refusal> {
    if time > now.plus_ms(MAX_AHEAD_MS) {
        let message =
            format!("`time` is more than 5 minutes ahead of this server's clock, which shows {now}.");
        return Err(refusal(Reason::EventInFuture, message));
    }
    if time < now.plus_ms(-MAX_AGE_MS) {
        return Err(refusal(Reason::EventTooOld, "`time` is more than 13 months ago."));
    }
    Ok(())
}

/// Checks that an event isn't older than its API key or its user's account.
pub fn check_caller(caller: CallerId, time: Time) -> Result<(), Refusal> {
    let created_at = caller.created_at();
    if time >= created_at.plus_ms(-MAX_BEFORE_CALLER_MS) {
        return Ok(());
    }
    let creation = match caller {
        CallerId::ApiKey(id) => format!("the key {id} was"),
        CallerId::User(id) => format!("the account of {id} was"),
    };
    let message =
        format!("`time` is {time}, but {creation} made at {created_at}: nothing was used before that.");
    Err(refusal(Reason::EventBeforeKey, message))
}

/// Checks that an event's model is of the event's kind, and that embeddings have neither completion tokens
/// nor cached ones.
pub fn check_kind(model: &Model, kind: Kind, tokens: Tokens) -> Result<(), Refusal> {
    if model.kind != kind {
        let message =
            format!("The model `{}` is for {}, not for {}.", model.id, model.kind.as_str(), kind.as_str());
        return Err(refusal(Reason::WrongKind, message));
    }
    if kind == Kind::Embeddings && tokens.completion != 0 {
        return Err(refusal(Reason::WrongKind, "Embeddings have no completion tokens."));
    }
    if kind == Kind::Embeddings && tokens.cached_prompt != 0 {
        return Err(refusal(Reason::WrongKind, "Embeddings have no cached prompt tokens."));
    }
    if let Some((part, _)) = tokens.parts.iter().find(|(part, _)| !part.is_possible(kind)) {
        let message = format!("`parts.{}` isn't possible for {}.", part.as_str(), kind.as_str());
        return Err(refusal(Reason::WrongKind, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::Catalog;

    #[test]
    fn reasons_have_fixed_words() {
        let retryable: Vec<_> = Reason::ALL.iter().filter(|reason| reason.is_retryable()).collect();
        let expected = [
            &Reason::UnknownModel,
            &Reason::ModelWithoutPrice,
            &Reason::EventInFuture,
            &Reason::UnknownEvent,
        ];
        assert_eq!(retryable.len(), expected.len());
        assert!(expected.iter().all(|reason| retryable.contains(reason)));
        let words: Vec<_> = expected.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words, ["unknown_model", "model_without_price", "event_in_future", "unknown_event"]);
    }

    #[test]
    fn time_limits_are_exact() {
        let now = Time::parse("2026-03-01T00:00:00Z").unwrap();
        let code = |ms| check_time(now.plus_ms(ms), now).map_err(|r| r.reason);
        assert_eq!(code(MAX_AHEAD_MS), Ok(()));
        assert_eq!(code(MAX_AHEAD_MS + 1), Err(Reason::EventInFuture));
        assert_eq!(code(-MAX_AGE_MS), Ok(()));
        assert_eq!(code(-MAX_AGE_MS - 1), Err(Reason::EventTooOld));
    }

    #[test]
    fn event_may_precede_its_caller_by_five_minutes() {
        let made = Time::parse("2026-03-01T00:00:00Z").unwrap();
        let callers =
            [CallerId::ApiKey(ApiKeyId::from_parts(made, 7)), CallerId::User(UserId::from_parts(made, 7))];
        for caller in callers {
            let code = |ms| check_caller(caller, made.plus_ms(ms)).map_err(|r| r.reason);
            assert_eq!(code(0), Ok(()));
            assert_eq!(code(-MAX_BEFORE_CALLER_MS), Ok(()));
            assert_eq!(code(-MAX_BEFORE_CALLER_MS - 1), Err(Reason::EventBeforeKey));
        }
    }

    #[test]
    fn only_corrections_take_tokens_back() {
        for (is_correction, prompt, cached_prompt, completion, good) in [
            (false, 1, 0, 2, true),
            (false, 0, 0, 0, true),
            (true, -1, 0, -2, true),
            (true, -1, 0, 0, true),
            (true, 0, 0, -1, true),
            (true, 0, 0, 0, false),
            (true, 1, 0, -2, false),
            (true, -1, 0, 2, false),
            (true, 1, 0, 2, false),
            (true, -5, -5, 0, true),
            (true, -5, -6, 0, false),
            (true, -5, 1, 0, false),
            (true, 0, -1, -1, false),
        ] {
            let tokens = Tokens::new(prompt, cached_prompt, completion);
            let found = check_tokens(is_correction, tokens).map_err(|refusal| refusal.reason);
            let due = if good { Ok(()) } else { Err(Reason::InvalidCorrection) };
            assert_eq!(found, due, "{is_correction} {tokens:?}");
        }
    }

    #[test]
    fn event_kind_must_match_the_model() {
        let catalog = Catalog::built_in().unwrap();
        for (model, kind, cached_prompt, completion, good) in [
            ("svc-1", Kind::Chat, 0, 0, true),
            ("svc-1", Kind::Chat, 1, 1, true),
            ("svc-1", Kind::Embeddings, 0, 0, false),
            ("svc-embedding-1", Kind::Embeddings, 0, 0, true),
            ("svc-embedding-1", Kind::Embeddings, 0, 1, false),
            ("svc-embedding-1", Kind::Embeddings, 0, -1, false),
            ("svc-embedding-1", Kind::Embeddings, 1, 0, false),
            ("svc-embedding-1", Kind::Chat, 0, 0, false),
        ] {
            let tokens = Tokens::new(1, cached_prompt, completion);
            let found =
                check_kind(catalog.get(model).unwrap(), kind, tokens).map_err(|refusal| refusal.reason);
            let due = if good { Ok(()) } else { Err(Reason::WrongKind) };
            assert_eq!(found, due, "{model} {kind:?} {tokens:?}");
        }
    }

    #[test]
    fn deletable_events_were_refused_for_a_day() {
        for now in ["2026-03-01T00:00:00Z", "2026-03-01T23:59:59.999Z"] {
            let now = Time::parse(now).unwrap();
            let before = deletable_before(now);
            assert_eq!(before, before.day().start());
            assert!(check_time(before.plus_ms(-1), now.plus_ms(-DAY_MS)).is_err());
        }
        assert_eq!(
            deletable_before(Time::parse("2026-03-01T12:00:00Z").unwrap()).to_string(),
            "2025-01-21T00:00:00.000Z"
        );
    }
}
