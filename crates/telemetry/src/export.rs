//! Traces and log lines leave: gathered for a second, sent together, and let go of when nobody takes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Tracer;
use crate::otlp;
use crate::outlet::Outlet;

/// How long one may wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// The most in one request to the collector.
const TOGETHER: usize = 256;
/// How often the log says that nobody takes them.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Sends until `done` is set, and then what is left; nothing while there is no collector.
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
    let Some(mut waiting) = outlet.take() else { return };
    let mut teller = Teller::default();
    loop {
        let mut batch = Vec::new();
        // An error means that nobody will say so any more, which is an end as well.
        let ended = tokio::select! {
            gathered = gather(&mut waiting, &mut batch) => !gathered,
            _ = done.wait_for(|done| *done) => true,
        };
        if ended {
            while let Ok(item) = waiting.try_recv() {
                batch.push(item);
            }
        }
        for part in batch.chunks(TOGETHER) {
            let outcome = outlet.target.post(body(part)).await;
            teller.tell(outlet, part.len(), &outcome);
            if ended && outcome.is_err() {
                return;
            }
        }
        if ended {
            return;
        }
    }
}

/// Waits for one, and a little for more; false when none will come any more.
async fn gather<T>(waiting: &mut Receiver<T>, batch: &mut Vec<T>) -> bool {
    let Some(first) = waiting.recv().await else { return false };
    batch.push(first);
    let until = Instant::now() + GATHER;
    while batch.len() < TOGETHER {
        match tokio::time::timeout_at(until, waiting.recv()).await {
            Ok(Some(item)) => batch.push(item),
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
    fn tell<T>(&mut self, outlet: &Outlet<T>, sent: usize, outcome: &Result<(), String>) {
        let (collector, what) = (&outlet.target.shown, outlet.what);
        let count = u64::try_from(sent).unwrap_or(u64::MAX);
        match outcome {
            Ok(()) => {
                outlet.sent.fetch_add(count, Ordering::Relaxed);
                if self.told.take().is_some() {
                    tracing::info!(collector, lost = self.lost, "{what} are taken again");
                }
                self.lost = 0;
            }
            Err(why) => {
                outlet.lost.fetch_add(count, Ordering::Relaxed);
                self.lost += sent;
                if self.told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                    self.told = Some(Instant::now());
                    tracing::warn!(
                        collector,
                        lost = self.lost,
                        "{what} can't be sent, and are let go of: {why}"
                    );
                }
            }
        }
    }
}
