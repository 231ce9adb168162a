//! Traces and log lines in OTLP 1, as JSON (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding"): ids
//! are hexadecimal, 64-bit numbers are strings.

use std::sync::Arc;

use serde_json::{Value, json};
use tracing::Level;

use crate::logs::LogLine;
use crate::trace::{Attribute, Attributes, SpanRecord, Trace};

const SPAN_KIND_INTERNAL: u8 = 1;
const SPAN_KIND_SERVER: u8 = 2;
const STATUS_CODE_ERROR: u8 = 2;

/// The body of an export of traces.
pub fn traces(traces: &[Arc<Trace>], instance: &str) -> Vec<u8> {
    let spans: Vec<_> = traces.iter().flat_map(|trace| spans(trace)).collect();
    let body = json!({"resourceSpans": [{
        "resource": resource(instance),
        "scopeSpans": [{"scope": scope(), "spans": spans}],
    }]});
    body.to_string().into_bytes()
}

/// The body of an export of log lines.
pub fn log_lines(lines: &[LogLine], instance: &str) -> Vec<u8> {
    let records: Vec<_> = lines.iter().map(record).collect();
    let body = json!({"resourceLogs": [{
        "resource": resource(instance),
        "scopeLogs": [{"scope": scope(), "logRecords": records}],
    }]});
    body.to_string().into_bytes()
}

fn resource(instance: &str) -> Value {
    let words = vec![
        ("service.name", Attribute::Word("tollkeeper")),
        ("service.version", Attribute::Word(env!("CARGO_PKG_VERSION"))),
        ("service.instance.id", Attribute::Text(instance.to_owned())),
    ];
    json!({ "attributes": attributes(&words) })
}

fn scope() -> Value {
    json!({"name": "tollkeeper", "version": env!("CARGO_PKG_VERSION")})
}

fn record(line: &LogLine) -> Value {
    // OpenTelemetry log data model, "Severity Fields".
    let severity = match line.level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    };
    let at = u64::try_from(line.at.unix_ms()).unwrap_or_default().saturating_mul(1_000_000).to_string();
    let mut more = vec![("code.namespace", Attribute::Word(line.target))];
    more.extend(line.request_id.map(|id| ("tollkeeper.request_id", Attribute::Text(id.text()))));
    more.extend(line.attributes.iter().cloned());
    let mut record = json!({
        "timeUnixNano": at,
        "observedTimeUnixNano": at,
        "severityNumber": severity,
        "severityText": line.level.as_str(),
        "body": {"stringValue": line.message},
        "attributes": attributes(&more),
    });
    if let (Some((trace, span)), Some(fields)) = (line.trace, record.as_object_mut()) {
        fields.insert("traceId".to_owned(), format!("{trace:032x}").into());
        fields.insert("spanId".to_owned(), id(span).into());
    }
    record
}

fn spans(trace: &Trace) -> Vec<Value> {
    let records = trace.records();
    let Some(root) = &records.root else { return Vec::new() };
    let began_ns = u64::try_from(trace.began_at.unix_ms()).unwrap_or_default().saturating_mul(1_000_000);
    let at = |ns: u64| began_ns.saturating_add(ns).to_string();
    let trace_id = format!("{:032x}", trace.id);
    let mut root_span = json!({
        "traceId": trace_id,
        "spanId": id(trace.root),
        "name": root.name,
        "kind": SPAN_KIND_SERVER,
        "startTimeUnixNano": at(0),
        "endTimeUnixNano": at(root.to_ns),
        "attributes": attributes(&root.attributes),
    });
    if let Some(fields) = root_span.as_object_mut() {
        if let Some(parent) = trace.parent {
            fields.insert("parentSpanId".to_owned(), id(parent).into());
        }
        if root.is_error {
            fields.insert("status".to_owned(), json!({ "code": STATUS_CODE_ERROR }));
        }
        if records.left_out > 0 {
            let left_out = [("tollkeeper.spans_left_out", Attribute::Number(records.left_out.into()))];
            if let Some(list) = fields.get_mut("attributes").and_then(Value::as_array_mut) {
                list.extend(left_out.iter().map(attribute));
            }
        }
    }
    let child = |span: &SpanRecord| {
        json!({
            "traceId": trace_id,
            "spanId": id(span.id),
            "parentSpanId": id(span.parent),
            "name": span.name,
            "kind": SPAN_KIND_INTERNAL,
            "startTimeUnixNano": at(span.from_ns),
            "endTimeUnixNano": at(span.to_ns),
            "attributes": attributes(&span.attributes),
        })
    };
    [root_span].into_iter().chain(records.spans.iter().map(child)).collect()
}

fn id(id: u64) -> String {
    format!("{id:016x}")
}

fn attributes(attributes: &Attributes) -> Vec<Value> {
    attributes.iter().map(attribute).collect()
}

fn attribute((name, value): &(&'static str, Attribute)) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Word(word) => json!({ "stringValue": word }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({"key": name, "value": value})
}
