//! Export of traces and log lines: collected for a second and sent in batches, which are dropped if the
//! collector doesn't accept them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::outlet::Outlet;
use crate::{Tracer, otlp};

/// How long items are collected for a batch.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of items in a request to the collector.
const MAX_BATCH: usize = 256;
/// Minimum time between log lines about failed exports.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Exports until `done` is set, and then what is still queued. Returns at once without a tracer.
pub async fn run(tracer: Option<Arc<Tracer>>, done: watch::Receiver<bool>) {
    let Some(tracer) = tracer else { return };
    let traces = send(&tracer.traces, |traces| otlp::traces(traces, &tracer.instance), done.clone());
    let logs = async {
        if let Some(lines) = &tracer.logs {
            send(lines, |lines| otlp::log_lines(lines, &tracer.instance), done).await;
        }
    };
    tokio::join!(traces, logs);
}

async fn send<T>(outlet: &Outlet<T>, body: impl Fn(&[T]) -> Vec<u8>, mut done: watch::Receiver<bool>) {
    let Some(mut queue) = outlet.take_receiver() else { return };
    let mut outcomes = OutcomeLog::default();
    loop {
        let mut batch = Vec::new();
        // An error means that the sender of `done` was dropped, which is an end too.
        let ended = tokio::select! {
            open = fill(&mut batch, &mut queue) => !open,
            _ = done.wait_for(|done| *done) => true,
        };
        if ended {
            while let Ok(item) = queue.try_recv() {
                batch.push(item);
            }
        }
        for part in batch.chunks(MAX_BATCH) {
            let outcome = outlet.target.post(body(part)).await;
            outcomes.record(outlet, part.len(), &outcome);
            if ended && outcome.is_err() {
                return;
            }
        }
        if ended {
            return;
        }
    }
}

/// Waits for an item, and then collects more for [`BATCH_DELAY`]; `false` if the queue is closed.
async fn fill<T>(batch: &mut Vec<T>, queue: &mut Receiver<T>) -> bool {
    let Some(first) = queue.recv().await else { return false };
    batch.push(first);
    let until = Instant::now() + BATCH_DELAY;
    while batch.len() < MAX_BATCH {
        match tokio::time::timeout_at(until, queue.recv()).await {
            Ok(Some(item)) => batch.push(item),
            Ok(None) => return false,
            Err(_) => break,
        }
    }
    true
}

/// Counts and logs the outcomes of exports.
#[derive(Default)]
struct OutcomeLog {
    /// The time of the last log line about a failure; `None` after a success.
    failure_logged_at: Option<Instant>,
    lost: usize,
}

impl OutcomeLog {
    fn record<T>(&mut self, outlet: &Outlet<T>, sent: usize, outcome: &Result<(), String>) {
        let (collector, what) = (&outlet.target.shown, outlet.what);
        let count = u64::try_from(sent).unwrap_or(u64::MAX);
        match outcome {
            Ok(()) => {
                outlet.sent.fetch_add(count, Ordering::Relaxed);
                if self.failure_logged_at.take().is_some() {
                    tracing::info!(collector, lost = self.lost, "exporting {what} works again");
                }
                self.lost = 0;
            }
            Err(why) => {
                outlet.lost.fetch_add(count, Ordering::Relaxed);
                self.lost += sent;
                if self.failure_logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    self.failure_logged_at = Some(Instant::now());
                    tracing::warn!(
                        collector,
                        lost = self.lost,
                        "{what} can't be exported and are dropped: {why}"
                    );
                }
            }
        }
    }
}
