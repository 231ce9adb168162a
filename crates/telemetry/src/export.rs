//! Export of spans and log lines: bounded queues in front of the SDK's own, and counts of sent and lost
//! items.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::logs::LogRecord;
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{BatchLogProcessor, LogBatch, LogExporter, LogProcessor, SdkLogRecord};
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use tokio::time::Instant;

use crate::collector::Collector;
use crate::{current, current_id};

/// Maximum number of queued items.
pub(crate) const CAPACITY: usize = 8_192;
/// Maximum number of items in a request to the collector.
pub(crate) const MAX_BATCH: usize = 512;
/// The time for which items are collected for a batch.
pub(crate) const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Minimum time between log lines about failed exports.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The state of an export queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Queued items.
    pub waiting: usize,
    /// Maximum number of queued items.
    pub max: usize,
    /// Items that the collector has accepted.
    pub sent: u64,
    /// Items that were dropped.
    pub lost: u64,
}

/// The export of one kind of items, with its counts and failures.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// The plural name of the items, for the log.
    what: &'static str,
    /// The URL, for the log.
    shown: String,
    collector: Collector,
    waiting: AtomicUsize,
    sent: AtomicU64,
    lost: AtomicU64,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    /// The time of the last log line about a failure; `None` after a success.
    logged_at: Option<Instant>,
    lost: usize,
}

impl Outlet {
    pub fn new(what: &'static str, shown: &str, collector: &Collector) -> Arc<Self> {
        Arc::new(Self {
            what,
            shown: shown.to_owned(),
            collector: collector.clone(),
            waiting: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failures: Mutex::default(),
        })
    }

    pub fn load(&self) -> Load {
        Load {
            waiting: self.waiting.load(Ordering::Relaxed),
            max: CAPACITY,
            sent: self.sent.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Adds an item to the count of queued items. Returns `false` if the queue is full, in which case the
    /// item is lost.
    fn admit(&self) -> bool {
        let is_admitted = self.waiting.fetch_add(1, Ordering::Relaxed) < CAPACITY;
        if !is_admitted {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        is_admitted
    }

    /// Exports a batch from the queue, and counts and logs the outcome.
    async fn export(&self, items: usize, export: impl Future<Output = OTelSdkResult>) -> OTelSdkResult {
        self.waiting.fetch_sub(items, Ordering::Relaxed);
        let outcome = export.await;
        let (collector, what) = (&self.shown, self.what);
        let counter = if outcome.is_ok() { &self.sent } else { &self.lost };
        counter.fetch_add(u64::try_from(items).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.is_ok() {
            if failures.logged_at.is_some() {
                tracing::info!(collector, lost = failures.lost, "exporting {what} works again");
            }
            *failures = Failures::default();
        } else {
            failures.lost += items;
            if failures.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                failures.logged_at = Some(Instant::now());
                let (lost, why) = (failures.lost, self.collector.failure());
                tracing::warn!(collector, lost, "{what} can't be exported and are dropped: {why}");
            }
        }
        outcome
    }
}

/// An exporter that counts its batches.
#[derive(Debug)]
pub(crate) struct Counted<E>(pub E, pub Arc<Outlet>);

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.1.export(batch.len(), self.0.export(batch)).await
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Counted<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.1.export(batch.iter().count(), self.0.export(batch)).await
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// A queue that counts its items.
#[derive(Debug)]
pub(crate) struct Queue<P>(pub P, pub Arc<Outlet>);

impl SpanProcessor for Queue<BatchSpanProcessor> {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.1.admit() {
            self.0.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

impl LogProcessor for Queue<BatchLogProcessor> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if !self.1.admit() {
            return;
        }
        if let Some(now) = record.observed_timestamp() {
            record.set_timestamp(now);
        }
        // The bridge uses the position in our code as the event's name, but log lines aren't named events.
        record.set_event_name("");
        if let Some(id) = current_id::request_id() {
            record.add_attribute("tollkeeper.request_id", id.to_string());
        }
        if let Some(trace) = current::trace() {
            let root = trace.root();
            record.set_trace_context(root.trace_id(), root.span_id(), Some(root.trace_flags()));
        }
        self.0.emit(record, scope);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
