//! The consequences of a failed attempt for the client and the upstream, and whether another upstream is
//! tried.

use http::{HeaderMap, StatusCode, header};
use hyper::body::Bytes;

use super::attempt::{Attempt, Response};
use super::failure::{Failure, Fault, Refusal, Verdict};
use crate::errors::{self, UpstreamError};
use crate::request::{InjectedField, Injection, refused_field};
use kernel::error::Code;

impl Attempt<'_> {
    /// Returns the response for a status other than 200.
    pub(super) fn refused(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &Bytes,
        inject: Injection,
    ) -> Result<Response, Failure> {
        self.call.stage.abandon();
        let error = UpstreamError::read(body, &self.transport.secrets());
        let rest = self.rest_of_context(&error);
        let how = format!("it answers {}", status.as_u16());
        let failure = self.failure(status.as_u16(), &how, error, retry_after_s(headers));
        // Servers differ in the status that they send for an unknown field.
        let may_be_field = !matches!(status.as_u16(), 401 | 403 | 408 | 429 | 502..);
        let field = refused_field(body).filter(|_| may_be_field);
        let is_added = |field: &InjectedField| self.target(inject, None).adds(*field, &self.call.request);
        match (rest, field.filter(is_added)) {
            (Some(limit), _) => Ok(Response::LimitTooLarge(limit, failure)),
            (None, Some(field)) => Ok(Response::FieldRefused(field, failure)),
            (None, None) => Err(failure),
        }
    }

    /// Returns a token limit that fits, if the upstream refused the sent limit because of the length of the
    /// prompt.
    fn rest_of_context(&self, error: &UpstreamError) -> Option<i64> {
        let context_length = self.call.model.context_length.filter(|_| self.call.is_limit_ours())?;
        rest_of_context(error.message.as_deref()?, context_length, self.call.max_tokens)
    }

    /// Translates an error at the beginning of a stream, or an error that is the whole answer, after status
    /// 200, as vLLM sends it. Without a status in the error, it is a failure of the upstream.
    pub(super) fn refused_with_200(&self, error: UpstreamError) -> Failure {
        let is_context_length = error.is_context_length();
        let status = error.status().unwrap_or(if is_context_length { 400 } else { 500 });
        let how = format!("its answer is an error, like a status of {status}");
        let failure = self.failure(status, &how, error, None);
        // The request may be the reason, and one client must not make an upstream unavailable to all.
        let verdict = if failure.verdict == Verdict::Fails { Verdict::Unknown } else { failure.verdict };
        failure.with(verdict)
    }

    /// Returns the failure for a status.
    fn failure(&self, status: u16, how: &str, error: UpstreamError, retry_after_s: Option<u64>) -> Failure {
        let message = error.message.clone();
        // The client uses another name for the model.
        let error = error.renamed(&self.route.model, &self.call.request.model);
        let (fault, failure) = Failure::of(status, error, retry_after_s);
        Failure {
            refusal: Some(Box::new(Refusal { status, how: how.to_owned(), message, fault })),
            ..failure
        }
    }

    /// Logs the upstream's refusal. The client is informed only about its own mistakes.
    pub(super) fn log(&self, failure: &Failure) {
        let Some(Refusal { status, how, message, fault }) = failure.refusal.as_deref() else { return };
        let (call_id, upstream, model) = (self.call.call_id, &self.route.upstream.id, &self.route.model);
        // The message may repeat a part of a prompt, so it isn't in the lines below.
        errors::log(call_id, upstream, message.as_deref());
        if *fault == Fault::Request {
            tracing::info!(%call_id, upstream, status, "an upstream refused a request: the client gets the \
                                                        reason");
            return;
        }
        self.warn(how);
        // Every call has the same problem, so it is logged only from time to time.
        let is_due = |what| self.transport.complaints().is_due(model, what, self.gateway.clock.steady_ms());
        let path = self.call.request.operation.path();
        match fault {
            Fault::Route if is_due(path) => tracing::error!(
                upstream,
                model,
                path,
                "the upstream doesn't have the model or path that the catalog routes to it: `tollkeeper upstream check` \
                 compares both"
            ),
            Fault::Account if is_due("account") => tracing::error!(
                upstream,
                model,
                status,
                "an upstream refuses the operator's credential, or its account has no credit left: look at the credential \
                 in the catalog and at the account with the provider. `tollkeeper upstream check --probe` \
                 tries again"
            ),
            _ => {}
        }
    }

    pub(super) fn time_out(&self) -> Failure {
        self.warn("it didn't answer in time");
        Failure::last(Code::UpstreamTimeout).with(Verdict::Fails)
    }

    /// Logs the reason why the upstream failed, which the client doesn't get.
    pub(super) fn fail(&self, why: &str) -> Failure {
        self.warn(why);
        Failure::last(Code::UpstreamFailed)
    }

    pub(super) fn warn(&self, why: &str) {
        tracing::warn!(call_id = %self.call.call_id, upstream = self.route.upstream.id, "an upstream failed: {why}");
    }
}

/// Returns the number of tokens left in a context, determined from a message that contains the number of
/// tokens of the prompt. A number is a candidate if it fits in the context, but not together with the limit.
/// If the server's context is smaller than the catalog's, that context is also a candidate. Of two
/// candidates, the larger is the context, unless the message also contains the catalog's context.
fn rest_of_context(message: &str, context_length: i64, limit: i64) -> Option<i64> {
    let numbers =
        message.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<i64>().ok());
    let is_candidate = |tokens: &i64| {
        *tokens < context_length && *tokens != limit && tokens.saturating_add(limit) > context_length
    };
    let is_named = numbers.clone().any(|tokens| tokens == context_length);
    // Other numbers, such as the number of tokens left, are smaller.
    let largest = numbers.clone().filter(is_candidate).max()?;
    let next = numbers.filter(is_candidate).filter(|tokens| *tokens < largest && !is_named).max();
    let rest = next.map_or(context_length - largest, |prompt| largest - prompt);
    Some(rest).filter(|rest| *rest < limit)
}

/// Returns the wait that an upstream requests, in seconds: at most a minute, because other upstreams may have
/// capacity by then.
fn retry_after_s(headers: &HeaderMap) -> Option<u64> {
    const MAX_S: u64 = 60;
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds: f64 = value.parse().ok().filter(|seconds| *seconds >= 0.0)?;
    // The conversion saturates.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is rounded, and not negative"
    )]
    let seconds = seconds.ceil() as u64;
    Some(seconds.min(MAX_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_of_a_context_is_what_the_prompt_leaves() {
        for (message, rest) in [
            (
                "maximum context length is 8192 tokens. However, you requested 10096 tokens (6000 in the messages, 4096 in the completion)",
                Some(2192),
            ),
            (
                "max_tokens is too large: 4096. The context is 8192 and your request has 6000 input tokens (4096 > 8192 - 6000)",
                Some(2192),
            ),
            // The server's context is smaller than the catalog's.
            (
                "maximum context length is 8000 tokens and your request has 6000 input tokens (4096 > 8000 - 6000)",
                Some(2000),
            ),
            (
                "This model's maximum context length is 8000 tokens. However, you requested 10096 tokens (6000 in the messages, 4096 in the completion)",
                Some(2000),
            ),
            // The message contains the catalog's context, so the larger of two other numbers is the prompt.
            (
                "the context is 8192 tokens: 6000 of input, of which 5000 are text, and 4096 of output",
                Some(2192),
            ),
            // A prompt that doesn't fit even without an answer leaves no tokens.
            ("You passed 9000 input tokens. However, the model's context length is only 8192 tokens", None),
            ("max_tokens is too large: 4096", None),
            ("", None),
        ] {
            assert_eq!(rest_of_context(message, 8192, 4096), rest, "{message}");
        }
    }

    #[test]
    fn waits_are_seconds_up_to_a_minute() {
        for (value, seconds) in [
            ("30", Some(30)),
            ("0.2", Some(1)),
            ("3600", Some(60)),
            ("1e300", Some(60)),
            ("-1", None),
            ("NaN", None),
            ("Sat, 28 Nov 2026 10:00:00 GMT", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(retry_after_s(&headers), seconds, "{value}");
        }
        assert_eq!(retry_after_s(&HeaderMap::new()), None);
    }
}
