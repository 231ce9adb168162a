//! Adds the id of the current request to log lines.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A format that adds the field `request_id` if a request is being handled and the event doesn't have the
/// field yet.
pub(super) struct WithRequestId<F> {
    inner: F,
    is_json: bool,
}

impl<F> WithRequestId<F> {
    /// Wraps a format of text lines.
    pub fn text(inner: F) -> Self {
        Self { inner, is_json: false }
    }

    /// Wraps a format of JSON objects.
    pub fn json(inner: F) -> Self {
        Self { inner, is_json: true }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithRequestId<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let has_own_id = || event.metadata().fields().field("request_id").is_some();
        let Some(id) = telemetry::request_id().filter(|_| !has_own_id()) else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::with_capacity(256);
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        match line.strip_suffix('}').filter(|_| self.is_json) {
            Some(fields) => writeln!(writer, "{fields},\"request_id\":\"{id}\"}}"),
            None => writeln!(writer, "{line} request_id={id}"),
        }
    }
}
