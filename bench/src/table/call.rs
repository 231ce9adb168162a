//! Calls in which every request is different, and their load.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::client::{Load, Sample, yield_core};
use crate::process;
use crate::wire::Wire;

/// A placeholder for a unique number.
pub const NUMBER: &str = "{number}";
/// A placeholder for a text from the call's pool.
pub const TEXT: &str = "{text}";
/// The number of digits of a number.
const DIGITS: usize = 12;

/// Texts, such as ids and tokens, each of which works for one request.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<VecDeque<String>>>);

impl Pool {
    /// Replaces the texts.
    pub fn fill(&self, texts: impl IntoIterator<Item = String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = texts.into_iter().collect();
    }

    /// Takes all remaining texts.
    pub fn empty(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a pool with half of the texts.
    pub fn half(&self) -> Self {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let half = texts.len() / 2;
        Self(Arc::new(Mutex::new(texts.split_off(half))))
    }

    fn put(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(text);
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).front().cloned()
    }
}

/// A repeated request.
pub struct Call {
    address: SocketAddr,
    head: String,
    body: Option<String>,
    texts: Option<Pool>,
    keep: Option<(&'static str, Pool)>,
    expected: &'static str,
    connections: Option<u16>,
}

impl Call {
    /// Creates a call without a body and credentials.
    pub fn to(address: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n");
        Self { address, head, body: None, texts: None, keep: None, expected: "", connections: None }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Adds a bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Adds a body.
    pub fn body(self, body: &Value) -> Self {
        let body = Some(body.to_string());
        Self { body, ..self.header("content-type", "application/json") }
    }

    /// Uses each text once. The load ends after the last text.
    pub fn each(self, texts: &Pool) -> Self {
        Self { texts: Some(texts.clone()), ..self }
    }

    /// Adds the text after `before` in each answer, up to a quotation mark, to a pool.
    pub fn keep(self, before: &'static str, pool: &Pool) -> Self {
        Self { keep: Some((before, pool.clone())), ..self }
    }

    /// Sets a text that a correct answer contains, in addition to its status.
    pub fn expect(self, expected: &'static str) -> Self {
        Self { expected, ..self }
    }

    /// Uses this many connections instead of the default.
    pub fn over(self, connections: u16) -> Self {
        Self { connections: Some(connections), ..self }
    }

    fn template(&self) -> Result<Template, String> {
        let mut whole = self.head.clone();
        if let Some(body) = &self.body {
            let text = self.texts.as_ref().and_then(Pool::first).unwrap_or_default();
            let one = body.replace(NUMBER, &"0".repeat(DIGITS)).replace(TEXT, &text);
            whole.push_str(&format!("content-length: {}\r\n", one.len()));
        }
        whole.push_str("\r\n");
        whole.push_str(self.body.as_deref().unwrap_or_default());
        Ok(Template(split(&whole)))
    }
}

/// A request, split at its placeholders.
struct Template(Vec<Part>);

enum Part {
    Bytes(Vec<u8>),
    Number,
    Text,
}

fn split(mut text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    loop {
        let next = [(NUMBER, Part::Number), (TEXT, Part::Text)]
            .into_iter()
            .filter_map(|(mark, part)| Some((text.split_once(mark)?, part)))
            .min_by_key(|((before, _), _)| before.len());
        let Some(((before, after), part)) = next else {
            parts.push(Part::Bytes(text.as_bytes().to_vec()));
            return parts;
        };
        parts.extend([Part::Bytes(before.as_bytes().to_vec()), part]);
        text = after;
    }
}

impl Template {
    fn write(&self, text: &str, into: &mut Vec<u8>) {
        into.clear();
        for part in &self.0 {
            match part {
                Part::Bytes(bytes) => into.extend_from_slice(bytes),
                Part::Number => into.extend_from_slice(number().as_bytes()),
                Part::Text => into.extend_from_slice(text.as_bytes()),
            }
        }
    }
}

/// Returns a number that is unique, including across runs on the same database.
fn number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if NEXT.load(Ordering::Relaxed) == 0 {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        NEXT.store(seconds % 1_000_000 * 1_000_000, Ordering::Relaxed);
    }
    format!("{:0DIGITS$}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Loads the server with this call. The first fifth doesn't count, except for a call that uses up texts.
/// `server` is the process that answers.
pub async fn load(call: &Call, server: u32, load: Load) -> Result<Sample, String> {
    let template = Arc::new(call.template()?);
    let mut lines = Vec::new();
    for _ in 0..call.connections.unwrap_or(load.connections) {
        lines.push(Line {
            wire: Wire::open(call.address).await?,
            template: Arc::clone(&template),
            texts: call.texts.clone(),
            keep: call.keep.clone(),
            expected: call.expected,
        });
    }
    let begin = Instant::now();
    let from = if call.texts.is_some() { begin } else { begin + load.length / 5 };
    let until = begin + load.length;
    let done = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            while load.never_sleep && !done.load(Ordering::Relaxed) {
                yield_core().await;
            }
        }
    });
    let mut tasks = JoinSet::new();
    let before_all = process::spent(server);
    for line in lines {
        tasks.spawn(line.run(from, until));
    }
    let before = if from == begin {
        before_all
    } else {
        tokio::time::sleep_until(from.into()).await;
        process::spent(server)
    };
    let (mut latencies_us, mut last, mut failed) = (Vec::new(), from, None);
    while let Some(outcome) = tasks.join_next().await {
        match outcome.map_err(|error| error.to_string())? {
            Ok((times, end)) => {
                latencies_us.extend(times);
                last = last.max(end);
            }
            Err(error) => failed = Some(error),
        }
    }
    let after = process::spent(server);
    done.store(true, Ordering::Relaxed);
    busy.await.map_err(|error| error.to_string())?;
    if let Some(error) = failed {
        return Err(error);
    }
    latencies_us.sort_unstable();
    Ok(sample(latencies_us, last - from, before.zip(after).map(|(before, after)| after.since(&before))))
}

fn sample(latencies_us: Vec<u32>, took: Duration, spent_s: Option<f64>) -> Sample {
    let count = u32::try_from(latencies_us.len()).map_or(f64::INFINITY, f64::from);
    let took_s = took.as_secs_f64().max(1e-6);
    Sample {
        requests_per_s: count / took_s,
        latencies_us,
        server_us: spent_s.filter(|_| count > 0.0).map(|seconds| seconds * 1e6 / count),
        server_busy: spent_s.map(|seconds| seconds / took_s),
    }
}

/// A connection with one request in progress.
struct Line {
    wire: Wire,
    template: Arc<Template>,
    texts: Option<Pool>,
    keep: Option<(&'static str, Pool)>,
    expected: &'static str,
}

impl Line {
    /// Returns the latencies after `from`, in microseconds, and the time of the last answer.
    async fn run(mut self, from: Instant, until: Instant) -> Result<(Vec<u32>, Instant), String> {
        let (mut times, mut request, mut first) = (Vec::new(), Vec::new(), true);
        let mut received = Instant::now();
        while received < until {
            let text = match &self.texts {
                None => String::new(),
                Some(texts) => match texts.take() {
                    Some(text) => text,
                    None => break,
                },
            };
            self.template.write(&text, &mut request);
            let sent = Instant::now();
            let answer = self.wire.ask(&request).await?;
            received = Instant::now();
            if answer.status != 200 || (first && !answer.text().contains(self.expected)) {
                let head = String::from_utf8_lossy(&request);
                let line = head.lines().next().unwrap_or_default();
                return Err(format!("{line}: {} {:.300}", answer.status, answer.text()));
            }
            first = false;
            if let Some((before, pool)) = &self.keep
                && let Some((_, rest)) = answer.text().split_once(before)
                && let Some((kept, _)) = rest.split_once('"')
            {
                pool.put(kept.to_owned());
            }
            if received >= from {
                times.push(u32::try_from((received - sent).as_micros()).unwrap_or(u32::MAX));
            }
        }
        Ok((times, received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_differ_in_their_placeholders() {
        let pool = Pool::default();
        pool.fill(["abc".to_owned(), "def".to_owned()]);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let body = serde_json::json!({"name": "n{number}", "text": "{text}"});
        let call = Call::to(address, "POST", "/{text}").body(&body).each(&pool);
        let template = call.template().expect("a template");
        let mut bytes = Vec::new();
        template.write(&pool.take().expect("a text"), &mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("POST /abc HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{text}");
        assert!(body.ends_with("\"text\":\"abc\"}"), "{body}");
        assert_ne!(number(), number());
    }
}
