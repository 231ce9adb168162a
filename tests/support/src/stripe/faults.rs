//! Faults between a client and Stripe.

use std::time::Duration;

use super::api::Request;
use crate::chance::Chance;

/// A fault of a request or its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection is closed before the request is executed.
    LostRequest,
    /// The request is executed, and the connection is closed without an answer.
    LostAnswer,
    /// The request is executed, and the connection is closed in the middle of the answer.
    HalfAnswer,
    /// The request is executed but never answered. The client has to give up.
    Silence,
    /// The request is answered with 500 and not executed.
    ErrorBefore,
    /// The request is executed but answered with 500. As Stripe documents it, every repetition with the same
    /// key gets the same answer.
    ErrorAfter,
    /// The request is answered with 429 and not executed.
    TooMany,
    /// The request is answered with an error about the account, which can't take payments, and not executed.
    AccountInvalid,
    /// The request is executed after a delay. Until then its key is in use.
    Delay(Duration),
    /// The request arrives twice. The second answer is sent.
    Twice,
    /// The request is executed, and its answer is held back until the test releases it.
    Held,
}

/// The faults that are injected at random. Faults that make the client wait aren't included.
const AT_RANDOM: [Fault; 8] = [
    Fault::LostRequest,
    Fault::LostAnswer,
    Fault::HalfAnswer,
    Fault::ErrorBefore,
    Fault::ErrorAfter,
    Fault::TooMany,
    Fault::Delay(Duration::from_millis(5)),
    Fault::Twice,
];

/// The faults that will be injected.
#[derive(Default)]
pub struct Faults {
    /// Each fault is for the next request with this method and with a path that starts with this prefix.
    planned: Vec<(&'static str, String, Fault)>,
    random: Option<(Chance, usize)>,
}

impl Faults {
    pub fn plan(&mut self, method: &'static str, path: &str, fault: Fault) {
        self.planned.push((method, path.to_owned(), fault));
    }

    pub fn at_random(&mut self, seed: u64, percent: usize) {
        self.random = Some((Chance::new(seed), percent));
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the fault of a request, if any.
    pub fn next(&mut self, request: &Request) -> Option<Fault> {
        let is_planned = |(method, path, _): &(&str, String, Fault)| {
            *method == request.method && request.path.starts_with(path.as_str())
        };
        if let Some(at) = self.planned.iter().position(is_planned) {
            return Some(self.planned.remove(at).2);
        }
        let (chance, percent) = self.random.as_mut()?;
        (chance.below(100) < *percent).then(|| chance.one_of(&AT_RANDOM))
    }
}
