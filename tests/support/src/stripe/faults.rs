//! Faults between a client and Stripe.

use std::time::Duration;

use super::api::Request;
use crate::chance::Chance;

/// A fault of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection ends before the request is executed.
    LostRequest,
    /// The request is executed, and the connection ends without an answer.
    LostAnswer,
    /// The request is executed, and the connection ends in the middle of the answer.
    HalfAnswer,
    /// The request is executed, and never answered: the client has to give up.
    Silence,
    /// The request isn't executed: 500.
    ErrorBefore,
    /// The request is executed, but answered by 500, and so is every repetition with its key, as Stripe documents it.
    ErrorAfter,
    /// Too many requests: it isn't executed.
    TooMany,
    /// The account itself can't take payments: it isn't executed.
    AccountInvalid,
    /// The request is executed after a while; until then its key is in use.
    Delay(Duration),
    /// The request comes twice; the second answer is sent.
    Twice,
    /// The request is executed, and its answer is held back until the test releases it.
    Held,
}

/// The faults that come at random. Those that make the client wait aren't among them.
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

/// The faults to come.
#[derive(Default)]
pub struct Faults {
    /// Each is for the next request with this method, whose path begins so.
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
