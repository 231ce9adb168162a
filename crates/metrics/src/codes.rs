//! Counters by error code: of answers, and of decisions about model calls.

use std::sync::atomic::{AtomicU64, Ordering};

use super::text::{Kind, Text};
use kernel::error::Code;

/// The number of answers with each error code.
#[derive(Debug)]
pub struct Codes([AtomicU64; Code::ALL.len()]);

impl Default for Codes {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Code::ALL.len()])
    }
}

impl Codes {
    /// Counts an answer with this code.
    pub fn count(&self, code: Code) {
        if let Some(counter) = self.0.get(code.number()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of answers with this code.
    pub fn of(&self, code: Code) -> u64 {
        self.0.get(code.number()).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Returns the codes that were counted at least once.
    fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Code::ALL.iter().map(|code| (code.as_str(), self.of(*code)));
        all.filter(|(_, count)| *count > 0)
    }

    pub(super) fn render(&self, text: &mut Text) {
        let family = ("tollkeeper_errors_total", Kind::Counter, "Answers that were errors, by their code.");
        text.each(family, "code", self.counted());
    }
}

/// The kind of caller that asks whether a model call is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// An inference server.
    Authorize,
    /// A reverse proxy.
    ForwardAuth,
    /// A caller that lists or reads models.
    Models,
}

impl Caller {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Authorize, "authorize"), (Self::ForwardAuth, "forward_auth"), (Self::Models, "models")];
}

/// Decisions about model calls, by caller.
#[derive(Debug, Default)]
pub struct Decisions([CallerDecisions; 3]);

#[derive(Debug, Default)]
struct CallerDecisions {
    allowed: AtomicU64,
    refused: Codes,
}

impl Decisions {
    /// Counts a decision: allowed, or refused with this code.
    pub fn count(&self, asked: Caller, refused: Option<Code>) {
        let decided = self.of(asked);
        match refused {
            None => drop(decided.allowed.fetch_add(1, Ordering::Relaxed)),
            Some(code) => decided.refused.count(code),
        }
    }

    fn of(&self, asked: Caller) -> &CallerDecisions {
        let [authorize, forward_auth, models] = &self.0;
        match asked {
            Caller::Authorize => authorize,
            Caller::ForwardAuth => forward_auth,
            Caller::Models => models,
        }
    }

    pub(super) fn render(&self, text: &mut Text) {
        const NAME: &str = "tollkeeper_decisions_total";
        text.family(
            NAME,
            Kind::Counter,
            "Decisions about model calls: `allowed`, or the code of the refusal.",
        );
        for (asked, word) in Caller::ALL {
            let decided = self.of(asked);
            let allowed = decided.allowed.load(Ordering::Relaxed);
            text.sample(NAME, &[("asked", word), ("code", "allowed")], allowed);
            for (code, count) in decided.refused.counted() {
                text.sample(NAME, &[("asked", word), ("code", code)], count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_own_counter() {
        let codes = Codes::default();
        for (number, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.number(), number, "{code:?} stands elsewhere in `Code::ALL` than in `Code`");
            (0..=number).for_each(|_| codes.count(*code));
        }
        for (number, code) in Code::ALL.iter().enumerate() {
            assert_eq!(codes.of(*code), u64::try_from(number + 1).unwrap());
        }
    }
}
