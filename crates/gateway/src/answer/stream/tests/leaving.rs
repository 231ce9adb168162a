//! Leaving a stream is never cheaper than what the upstream has done until then, and never dearer: for every operation,
//! every kind of upstream, and every byte after which a client may leave.

use super::*;
use crate::count::Bounds;
use catalog::OnDisconnect;
use kernel::random::Random;

const KINDS: [UpstreamKind; 6] = [Vllm, Sglang, Llamacpp, Tgi, Openai, UpstreamKind::Demo];
const BOUNDS: Bounds = Bounds::new(1_000_000, 1_000_000);

/// A stream of an upstream, with the tokens that it has really used after each of its events.
struct Story {
    operation: Operation,
    kind: UpstreamKind,
    request: ModelRequest,
    prompt: i64,
    events: Vec<(String, i64)>,
}

/// Draws numbers, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> i64 {
        // Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((self.0 >> 33) % end).unwrap()
    }
}

impl Story {
    fn new(operation: Operation, kind: UpstreamKind, seed: u64) -> Self {
        let mut draw = Draw(seed);
        let contents = match operation {
            Operation::ChatCompletions | Operation::Messages => {
                r#""messages":[{"role":"user","content":"Tell me a story"}]"#
            }
            Operation::Completions => r#""prompt":"Tell me a story""#,
            Operation::Responses | Operation::Embeddings => r#""input":"Tell me a story""#,
        };
        let body = format!(r#"{{"model":"tk-chat","stream":true,{contents}}}"#);
        let request = ModelRequest::read(operation, &Bytes::from(body)).unwrap();
        let mut story = Self { operation, kind, request, prompt: 10 + draw.below(3_000), events: Vec::new() };
        story.tell(&mut draw);
        story
    }

    /// Writes the events, in the form of the operation and the kind. Some events have tokens that no text shows, as
    /// reasoning that a provider keeps for itself.
    fn tell(&mut self, draw: &mut Draw) {
        let mut used = 0;
        self.begin();
        for _ in 0..=draw.below(6) {
            let words = 1 + draw.below(3);
            used += words + if draw.below(2) == 0 { 0 } else { draw.below(12) };
            self.text(&"word".repeat(usize::try_from(words).unwrap()), used);
        }
        used += draw.below(300);
        self.end(used);
    }

    fn push(&mut self, data: &str, used: i64) {
        let name = match self.operation {
            Operation::Responses | Operation::Messages => {
                let value: serde_json::Value = serde_json::from_str(data).unwrap();
                format!("event: {}\n", value["type"].as_str().unwrap())
            }
            _ => String::new(),
        };
        self.events.push((format!("{name}data: {data}\n\n"), used));
    }

    /// What the kind says of its counts with each event.
    fn running(&self, used: i64) -> String {
        let prompt = self.prompt;
        match self.kind {
            Vllm | Sglang | UpstreamKind::Demo if self.operation.has_chunks() => {
                format!(r#","usage":{{"prompt_tokens":{prompt},"completion_tokens":{used}}}"#)
            }
            Llamacpp if self.operation != Operation::Messages => {
                let (new, cached) = (prompt - 3, 3);
                format!(r#","timings":{{"prompt_n":{new},"cache_n":{cached},"predicted_n":{used}}}"#)
            }
            _ => String::new(),
        }
    }

    fn begin(&mut self) {
        let prompt = self.prompt;
        match self.operation {
            Operation::ChatCompletions => {
                let running = self.running(0);
                self.push(
                    &format!(r#"{{"choices":[{{"index":0,"delta":{{"role":"assistant","content":""}}}}]{running}}}"#),
                    0,
                );
            }
            Operation::Responses => self.push(r#"{"type":"response.created","response":{"model":"m"}}"#, 0),
            Operation::Messages => {
                let usage = format!(r#"{{"input_tokens":{prompt},"output_tokens":1}}"#);
                self.push(
                    &format!(r#"{{"type":"message_start","message":{{"model":"m","usage":{usage}}}}}"#),
                    0,
                );
            }
            Operation::Completions | Operation::Embeddings => {}
        }
    }

    fn text(&mut self, text: &str, used: i64) {
        let running = self.running(used);
        let data = match self.operation {
            Operation::ChatCompletions => {
                format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]{running}}}"#)
            }
            Operation::Completions | Operation::Embeddings => {
                format!(r#"{{"choices":[{{"index":0,"text":"{text}"}}]{running}}}"#)
            }
            Operation::Responses => {
                format!(r#"{{"type":"response.output_text.delta","delta":"{text}"{running}}}"#)
            }
            Operation::Messages => {
                format!(r#"{{"type":"content_block_delta","delta":{{"type":"text_delta","text":"{text}"}}}}"#)
            }
        };
        self.push(&data, used);
    }

    fn end(&mut self, used: i64) {
        let prompt = self.prompt;
        match self.operation {
            Operation::ChatCompletions | Operation::Completions | Operation::Embeddings => {
                let running = self.running(used);
                self.push(
                    &format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]{running}}}"#),
                    used,
                );
                let usage = format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{used}}}"#);
                self.push(&format!(r#"{{"choices":[],"usage":{usage}}}"#), used);
                self.events.push(("data: [DONE]\n\n".to_owned(), used));
            }
            Operation::Responses => {
                let usage = format!(r#"{{"input_tokens":{prompt},"output_tokens":{used}}}"#);
                self.push(
                    &format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#),
                    used,
                );
            }
            Operation::Messages => {
                let usage = format!(r#"{{"output_tokens":{used}}}"#);
                let delta = r#"{"stop_reason":"end_turn"}"#;
                self.push(&format!(r#"{{"type":"message_delta","delta":{delta},"usage":{usage}}}"#), used);
                self.push(r#"{"type":"message_stop"}"#, used);
            }
        }
    }

    /// Lets a client leave after this many bytes. Returns what is charged, and what the upstream has used by the event
    /// after which the connection to it was closed.
    fn leave_after(&self, bytes: usize, on_disconnect: OnDisconnect) -> (Settled, i64) {
        let mut cleaner = StreamCleaner::new(&self.request, &upstream(self.kind), Vec::new());
        let whole: String = self.events.iter().map(|(event, _)| event.as_str()).collect();
        let mut framer = Framer::new();
        framer.push(Bytes::copy_from_slice(&whole.as_bytes()[..bytes]));
        let mut read = 0;
        while let Some(frame) = framer.next_event().unwrap() {
            cleaner.clean(&frame);
            read += 1;
        }
        cleaner.mark_left();
        framer.push(Bytes::copy_from_slice(&whole.as_bytes()[bytes..]));
        // As the gateway does: a first event is awaited.
        while read < self.events.len()
            && on_disconnect == OnDisconnect::Count
            && (read == 0 || !cleaner.is_counted())
        {
            let frame = framer.next_event().unwrap().unwrap();
            cleaner.clean(&frame);
            read += 1;
        }
        let used = read.checked_sub(1).map_or(0, |last| self.events[last].1);
        (cleaner.counter().settle(BOUNDS), used)
    }

    fn length(&self) -> usize {
        self.events.iter().map(|(event, _)| event.len()).sum()
    }
}

fn stories() -> impl Iterator<Item = Story> {
    let seed = u64::from_le_bytes(Random::system().bytes()) >> 8;
    println!("seed {seed}");
    let operations = Operation::ALL.into_iter().filter(|operation| *operation != Operation::Embeddings);
    let pairs = operations.flat_map(|operation| KINDS.map(|kind| (operation, kind)));
    let served = pairs.filter(|(operation, kind)| operation.is_served_by(*kind));
    served.flat_map(move |(operation, kind)| (0..3).map(move |more| Story::new(operation, kind, seed + more)))
}

/// The price of a call whose answer's tokens cost ten times what the prompt's do.
fn price(prompt: i64, completion: i64) -> i64 {
    prompt + 10 * completion
}

#[test]
fn no_byte_is_a_cheap_one_to_leave_after() {
    for story in stories() {
        let (at_the_end, used) = story.leave_after(story.length(), OnDisconnect::Count);
        assert_eq!((at_the_end.prompt_tokens, at_the_end.completion_tokens), (story.prompt, used));
        for bytes in 0..=story.length() {
            let (charged, used) = story.leave_after(bytes, OnDisconnect::Count);
            let (charged, used) =
                (price(charged.prompt_tokens, charged.completion_tokens), price(story.prompt, used));
            let shown =
                format!("{:?} {:?} after {bytes} bytes: {charged} of {used}", story.operation, story.kind);
            assert!(charged <= used, "{shown}");
            assert!(10 * charged >= 9 * used, "{shown}");
            if story.running(0).is_empty() {
                // It was read to its end.
                let whole = price(at_the_end.prompt_tokens, at_the_end.completion_tokens);
                assert_eq!(charged, whole, "{shown}");
            }
        }
    }
}

#[test]
fn stream_that_is_cancelled_at_once_costs_its_prompt_at_least_and_never_more_than_was_used() {
    for story in stories() {
        for bytes in 0..=story.length() {
            let (charged, used) = story.leave_after(bytes, OnDisconnect::Cancel);
            let shown =
                format!("{:?} {:?} after {bytes} bytes: {charged:?} of {used}", story.operation, story.kind);
            // "Tell me a story" has 15 bytes.
            assert!((3..=story.prompt).contains(&charged.prompt_tokens), "{shown}");
            assert!(charged.completion_tokens <= used, "{shown}");
        }
    }
}
