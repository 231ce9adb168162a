//! Counters by error code, for responses and for decisions about model calls.

use std::sync::OnceLock;

use prometheus::{IntCounter, IntCounterVec};

use super::text::Registered;
use kernel::error::Code;

/// The number of responses with each error code. Each series is created at its first use.
#[derive(Debug)]
pub struct Codes {
    family: IntCounterVec,
    /// The value of the label before the code, if any.
    label: Option<&'static str>,
    counters: [OnceLock<IntCounter>; Code::ALL.len()],
}

impl Codes {
    fn new(family: IntCounterVec, label: Option<&'static str>) -> Self {
        Self { family, label, counters: [const { OnceLock::new() }; Code::ALL.len()] }
    }

    pub(super) fn of_answers(registered: &Registered) -> Self {
        let help = "Error responses by code.";
        Self::new(registered.counters("tollkeeper_errors_total", help, &["code"]), None)
    }

    /// Counts a response with this code.
    pub fn count(&self, code: Code) {
        if let Some(counter) = self.counters.get(code.number()) {
            let labels = || self.label.into_iter().chain([code.as_str()]).collect::<Vec<_>>();
            counter.get_or_init(|| self.family.with_label_values(&labels())).inc();
        }
    }

    /// Returns the number of responses with this code.
    pub fn of(&self, code: Code) -> u64 {
        self.counters.get(code.number()).and_then(OnceLock::get).map_or(0, IntCounter::get)
    }
}

/// The kind of caller that requests a decision about a model call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// An inference server.
    Authorize,
    /// A reverse proxy.
    ForwardAuth,
    /// A caller that lists or reads models.
    Models,
    /// A caller of a model through the gateway.
    Gateway,
}

/// Decisions about model calls, by caller.
#[derive(Debug)]
pub struct Decisions([(IntCounter, Codes); 4]);

impl Decisions {
    pub(super) fn new(registered: &Registered) -> Self {
        let help = "Decisions about model calls: `allowed`, or the code of the refusal.";
        let family = registered.counters("tollkeeper_decisions_total", help, &["asked", "code"]);
        Self(["authorize", "forward_auth", "models", "gateway"].map(|asked| {
            (family.with_label_values(&[asked, "allowed"]), Codes::new(family.clone(), Some(asked)))
        }))
    }

    /// Counts a decision: allowed, or refused with this code.
    pub fn count(&self, asked: Caller, refused: Option<Code>) {
        let [authorize, forward_auth, models, gateway] = &self.0;
        let (allowed, codes) = match asked {
            Caller::Authorize => authorize,
            Caller::ForwardAuth => forward_auth,
            Caller::Models => models,
            Caller::Gateway => gateway,
        };
        match refused {
            None => allowed.inc(),
            Some(code) => codes.count(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_own_counter() {
        let codes = Codes::of_answers(&Registered::default());
        for (number, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.number(), number, "{code:?} stands elsewhere in `Code::ALL` than in `Code`");
            (0..=number).for_each(|_| codes.count(*code));
        }
        for (number, code) in Code::ALL.iter().enumerate() {
            assert_eq!(codes.of(*code), u64::try_from(number + 1).unwrap());
        }
    }
}
