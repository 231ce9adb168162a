//! The trace of a request: its spans.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Context, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, Span as SdkSpan};

use crate::current_id::{request_id, with_request_id};
use kernel::ids::{OrganizationId, RequestId};

/// Maximum number of spans in a trace, not counting the request's own. Further spans are only counted.
const MAX_SPANS: u32 = 100;

/// Ids of traces and spans: a trace that begins here has the id of its request.
#[derive(Debug, Default)]
pub(crate) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        request_id().map_or_else(|| self.0.new_trace_id(), |id| TraceId::from(id.as_u128()))
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// The result of a request.
#[derive(Debug)]
pub struct Ending<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// The path of the route; `-` if no route matches.
    pub route: &'static str,
    /// `public` or `service`.
    pub listener: &'static str,
    /// HTTP status.
    pub status: u16,
    /// The error code; empty without an error.
    pub code: &'static str,
    /// The caller; empty if unknown.
    pub who: &'a str,
}

/// The trace of a request.
#[derive(Debug)]
pub struct Trace {
    tracer: SdkTracer,
    request_id: RequestId,
    root: SpanContext,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The span of the request itself; `None` once it has ended.
    span: Option<SdkSpan>,
    current: SpanContext,
    /// Number of other spans begun so far, including those beyond the limit.
    begun: u32,
    organization: Option<OrganizationId>,
}

impl Trace {
    pub(crate) fn begin(tracer: &SdkTracer, parent: &Context, request_id: RequestId) -> Self {
        let builder = tracer.span_builder("request").with_kind(SpanKind::Server);
        let span = with_request_id(request_id, || tracer.build_with_context(builder, parent));
        let root = span.span_context().clone();
        let state = State { current: root.clone(), span: Some(span), begun: 0, organization: None };
        Self { tracer: tracer.clone(), request_id, root, state: Mutex::new(state) }
    }

    /// Returns the span of the request itself.
    pub(crate) fn root(&self) -> &SpanContext {
        &self.root
    }

    /// Returns the current span, as the parent of other spans.
    pub(crate) fn context(&self) -> Context {
        Context::new().with_remote_span_context(self.state().current.clone())
    }

    /// Begins a span; `None` if the request already has the maximum number of spans.
    fn begin_span(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        parent: &Context,
    ) -> Option<SdkSpan> {
        let mut state = self.state();
        state.begun += 1;
        let begin = || self.tracer.build_with_context(self.tracer.span_builder(name).with_kind(kind), parent);
        (state.begun <= MAX_SPANS).then(begin)
    }

    pub(crate) fn note_organization(&self, id: OrganizationId) {
        self.state().organization = Some(id);
    }

    /// Ends the request, and queues its span for export without waiting.
    pub fn end(&self, ending: &Ending<'_>, organization: Option<OrganizationId>) {
        let mut state = self.state();
        let Some(mut span) = state.span.take() else { return };
        let (organization, begun) = (organization.or(state.organization), state.begun);
        drop(state);
        span.update_name(format!("{} {}", ending.method, ending.route));
        span.set_attributes([
            KeyValue::new("http.request.method", ending.method.to_owned()),
            KeyValue::new("http.route", ending.route),
            KeyValue::new("http.response.status_code", i64::from(ending.status)),
            KeyValue::new("tollkeeper.listener", ending.listener),
            KeyValue::new("tollkeeper.request_id", self.request_id.to_string()),
        ]);
        if !ending.code.is_empty() {
            span.set_attribute(KeyValue::new("error.type", ending.code));
        }
        if !ending.who.is_empty() {
            span.set_attribute(KeyValue::new("tollkeeper.actor", ending.who.to_owned()));
        }
        if let Some(id) = organization {
            span.set_attribute(KeyValue::new("tollkeeper.organization_id", id.to_string()));
        }
        if begun > MAX_SPANS {
            span.set_attribute(KeyValue::new("tollkeeper.spans_left_out", i64::from(begun - MAX_SPANS)));
        }
        if ending.status >= 500 {
            span.set_status(Status::error(""));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a request. The span ends when it is dropped.
#[derive(Debug)]
pub struct Span {
    trace: Arc<Trace>,
    span: SdkSpan,
    parent: SpanContext,
}

impl Span {
    pub(crate) fn begin(
        trace: Arc<Trace>,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
    ) -> Option<Box<Self>> {
        let span = trace.begin_span(name, kind, &trace.context())?;
        let own = span.span_context().clone();
        let parent = std::mem::replace(&mut trace.state().current, own);
        Some(Box::new(Self { trace, span, parent }))
    }

    /// Adds an attribute.
    pub fn set_attribute(&mut self, name: &'static str, text: &str) {
        self.span.set_attribute(KeyValue::new(name, text.to_owned()));
    }

    /// Adds an attribute that is a number.
    pub fn set_number(&mut self, name: &'static str, number: i64) {
        self.span.set_attribute(KeyValue::new(name, number));
    }

    /// Marks the span as failed, for this reason.
    pub fn set_error(&mut self, reason: &'static str) {
        self.span.set_attribute(KeyValue::new("error.type", reason));
        self.span.set_status(Status::error(""));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.trace.state().current = self.parent.clone();
    }
}

/// Two spans of a request whose work another task books: the wait in the queue, and then the shared
/// transaction, which ends when this is dropped.
#[derive(Debug)]
pub struct QueueSpan {
    trace: Arc<Trace>,
    parent: Context,
    span: Option<SdkSpan>,
}

impl QueueSpan {
    pub(crate) fn begin(trace: Arc<Trace>) -> Box<Self> {
        let parent = trace.context();
        let span = trace.begin_span("books.wait", SpanKind::Internal, &parent);
        Box::new(Self { trace, parent, span })
    }

    /// Ends the wait and begins the transaction, which books this number of pieces of work.
    pub fn begin_write(&mut self, pieces: usize) {
        self.span = None;
        self.span = self.trace.begin_span("books.write", SpanKind::Internal, &self.parent);
        if let Some(span) = &mut self.span {
            let pieces = i64::try_from(pieces).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("tollkeeper.books.pieces", pieces));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::HeaderMap;
    use kernel::clock::Time;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use crate::{InRequest, extract_context, inject_context};

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn extract(values: &[&str]) -> Option<(String, bool)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("traceparent", value.parse().unwrap());
        }
        let context = extract_context(&headers)?;
        let span = context.span().span_context().clone();
        assert!(span.is_remote());
        Some((format!("{} {}", span.trace_id(), span.span_id()), span.is_sampled()))
    }

    #[test]
    fn traceparent_is_read() {
        let parent = "4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7".to_owned();
        assert_eq!(extract(&[GOOD]), Some((parent.clone(), true)));
        assert_eq!(extract(&[&GOOD.replace("-01", "-02")]), Some((parent.clone(), false)));
        assert_eq!(extract(&[&format!("{}-more", GOOD.replacen("00", "01", 1))]), Some((parent, true)));
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &format!("{GOOD}-more"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace("4bf9", "4bg9"),
        ] {
            assert_eq!(extract(&[bad]), None, "{bad}");
        }
        assert_eq!(extract(&[]), None);
        assert_eq!(extract(&[GOOD, GOOD]), None, "two of them");
    }

    #[test]
    fn trace_has_the_id_of_its_request_and_continues_in_others() {
        let provider = SdkTracerProvider::builder().with_id_generator(Ids::default()).build();
        let id = RequestId::from_parts(Time::from_unix_ms(1_700_000_000_000), 7);
        let trace = Arc::new(Trace::begin(&provider.tracer("test"), &Context::new(), id));
        let root = trace.root().clone();
        assert_eq!(root.trace_id(), TraceId::from(id.as_u128()));
        let sent = || {
            let mut headers = HeaderMap::new();
            inject_context(&mut headers);
            headers.remove("traceparent").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(sent(), None, "no request is current");
        let held = Arc::clone(&trace);
        let work = async move {
            let outside = sent();
            let span = Span::begin(Arc::clone(&held), "part", SpanKind::Internal).unwrap();
            let part = span.span.span_context().span_id();
            let inside = sent();
            drop(span);
            (outside, inside, part, sent())
        };
        let work = InRequest::new(Some(id), Some(Arc::clone(&trace)), Box::pin(work));
        let (outside, inside, part, after) = work.now_or_never().unwrap();
        let expected = |span| Some(format!("00-{}-{span}-01", root.trace_id()));
        assert_eq!((&outside, &after), (&expected(root.span_id()), &outside));
        assert_eq!(inside, expected(part));
    }

    #[test]
    fn spans_past_the_limit_are_left_out() {
        let provider = SdkTracerProvider::builder().build();
        let id = RequestId::from_parts(Time::from_unix_ms(0), 7);
        let trace = Arc::new(Trace::begin(&provider.tracer("test"), &Context::new(), id));
        for number in 1..=MAX_SPANS + 5 {
            let span = Span::begin(Arc::clone(&trace), "part", SpanKind::Internal);
            assert_eq!(span.is_some(), number <= MAX_SPANS, "{number}");
        }
        let state = trace.state();
        assert_eq!((state.begun, &state.current), (MAX_SPANS + 5, trace.root()));
    }
}
