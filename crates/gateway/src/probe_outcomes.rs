//! A record of the injected fields that an upstream refuses. The gateway injects these fields into requests
//! so that the upstream reports token counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::operation::Operation;
use crate::request::{InjectedField, Injection};

/// The duration for which a refused field isn't sent.
const REMEMBERED_MS: i64 = 10 * 60 * 1_000;
/// The minimum time between two probes with the same operation and model.
const PROBE_INTERVAL_MS: i64 = 60 * 1_000;

/// The injected fields that an upstream is known to accept or refuse.
#[derive(Default)]
pub(crate) struct ProbeOutcomes {
    /// The operations and models that were probed recently: usually none, and at most all of the catalog.
    known: Mutex<Vec<ProbeOutcome>>,
    /// Only one probe runs at a time.
    pub(crate) probing: tokio::sync::Mutex<()>,
}

/// The outcome of probes with one operation and model.
struct ProbeOutcome {
    operation: Operation,
    /// The model's name at the upstream.
    model: String,
    injection: Injection,
    /// The end of the outcome's validity, on the steady clock.
    until_ms: i64,
    /// The earliest time of the next probe.
    next_probe_ms: i64,
}

impl ProbeOutcomes {
    /// Returns the fields that may be added to a stream: all of them, unless a probe has found otherwise.
    pub(crate) fn injection(&self, operation: Operation, model: &str, now_ms: i64) -> Injection {
        let known = self.known();
        let outcome = known.iter().find(|known| known.is_of(operation, model) && now_ms < known.until_ms);
        outcome.map_or_else(Injection::default, |known| known.injection)
    }

    /// Returns `true` if a probe may run now.
    pub(crate) fn may_probe(&self, operation: Operation, model: &str, now_ms: i64) -> bool {
        !self.known().iter().any(|known| known.is_of(operation, model) && now_ms < known.next_probe_ms)
    }

    /// Remembers the outcome of a probe; `learned` is `None` if the probe failed. A failed probe leaves the
    /// earlier outcome unchanged, and the next probe waits for the same interval.
    pub(crate) fn remember(
        &self,
        operation: Operation,
        model: &str,
        learned: Option<Injection>,
        now_ms: i64,
    ) {
        let mut known = self.known();
        let is_valid = |known: &&ProbeOutcome| known.is_of(operation, model) && now_ms < known.until_ms;
        let before = known.iter().find(is_valid).map(|known| (known.injection, known.until_ms));
        let learned = learned.map(|injection| (injection, now_ms + REMEMBERED_MS));
        let (injection, until_ms) = learned.or(before).unwrap_or((Injection::default(), now_ms));
        known.retain(|known| !known.is_of(operation, model) && !known.is_over(now_ms));
        known.push(ProbeOutcome {
            operation,
            model: model.to_owned(),
            injection,
            until_ms,
            next_probe_ms: now_ms + PROBE_INTERVAL_MS,
        });
    }

    /// Returns each counting field that isn't sent, with the name of the model that refuses it.
    pub(crate) fn refused(&self, now_ms: i64) -> Vec<(String, InjectedField)> {
        let known = self.known();
        let valid = known.iter().filter(|known| now_ms < known.until_ms);
        let refused = valid.flat_map(|known| {
            let counting = InjectedField::ALL.into_iter().filter(|field| field.is_for_counting());
            let fields = counting.filter(|field| known.injection.is_without(*field));
            fields.map(|field| (known.model.clone(), field))
        });
        refused.collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<ProbeOutcome>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProbeOutcome {
    fn is_of(&self, operation: Operation, model: &str) -> bool {
        self.operation == operation && self.model == model
    }

    fn is_over(&self, now_ms: i64) -> bool {
        self.until_ms <= now_ms && self.next_probe_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use InjectedField::{IncludeUsage, MaxTokens};

    const CHAT: Operation = Operation::ChatCompletions;

    #[test]
    fn failed_probe_changes_nothing_but_the_time_of_the_next() {
        let probe_outcomes = ProbeOutcomes::default();
        probe_outcomes.remember(CHAT, "m", None, 0);
        assert_eq!(probe_outcomes.injection(CHAT, "m", 1), Injection::default());
        assert!(!probe_outcomes.may_probe(CHAT, "m", PROBE_INTERVAL_MS - 1));
        assert!(probe_outcomes.may_probe(CHAT, "m", PROBE_INTERVAL_MS));
        let learned = Injection::default().without(IncludeUsage);
        probe_outcomes.remember(CHAT, "m", Some(learned), 100);
        probe_outcomes.remember(CHAT, "m", None, 200);
        assert_eq!(probe_outcomes.injection(CHAT, "m", 201), learned);
        // The earlier outcome is valid until it expires.
        assert_eq!(probe_outcomes.injection(CHAT, "m", 100 + REMEMBERED_MS), Injection::default());
        assert!(!probe_outcomes.may_probe(CHAT, "m", 199 + PROBE_INTERVAL_MS));
    }

    #[test]
    fn metrics_show_fields_by_which_an_upstream_counts() {
        let probe_outcomes = ProbeOutcomes::default();
        let learned = Injection::default().without(IncludeUsage).without(MaxTokens);
        probe_outcomes.remember(CHAT, "m", Some(learned), 0);
        assert_eq!(probe_outcomes.refused(1), [("m".to_owned(), IncludeUsage)]);
    }
}
