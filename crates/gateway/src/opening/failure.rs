//! Failed attempts, classified by the status of an upstream's refusal.

use crate::errors::UpstreamError;
use kernel::error::{Code, Error};

/// A failed attempt.
pub(super) struct Failure {
    pub(super) error: Error,
    /// `true` if another upstream may be tried.
    pub(super) may_move_on: bool,
    pub(super) verdict: Verdict,
    /// The refusal of the upstream. It is logged only if the attempt fails because of it, since the upstream
    /// may be tried again.
    pub(super) refusal: Option<Box<Refusal>>,
}

/// A refusal that an upstream sent instead of an answer.
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) how: String,
    pub(super) message: Option<String>,
    pub(super) fault: Fault,
}

/// The party that caused a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The client, which gets the message.
    Request,
    /// The upstream.
    Upstream,
    /// The operator, whose catalog routes to a model or path that the upstream doesn't have.
    Route,
    /// The operator, because of the credential or the account's balance.
    Account,
}

/// The state of an upstream, derived from a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The upstream works, and the request is wrong.
    Works,
    /// The upstream can't be reached, is overloaded, or takes too long.
    Fails,
    /// The state is unknown: the request may have caused the failure, or the upstream wasn't called.
    Unknown,
}

impl Failure {
    pub(super) fn last(error: impl Into<Error>) -> Self {
        Self { error: error.into(), may_move_on: false, verdict: Verdict::Unknown, refusal: None }
    }
    pub(super) fn moving_on(code: Code) -> Self {
        Self { error: code.into(), may_move_on: true, verdict: Verdict::Unknown, refusal: None }
    }
    pub(super) fn with(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    /// Returns the failure for a status, and the party that caused it.
    pub(super) fn of(status: u16, error: UpstreamError, retry_after_s: Option<u64>) -> (Fault, Self) {
        let overloaded = |verdict| {
            let error = Error { retry_after_s, ..Code::ModelOverloaded.into() };
            (Fault::Upstream, Self { error, ..Self::moving_on(Code::ModelOverloaded).with(verdict) })
        };
        match status {
            _ if status == 402 || error.is_of_account() => {
                (Fault::Account, Self::moving_on(Code::UpstreamFailed))
            }
            400 | 422 => {
                (Fault::Request, Self::last(error.of_client(Code::InvalidRequest)).with(Verdict::Works))
            }
            413 => (Fault::Request, Self::last(error.of_client(Code::PayloadTooLarge)).with(Verdict::Works)),
            // The upstream doesn't have the path or the model.
            404 | 405 | 410 | 501 => {
                (Fault::Route, Self::moving_on(Code::ModelNotServed).with(Verdict::Works))
            }
            408 | 504 | 522 | 524 => {
                (Fault::Upstream, Self::moving_on(Code::UpstreamTimeout).with(Verdict::Fails))
            }
            429 => overloaded(Verdict::Works),
            503 | 529 => overloaded(Verdict::Fails),
            502 | 520 | 521 | 523 | 525..=527 | 530 => {
                (Fault::Upstream, Self::moving_on(Code::UpstreamFailed).with(Verdict::Fails))
            }
            _ => (Fault::Upstream, Self::last(Code::UpstreamFailed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    /// Every call gets such a refusal. The client isn't at fault, and another upstream may have a working
    /// account.
    #[test]
    fn refusals_of_an_account_are_not_the_mistake_of_a_client() {
        let read =
            |body: &'static str| UpstreamError::read::<&str>(&Bytes::from_static(body.as_bytes()), &[]);
        let key = r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}"#;
        let quota = r#"{"error":{"message":"Stop.","code":"insufficient_quota"}}"#;
        for (status, body) in [(400, key), (400, quota), (422, quota), (429, quota), (402, "{}")] {
            let (fault, failure) = Failure::of(status, read(body), None);
            assert_eq!(
                (fault, failure.error.code),
                (Fault::Account, Code::UpstreamFailed),
                "{status} {body}"
            );
            assert!(failure.may_move_on && failure.verdict == Verdict::Unknown, "{status} {body}");
        }
        let (fault, failure) = Failure::of(400, read(r#"{"error":{"message":"no"}}"#), None);
        assert_eq!((fault, failure.error.code), (Fault::Request, Code::InvalidRequest));
        assert!(!failure.may_move_on && failure.verdict == Verdict::Works);
        let (fault, failure) = Failure::of(429, read("{}"), Some(7));
        assert_eq!((fault, failure.error.code), (Fault::Upstream, Code::ModelOverloaded));
        assert_eq!(failure.error.retry_after_s, Some(7));
    }
}
