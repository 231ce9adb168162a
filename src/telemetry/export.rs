//! Traces leave: gathered for a second, sent together, and let go of when nobody takes them.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Trace, Tracer, otlp};
use crate::app::App;

/// How long a trace may wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// Traces of one request to the collector.
const TOGETHER: usize = 256;
/// How often the log says that nobody takes them.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Sends traces until `done` is set, and then what is left of them; nothing while tracing is off.
pub async fn run(app: App, mut done: watch::Receiver<bool>) {
    let Some(tracer) = &app.tracer else { return };
    let taken = tracer.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut waiting) = taken else { return };
    let mut teller = Teller::default();
    loop {
        let mut batch = Vec::new();
        // An error means that nobody will say so any more, which is an end as well.
        let ended = tokio::select! {
            gathered = gather(&mut waiting, &mut batch) => !gathered,
            _ = done.wait_for(|done| *done) => true,
        };
        if ended {
            while let Ok(trace) = waiting.try_recv() {
                batch.push(trace);
            }
        }
        for part in batch.chunks(TOGETHER) {
            let outcome = tracer.target.post(otlp::traces(part, &tracer.instance)).await;
            teller.tell(tracer, part.len(), &outcome);
            if ended && outcome.is_err() {
                return;
            }
        }
        if ended {
            return;
        }
    }
}

/// Waits for traces, and a little for more; false when none will come any more.
async fn gather(waiting: &mut Receiver<Arc<Trace>>, batch: &mut Vec<Arc<Trace>>) -> bool {
    let Some(first) = waiting.recv().await else { return false };
    batch.push(first);
    let until = Instant::now() + GATHER;
    while batch.len() < TOGETHER {
        match tokio::time::timeout_at(until, waiting.recv()).await {
            Ok(Some(trace)) => batch.push(trace),
            Ok(None) => return false,
            Err(_) => break,
        }
    }
    true
}

/// Says now and then what becomes of them.
#[derive(Default)]
struct Teller {
    /// When it was last said that they are lost; none since they were taken.
    told: Option<Instant>,
    lost: usize,
}

impl Teller {
    fn tell(&mut self, tracer: &Tracer, traces: usize, outcome: &Result<(), String>) {
        let collector = &tracer.target.shown;
        let count = u64::try_from(traces).unwrap_or(u64::MAX);
        match outcome {
            Ok(()) => {
                tracer.sent.fetch_add(count, Ordering::Relaxed);
                if self.told.take().is_some() {
                    tracing::info!(collector, lost = self.lost, "traces are taken again");
                }
                self.lost = 0;
            }
            Err(why) => {
                tracer.lost.fetch_add(count, Ordering::Relaxed);
                self.lost += traces;
                if self.told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                    self.told = Some(Instant::now());
                    tracing::warn!(
                        collector,
                        lost = self.lost,
                        "traces can't be sent, and are let go of: {why}"
                    );
                }
            }
        }
    }
}
