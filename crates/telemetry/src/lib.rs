//! The current request, and export of traces and log lines to an OpenTelemetry collector (off by default).
//!
//! The id of a request is available wherever its future is polled, so that every log line and e-mail can
//! contain it. Only sampled requests have a trace. While tracing is off, each function here only reads a
//! flag.

mod collector;
mod current;
mod current_id;
mod export;
mod settings;
mod trace;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry::{Context, InstrumentationScope, KeyValue, TraceId};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_http::HeaderInjector;
use opentelemetry_otlp::{
    LogExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{BatchLogProcessor, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Sampler, SamplingDecision, SdkTracer, SdkTracerProvider, ShouldSample,
};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

pub use current::InRequest;
pub use current_id::request_id;
pub use export::Load;
pub use settings::{Header, Settings};
pub use trace::{Ending, QueueSpan, Span, Trace};

use collector::Collector;
use export::{BATCH_DELAY, CAPACITY, Counted, MAX_BATCH, Outlet, Queue};
use kernel::ids::{OrganizationId, RequestId};
use kernel::random::Random;

/// Set by the first [`Tracer`] of the process, and never reset.
static ON: AtomicBool = AtomicBool::new(false);

/// Exports log lines. Not set until a server that exports log lines has started.
static LINES: OnceLock<OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>> = OnceLock::new();

/// Targets whose log lines aren't exported, because they may be about the export itself.
const NOT_EXPORTED: [&str; 4] = ["telemetry::", "opentelemetry", "hyper", "rustls"];

/// Samples requests, and exports traces and log lines.
pub struct Tracer {
    sampler: Sampler,
    tracer: SdkTracer,
    traces: (SdkTracerProvider, Arc<Outlet>),
    /// `None` if the configuration doesn't enable the export of log lines.
    logs: Option<(SdkLoggerProvider, Arc<Outlet>)>,
}

impl Tracer {
    /// Creates a tracer; `None` if no collector is configured.
    ///
    /// # Errors
    /// A sentence for the operator, if the certificates of the system can't be read.
    pub fn new(settings: &Settings, random: &Random) -> Result<Option<Self>, String> {
        let Some(endpoint) = settings.endpoint.as_ref().map(|endpoint| endpoint.as_str()) else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| format!("`telemetry.endpoint`: {endpoint}: {error}");
        let instance = format!("{:032x}", u128::from_be_bytes(random.bytes()));
        let resource = Resource::builder_empty()
            .with_service_name("tollkeeper")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance))
            .build();
        let collector =
            Collector::new(settings, endpoint.starts_with("https:")).map_err(|why| wrong(&why))?;
        let (provider, outlet) = export_traces(&format!("{endpoint}/v1/traces"), &collector, &resource)
            .map_err(|error| wrong(&error))?;
        let scope = InstrumentationScope::builder("tollkeeper").with_version(env!("CARGO_PKG_VERSION"));
        let logs = match settings.logs {
            true => Some(
                export_logs(&format!("{endpoint}/v1/logs"), &collector, &resource)
                    .map_err(|error| wrong(&error))?,
            ),
            false => None,
        };
        if let Some((provider, _)) = &logs {
            // In tests, several servers share the log of their process.
            LINES.get_or_init(|| OpenTelemetryTracingBridge::new(provider));
        }
        ON.store(true, Ordering::Relaxed);
        let ppm = u32::try_from(settings.sample_ratio.units()).unwrap_or_default();
        Ok(Some(Self {
            sampler: Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(f64::from(ppm) / 1e6))),
            tracer: provider.tracer_with_scope(scope.build()),
            traces: (provider, outlet),
            logs,
        }))
    }

    /// Begins the trace of a request, if the request is sampled. If the caller is `trusted` (on the service
    /// listener), the flag in `traceparent` determines whether it is sampled. Otherwise, the trace continues
    /// the caller's trace, but the flag is ignored.
    pub fn begin(&self, headers: &HeaderMap, trusted: bool, request_id: RequestId) -> Option<Arc<Trace>> {
        let parent = extract_context(headers);
        // A trace without a parent has the id of the request, so sampling depends on that id.
        let id = TraceId::from(request_id.as_u128());
        let decides = parent.as_ref().filter(|_| trusted);
        let sampled = self.sampler.should_sample(decides, id, "", &SpanKind::Server, &[], &[]);
        if sampled.decision != SamplingDecision::RecordAndSample {
            return None;
        }
        Some(Arc::new(Trace::begin(&self.tracer, &parent.unwrap_or_default(), request_id)))
    }

    /// Returns the load of the queues of spans and of log lines, with their names.
    pub fn load(&self) -> impl Iterator<Item = (&'static str, Load)> {
        let logs = self.logs.as_ref().map(|(_, outlet)| ("log_lines", outlet.load()));
        [("traces", self.traces.1.load())].into_iter().chain(logs)
    }

    /// Exports the items that are still queued, and ends the export.
    ///
    /// # Errors
    /// The export takes longer than `timeout`; the remaining items are lost.
    pub async fn shut_down(&self, timeout: Duration) -> Result<(), String> {
        let traces = self.traces.0.clone();
        let logs = self.logs.as_ref().map(|(provider, _)| provider.clone());
        let ends = [
            tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(timeout)),
            tokio::task::spawn_blocking(move || {
                logs.map_or(Ok(()), |logs| logs.shutdown_with_timeout(timeout))
            }),
        ];
        for end in ends {
            end.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The error of an exporter with unusable settings.
type BuildError = opentelemetry_otlp::ExporterBuildError;

fn export_traces(
    url: &str,
    collector: &Collector,
    resource: &Resource,
) -> Result<(SdkTracerProvider, Arc<Outlet>), BuildError> {
    let exporter = SpanExporter::builder().with_http().with_http_client(collector.clone());
    let exporter = exporter.with_endpoint(url).with_protocol(Protocol::HttpJson);
    let exporter = exporter.with_timeout(collector::TIMEOUT).with_retry_policy(RetryPolicy::disabled());
    let outlet = Outlet::new("traces", url, collector);
    let limits = opentelemetry_sdk::trace::BatchConfigBuilder::default()
        .with_max_queue_size(CAPACITY)
        .with_max_export_batch_size(MAX_BATCH)
        .with_scheduled_delay(BATCH_DELAY);
    let batches = BatchSpanProcessor::builder(Counted(exporter.build()?, Arc::clone(&outlet)));
    let batches = batches.with_batch_config(limits.build()).build();
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOn)
        .with_id_generator(trace::Ids::default())
        .with_resource(resource.clone())
        .with_span_processor(Queue(batches, Arc::clone(&outlet)))
        .build();
    Ok((provider, outlet))
}

fn export_logs(
    url: &str,
    collector: &Collector,
    resource: &Resource,
) -> Result<(SdkLoggerProvider, Arc<Outlet>), BuildError> {
    let exporter = LogExporter::builder().with_http().with_http_client(collector.clone());
    let exporter = exporter.with_endpoint(url).with_protocol(Protocol::HttpJson);
    let exporter = exporter.with_timeout(collector::TIMEOUT).with_retry_policy(RetryPolicy::disabled());
    let outlet = Outlet::new("log lines", url, collector);
    let limits = opentelemetry_sdk::logs::BatchConfigBuilder::default()
        .with_max_queue_size(CAPACITY)
        .with_max_export_batch_size(MAX_BATCH)
        .with_scheduled_delay(BATCH_DELAY);
    let batches = BatchLogProcessor::builder(Counted(exporter.build()?, Arc::clone(&outlet)));
    let batches = batches.with_batch_config(limits.build()).build();
    let provider = SdkLoggerProvider::builder()
        .with_resource(resource.clone())
        .with_log_processor(Queue(batches, Arc::clone(&outlet)))
        .build();
    Ok((provider, outlet))
}

/// Reads the header `traceparent` (W3C Trace Context); `None` if it is missing, invalid or repeated. The
/// related header `tracestate` is ignored, because a client may send anything in it.
fn extract_context(headers: &HeaderMap) -> Option<Context> {
    const NAME: &str = "traceparent";
    let mut values = headers.get_all(NAME).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let carrier = HashMap::from([(NAME.to_owned(), value.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    opentelemetry::trace::TraceContextExt::has_active_span(&context).then_some(context)
}

/// Adds the current request's `traceparent` to the headers of an outgoing request, if the current request is
/// traced.
pub fn inject_context(headers: &mut HeaderMap) {
    if let Some(trace) = current::trace() {
        TraceContextPropagator::new().inject_context(&trace.context(), &mut HeaderInjector(headers));
    }
}

/// The layer of `tracing` that exports log lines, except the access log, because traces already describe
/// requests. The layer never waits: if the queue is full, lines are dropped and counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectorLayer;

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for CollectorLayer {
    fn on_event(&self, event: &tracing::Event<'_>, context: tracing_subscriber::layer::Context<'_, S>) {
        let target = event.metadata().target();
        if let Some(lines) = LINES.get()
            && !NOT_EXPORTED.iter().any(|start| target.starts_with(start))
        {
            lines.on_event(event, context);
        }
    }
}

/// Begins a span of the current request, which ends when it is dropped; `None` unless the request is traced.
#[inline]
pub fn span(name: &'static str) -> Option<Box<Span>> {
    if ON.load(Ordering::Relaxed) {
        current::trace().and_then(|trace| Span::begin(trace, name, SpanKind::Internal))
    } else {
        None
    }
}

/// Begins a span of the current request for a request to another server; `None` unless the request is traced.
pub fn client_span(name: impl FnOnce() -> String) -> Option<Box<Span>> {
    if ON.load(Ordering::Relaxed) {
        current::trace().and_then(|trace| Span::begin(trace, name(), SpanKind::Client))
    } else {
        None
    }
}

/// Returns the trace of the current request, for a task that continues it; `None` unless it is traced.
pub fn current_trace() -> Option<Arc<Trace>> {
    if ON.load(Ordering::Relaxed) { current::trace() } else { None }
}

/// Begins a span of the current request for queued work, which another task does for many requests at once.
/// Returns `None` unless the request is traced.
#[inline]
pub fn queue_span() -> Option<Box<QueueSpan>> {
    if ON.load(Ordering::Relaxed) { current::trace().map(QueueSpan::begin) } else { None }
}

/// Adds the organization to the trace of the current request.
#[inline]
pub fn note_organization(id: OrganizationId) {
    if ON.load(Ordering::Relaxed)
        && let Some(trace) = current::trace()
    {
        trace.note_organization(id);
    }
}
