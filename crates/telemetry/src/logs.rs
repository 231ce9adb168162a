//! Log lines for the collector: all events of `tracing`. The access log isn't exported, as requests have
//! traces.

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

/// The queue for the lines of this process; unset until a server that exports them has started.
static LINES: OnceLock<(mpsc::Sender<LogLine>, Arc<AtomicU64>)> = OnceLock::new();

/// Exports lines to this outlet from now on. Further calls have no effect.
pub(crate) fn export_to(outlet: &Outlet<LogLine>) {
    // In tests, several servers share the log of their process.
    drop(LINES.set((outlet.queue.clone(), Arc::clone(&outlet.lost))));
}

/// A log line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogLine {
    pub at: Time,
    pub level: Level,
    /// The module that has logged it.
    pub target: &'static str,
    pub message: String,
    pub attributes: Attributes,
    /// The current request.
    pub request_id: Option<RequestId>,
    /// The current trace, and the span of the request in it.
    pub trace: Option<(u128, u64)>,
}

/// The layer of `tracing` that queues lines for export. It never waits: if the queue is full, lines are
/// dropped and counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CollectorLayer;

impl<S: Subscriber> Layer<S> for CollectorLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some((queue, lost)) = LINES.get() else { return };
        // Lines about the export itself are not exported.
        if event.metadata().target().starts_with(concat!(env!("CARGO_CRATE_NAME"), "::")) {
            return;
        }
        if queue.try_send(line(event)).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn line(event: &Event<'_>) -> LogLine {
    let mut fields = EventFields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    LogLine {
        at: Clock::System.now(),
        level: *metadata.level(),
        target: metadata.target(),
        message: fields.message,
        attributes: fields.attributes,
        request_id: current::request_id(),
        trace: current::trace().map(|trace| (trace.id, trace.root)),
    }
}

/// Collects the fields of an event.
#[derive(Default)]
struct EventFields {
    message: String,
    attributes: Attributes,
}

impl EventFields {
    fn add(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => self.attributes.push((name, Attribute::Text(text))),
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.push((field.name(), Attribute::Number(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// A layer that sends the lines to a channel.
    struct TestLayer(std::sync::mpsc::Sender<LogLine>);

    impl<S: Subscriber> Layer<S> for TestLayer {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.send(line(event)).unwrap();
        }
    }

    #[test]
    fn line_keeps_message_and_fields() {
        let (sender, lines) = std::sync::mpsc::channel();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(TestLayer(sender)), || {
            tracing::warn!(waited_ms = 7_u64, who = "ada", why = ?Some(1), "no {}", "answer");
        });
        let line = lines.recv().unwrap();
        assert_eq!((line.level, &*line.message, line.request_id), (Level::WARN, "no answer", None));
        let text = |text: &str| Attribute::Text(text.to_owned());
        let expected = [("waited_ms", Attribute::Number(7)), ("who", text("ada")), ("why", text("Some(1)"))];
        assert_eq!(line.attributes, expected);
    }
}
