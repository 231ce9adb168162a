//! Lines of the log for the collector: what is logged through `tracing`. The access log isn't: of requests it has the traces.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::current;
use crate::outlet::Outlet;
use crate::trace::{Attribute, Attributes};
use kernel::clock::{Clock, Time};
use kernel::ids::RequestId;

/// Where lines go; nowhere before a server starts that is to tell them. The process has one log.
static LINES: OnceLock<(mpsc::Sender<LogLine>, Arc<AtomicU64>)> = OnceLock::new();

/// From now on, lines go to this outlet; only the first call of this counts.
pub(crate) fn tell(outlet: &Outlet<LogLine>) {
    // Servers of one process (in tests) share its log.
    drop(LINES.set((outlet.queue.clone(), Arc::clone(&outlet.lost))));
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogLine {
    pub at: Time,
    pub level: Level,
    /// Which part of the program says it.
    pub target: &'static str,
    pub message: String,
    pub attributes: Attributes,
    /// The request that it is about.
    pub request_id: Option<RequestId>,
    /// The trace that it belongs to, and the request's span in it.
    pub trace: Option<(u128, u64)>,
}

/// The layer that hands lines over. It never waits: past a full queue they are let go of and counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForCollector;

impl<S: Subscriber> Layer<S> for ForCollector {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some((queue, lost)) = LINES.get() else { return };
        // What is said of the sending isn't sent.
        if event.metadata().target().starts_with("tollkeeper::telemetry") {
            return;
        }
        if queue.try_send(line(event)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn line(event: &Event<'_>) -> LogLine {
    let mut said = Said::default();
    event.record(&mut said);
    let metadata = event.metadata();
    LogLine {
        at: Clock::System.now(),
        level: *metadata.level(),
        target: metadata.target(),
        message: said.message,
        attributes: said.attributes,
        request_id: current::request_id(),
        trace: current::trace().map(|trace| (trace.id, trace.root)),
    }
}

/// What an event says, as it is visited.
#[derive(Default)]
struct Said {
    message: String,
    attributes: Attributes,
}

impl Said {
    fn say(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => self.attributes.push((name, Attribute::Text(text))),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.say(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.say(field, value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.push((field.name(), Attribute::Number(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps what the layer would send.
    struct Kept(std::sync::mpsc::Sender<LogLine>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.send(line(event)).unwrap();
        }
    }

    #[test]
    fn a_line_keeps_what_was_said() {
        let (kept, lines) = std::sync::mpsc::channel();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Kept(kept)), || {
            tracing::warn!(waited_ms = 7_u64, who = "ada", why = ?Some(1), "no {}", "answer");
        });
        let line = lines.recv().unwrap();
        assert_eq!((line.level, &*line.message, line.request_id), (Level::WARN, "no answer", None));
        let text = |text: &str| Attribute::Text(text.to_owned());
        let expected = [("waited_ms", Attribute::Number(7)), ("who", text("ada")), ("why", text("Some(1)"))];
        assert_eq!(line.attributes, expected);
    }
}
