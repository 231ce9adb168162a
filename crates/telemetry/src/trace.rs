//! The trace of a request: its spans.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use tokio::sync::mpsc;

use kernel::clock::Time;
use kernel::ids::{OrganizationId, RequestId};
use kernel::stopwatch::Stopwatch;

/// Maximum number of spans in a trace; the others are counted.
const MAX_SPANS: usize = 100;

/// The caller's span (W3C Trace Context, level 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// The caller records its trace.
    pub(crate) sampled: bool,
}

impl Parent {
    /// Reads the header `traceparent`; `None` if it is missing, invalid or repeated.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all("traceparent").iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { Self::parse(value.to_str().ok()?) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) = (
            hex(parts.next()?, 2)?,
            hex(parts.next()?, 32)?,
            hex(parts.next()?, 16)?,
            hex(parts.next()?, 2)?,
        );
        // Version 0 ends here, later versions may go on, and 255 is invalid.
        if version == 255 || (version == 0 && parts.next().is_some()) || trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self { trace_id, span_id: u64::try_from(span_id).ok()?, sampled: flags & 1 == 1 })
    }
}

/// Reads lower case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

/// Hashes the random half of a request's id to 64 bits (by the finalizer of `SplitMix64`).
pub(crate) fn hash(request_id: RequestId) -> u64 {
    mixed(low(request_id.as_u128()))
}

fn low(bits: u128) -> u64 {
    u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default()
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Text(String),
    Word(&'static str),
    Number(u64),
}

/// Attributes by name.
pub(crate) type Attributes = Vec<(&'static str, Attribute)>;

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct SpanRecord {
    pub id: u64,
    pub parent: u64,
    pub name: &'static str,
    /// Nanoseconds since the start of the request, like `to_ns`.
    pub from_ns: u64,
    pub to_ns: u64,
    pub attributes: Attributes,
}

/// How a request ended.
#[derive(Debug)]
pub struct Ending<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// The path of the route; `-` if there is none.
    pub route: &'static str,
    /// `public` or `service`.
    pub listener: &'static str,
    /// HTTP status.
    pub status: u16,
    /// The code of the error; empty if there is none.
    pub code: &'static str,
    /// The caller; empty if unknown.
    pub who: &'a str,
}

/// The span of the request itself, once it has ended.
#[derive(Debug)]
pub(crate) struct RootRecord {
    pub name: String,
    pub to_ns: u64,
    pub is_error: bool,
    pub attributes: Attributes,
}

/// The trace of a request.
#[derive(Debug)]
pub struct Trace {
    pub(crate) id: u128,
    pub(crate) root: u64,
    /// The caller's span.
    pub(crate) parent: Option<u64>,
    pub(crate) began_at: Time,
    request_id: RequestId,
    watch: Stopwatch,
    /// Number of spans begun so far.
    begun: AtomicU64,
    /// The id of the current span.
    current: AtomicU64,
    records: Mutex<Records>,
    queue: mpsc::Sender<Arc<Trace>>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    pub spans: Vec<SpanRecord>,
    pub left_out: u32,
    pub organization: Option<OrganizationId>,
    pub root: Option<RootRecord>,
}

impl Trace {
    pub(crate) fn new(
        parent: Option<Parent>,
        request_id: RequestId,
        now: Time,
        queue: &mpsc::Sender<Arc<Self>>,
        lost: &Arc<AtomicU64>,
    ) -> Self {
        let root = span_id(request_id, 0);
        Self {
            // A trace that begins here has the id of the request.
            id: parent.map_or(request_id.as_u128(), |parent| parent.trace_id),
            root,
            parent: parent.map(|parent| parent.span_id),
            began_at: now,
            request_id,
            watch: Stopwatch::start(),
            begun: AtomicU64::new(0),
            current: AtomicU64::new(root),
            records: Mutex::default(),
            queue: queue.clone(),
            lost: Arc::clone(lost),
        }
    }

    fn next_id(&self) -> u64 {
        span_id(self.request_id, self.begun.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn add(&self, span: SpanRecord) {
        let mut records = self.records();
        if records.spans.len() < MAX_SPANS {
            records.spans.push(span);
        } else {
            records.left_out += 1;
        }
    }

    pub(crate) fn note_organization(&self, id: OrganizationId) {
        self.records().organization = Some(id);
    }

    /// Ends the request, and queues its trace for export without waiting.
    pub fn end(self: &Arc<Self>, ending: &Ending<'_>, organization: Option<OrganizationId>) {
        let mut attributes = vec![
            ("http.request.method", Attribute::Text(ending.method.to_owned())),
            ("http.route", Attribute::Word(ending.route)),
            ("http.response.status_code", Attribute::Number(ending.status.into())),
            ("tollkeeper.listener", Attribute::Word(ending.listener)),
            ("tollkeeper.request_id", Attribute::Text(self.request_id.to_string())),
        ];
        if !ending.code.is_empty() {
            attributes.push(("error.type", Attribute::Word(ending.code)));
        }
        if !ending.who.is_empty() {
            attributes.push(("tollkeeper.actor", Attribute::Text(ending.who.to_owned())));
        }
        let mut records = self.records();
        if let Some(id) = organization.or(records.organization) {
            attributes.push(("tollkeeper.organization_id", Attribute::Text(id.to_string())));
        }
        records.root = Some(RootRecord {
            name: format!("{} {}", ending.method, ending.route),
            to_ns: self.watch.elapsed_ns(),
            is_error: ending.status >= 500,
            attributes,
        });
        drop(records);
        if self.queue.try_send(Arc::clone(self)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The spans that have ended so far.
    pub(crate) fn records(&self) -> std::sync::MutexGuard<'_, Records> {
        // A panic leaves nothing half changed.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of a span by its number: never 0, which is invalid.
fn span_id(request_id: RequestId, number: u64) -> u64 {
    let step = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed(low(request_id.as_u128()).wrapping_add(step)).max(1)
}

/// A part of a request, which ends when this is dropped.
#[derive(Debug)]
pub struct Span {
    trace: Arc<Trace>,
    id: u64,
    parent: u64,
    name: &'static str,
    from_ns: u64,
    attributes: Attributes,
}

impl Span {
    pub(crate) fn begin(trace: Arc<Trace>, name: &'static str) -> Box<Self> {
        let id = trace.next_id();
        let parent = trace.current.swap(id, Ordering::Relaxed);
        let from_ns = trace.watch.elapsed_ns();
        Box::new(Self { trace, id, parent, name, from_ns, attributes: Vec::new() })
    }

    /// Adds an attribute.
    pub fn set_attribute(&mut self, name: &'static str, text: &str) {
        self.attributes.push((name, Attribute::Text(text.to_owned())));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.trace.current.store(self.parent, Ordering::Relaxed);
        self.trace.add(SpanRecord {
            id: self.id,
            parent: self.parent,
            name: self.name,
            from_ns: self.from_ns,
            to_ns: self.trace.watch.elapsed_ns(),
            attributes: std::mem::take(&mut self.attributes),
        });
    }
}

/// Two spans of a request whose work is booked by another task: the wait in the queue, then the shared
/// transaction.
#[derive(Debug)]
pub struct QueueSpan {
    trace: Arc<Trace>,
    parent: u64,
    from_ns: u64,
    /// Pieces of work in the transaction, once it has begun.
    pieces: Option<usize>,
}

impl QueueSpan {
    pub(crate) fn begin(trace: Arc<Trace>) -> Box<Self> {
        let (parent, from_ns) = (trace.current.load(Ordering::Relaxed), trace.watch.elapsed_ns());
        Box::new(Self { trace, parent, from_ns, pieces: None })
    }

    /// Ends the wait and begins the transaction, with this number of pieces of work.
    pub fn begin_write(&mut self, pieces: usize) {
        self.end_span("books.wait", Vec::new());
        self.pieces = Some(pieces);
    }

    fn end_span(&mut self, name: &'static str, attributes: Attributes) {
        let (id, to_ns) = (self.trace.next_id(), self.trace.watch.elapsed_ns());
        self.trace.add(SpanRecord {
            id,
            parent: self.parent,
            name,
            from_ns: self.from_ns,
            to_ns,
            attributes,
        });
        self.from_ns = to_ns;
    }
}

impl Drop for QueueSpan {
    fn drop(&mut self) {
        if let Some(pieces) = self.pieces {
            let pieces = u64::try_from(pieces).unwrap_or(u64::MAX);
            self.end_span("books.write", vec![("tollkeeper.books.pieces", Attribute::Number(pieces))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_read_strictly() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span_id: 0x00f0_67aa_0ba9_02b7,
            sampled: true,
        };
        assert_eq!(Parent::parse(good), Some(parent));
        assert_eq!(Parent::parse(&good.replace("-01", "-02")), Some(Parent { sampled: false, ..parent }));
        assert_eq!(Parent::parse(&format!("{}-more", good.replacen("00", "01", 1))), Some(parent));
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &format!("{good}-more"),
            &good.replacen("00", "ff", 1),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace("4bf9", "4bg9"),
            &good.replace("4bf9", "+bf9"),
            &good.replace("-01", "-1"),
        ] {
            assert_eq!(Parent::parse(bad), None, "{bad}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(Parent::of(&headers), None);
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(Parent::of(&headers), Some(parent));
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(Parent::of(&headers), None, "two of them");
    }

    #[test]
    fn request_ids_hash_evenly() {
        // Like request ids: random bits of the process, xored with a counter times an odd factor.
        let id = |count: u64| {
            let bits = u128::from(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ 0x1234_5678_9abc_def0;
            RequestId::from_parts(Time::from_unix_ms(1_700_000_000_000), bits)
        };
        let threshold = u64::MAX / 100;
        let sampled = (0..100_000).filter(|count| hash(id(*count)) < threshold).count();
        assert!((900..1_100).contains(&sampled), "{sampled} of 100,000 at 1 %");
        let parts: std::collections::HashSet<_> = (0..1_000).map(|number| span_id(id(7), number)).collect();
        assert_eq!(parts.len(), 1_000);
    }
}
