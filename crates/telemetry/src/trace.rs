//! What is known of one traced request: its parts and how long each took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use tokio::sync::mpsc;

use kernel::clock::Time;
use kernel::ids::{OrganizationId, RequestId};
use kernel::stopwatch::Stopwatch;

/// Parts of one request that are kept; a list of many rows may have more statements than anybody reads.
const MOST_PARTS: usize = 100;

/// Where a caller stands in its own trace (W3C Trace Context, level 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// Whether the caller keeps its trace.
    pub(crate) sampled: bool,
}

impl Parent {
    /// From the header `traceparent`; what isn't one is as good as none, and so are two of them.
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
        // Version 0 ends here; later ones may go on, and 255 is none.
        if version == 255 || (version == 0 && parts.next().is_some()) || trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self { trace_id, span_id: u64::try_from(span_id).ok()?, sampled: flags & 1 == 1 })
    }
}

/// Lower case only, as the standard wants it.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

/// The random half of a request's id, spread over all 64 bits (the finalizer of `SplitMix64`).
pub(crate) fn spread(request_id: RequestId) -> u64 {
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

/// What a part says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Attribute {
    Text(String),
    Word(&'static str),
    Number(u64),
}

/// Attributes by name.
pub(crate) type Attributes = Vec<(&'static str, Attribute)>;

/// A part that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub id: u64,
    pub parent: u64,
    pub name: &'static str,
    /// Nanoseconds from the request's start.
    pub from_ns: u64,
    pub to_ns: u64,
    pub attributes: Attributes,
}

/// How a request ended.
#[derive(Debug)]
pub struct Ending<'a> {
    /// GET, POST …
    pub method: &'a str,
    /// The route's path, `-` where there is none.
    pub route: &'static str,
    /// `public` or `service`.
    pub listener: &'static str,
    /// HTTP status.
    pub status: u16,
    /// The error's code; empty when there is none.
    pub code: &'static str,
    /// Who called; empty when unknown.
    pub who: &'a str,
}

/// The request itself, once it has ended.
#[derive(Debug)]
pub(crate) struct Root {
    pub name: String,
    pub to_ns: u64,
    pub is_error: bool,
    pub attributes: Attributes,
}

/// One traced request.
#[derive(Debug)]
pub struct Trace {
    pub(crate) id: u128,
    pub(crate) root: u64,
    /// The caller's part that this request belongs to.
    pub(crate) parent: Option<u64>,
    pub(crate) began_at: Time,
    request_id: RequestId,
    watch: Stopwatch,
    /// How many parts have begun.
    begun: AtomicU64,
    /// The part that is under way.
    current: AtomicU64,
    ended: Mutex<Ended>,
    queue: mpsc::Sender<Arc<Trace>>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub parts: Vec<Part>,
    pub left_out: u32,
    pub organization: Option<OrganizationId>,
    pub root: Option<Root>,
}

impl Trace {
    pub(crate) fn new(
        parent: Option<Parent>,
        request_id: RequestId,
        now: Time,
        queue: &mpsc::Sender<Arc<Self>>,
        lost: &Arc<AtomicU64>,
    ) -> Self {
        let root = numbered(request_id, 0);
        Self {
            // One that nobody else has begun is called as the request is.
            id: parent.map_or(request_id.as_u128(), |parent| parent.trace_id),
            root,
            parent: parent.map(|parent| parent.span_id),
            began_at: now,
            request_id,
            watch: Stopwatch::start(),
            begun: AtomicU64::new(0),
            current: AtomicU64::new(root),
            ended: Mutex::default(),
            queue: queue.clone(),
            lost: Arc::clone(lost),
        }
    }

    fn next_id(&self) -> u64 {
        numbered(self.request_id, self.begun.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn add(&self, part: Part) {
        let mut ended = self.ended();
        if ended.parts.len() < MOST_PARTS {
            ended.parts.push(part);
        } else {
            ended.left_out += 1;
        }
    }

    pub(crate) fn note_organization(&self, id: OrganizationId) {
        self.ended().organization = Some(id);
    }

    /// The request has ended: its trace is ready to leave. Nobody waits for that.
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
        let mut ended = self.ended();
        if let Some(id) = organization.or(ended.organization) {
            attributes.push(("tollkeeper.organization_id", Attribute::Text(id.to_string())));
        }
        ended.root = Some(Root {
            name: format!("{} {}", ending.method, ending.route),
            to_ns: self.watch.elapsed_ns(),
            is_error: ending.status >= 500,
            attributes,
        });
        drop(ended);
        if self.queue.try_send(Arc::clone(self)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What has ended so far.
    pub(crate) fn ended(&self) -> std::sync::MutexGuard<'_, Ended> {
        // Nothing in there is left half done.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a request's part: never 0, which would be none.
fn numbered(request_id: RequestId, number: u64) -> u64 {
    let step = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed(low(request_id.as_u128()).wrapping_add(step)).max(1)
}

/// A part that is under way.
#[derive(Debug)]
pub struct Open {
    trace: Arc<Trace>,
    id: u64,
    parent: u64,
    name: &'static str,
    from_ns: u64,
    attributes: Attributes,
}

impl Open {
    pub(crate) fn begin(trace: Arc<Trace>, name: &'static str) -> Box<Self> {
        let id = trace.next_id();
        let parent = trace.current.swap(id, Ordering::Relaxed);
        let from_ns = trace.watch.elapsed_ns();
        Box::new(Self { trace, id, parent, name, from_ns, attributes: Vec::new() })
    }

    /// Says more of it.
    pub fn say(&mut self, name: &'static str, text: &str) {
        self.attributes.push((name, Attribute::Text(text.to_owned())));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.trace.current.store(self.parent, Ordering::Relaxed);
        self.trace.add(Part {
            id: self.id,
            parent: self.parent,
            name: self.name,
            from_ns: self.from_ns,
            to_ns: self.trace.watch.elapsed_ns(),
            attributes: std::mem::take(&mut self.attributes),
        });
    }
}

/// A request that waits for the books: first in their queue, then for the transaction that it is part of.
#[derive(Debug)]
pub struct Waiting {
    trace: Arc<Trace>,
    parent: u64,
    from_ns: u64,
    /// How many pieces of work its transaction takes, once it has begun.
    pieces: Option<usize>,
}

impl Waiting {
    pub(crate) fn begin(trace: Arc<Trace>) -> Box<Self> {
        let (parent, from_ns) = (trace.current.load(Ordering::Relaxed), trace.watch.elapsed_ns());
        Box::new(Self { trace, parent, from_ns, pieces: None })
    }

    /// Its turn has come, with so many others.
    pub fn turn(&mut self, pieces: usize) {
        self.part("books.wait", Vec::new());
        self.pieces = Some(pieces);
    }

    fn part(&mut self, name: &'static str, attributes: Attributes) {
        let (id, to_ns) = (self.trace.next_id(), self.trace.watch.elapsed_ns());
        self.trace.add(Part { id, parent: self.parent, name, from_ns: self.from_ns, to_ns, attributes });
        self.from_ns = to_ns;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(pieces) = self.pieces {
            let pieces = u64::try_from(pieces).unwrap_or(u64::MAX);
            self.part("books.write", vec![("tollkeeper.books.pieces", Attribute::Number(pieces))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_s_place_is_read_as_the_standard_has_it() {
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
    fn numbers_are_spread_evenly() {
        // As request ids are made: random bits of the process, and a counter times an odd factor.
        let id = |count: u64| {
            let bits = u128::from(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ 0x1234_5678_9abc_def0;
            RequestId::from_parts(Time::from_unix_ms(1_700_000_000_000), bits)
        };
        let below = u64::MAX / 100;
        let chosen = (0..100_000).filter(|count| spread(id(*count)) < below).count();
        assert!((900..1_100).contains(&chosen), "{chosen} of 100,000 at 1 %");
        let parts: std::collections::HashSet<_> = (0..1_000).map(|number| numbered(id(7), number)).collect();
        assert_eq!(parts.len(), 1_000);
    }
}
