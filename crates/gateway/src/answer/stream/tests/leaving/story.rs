//! Streams as upstreams send them, with their true usage, for the tests of the gateway and a fuzz target.

use super::{
    Bounds, Bytes, Dialect, Framer, Injection, ModelRequest, OnDisconnect, Operation, PricedParts, Settled,
    StreamCleaner, Target, TargetOptions, UpstreamKind,
};
use UpstreamKind::{Demo, Llamacpp, Sglang, Vllm};

fn bounds() -> Bounds {
    Bounds {
        counted_prompt_tokens: 1_000_000,
        reserved_prompt_tokens: 1_000_000,
        completion_tokens: 1_000_000,
        priced: PricedParts::default(),
    }
}

/// A function that returns a number below its argument.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> i64;

/// The end of a stream, some bytes of which have arrived before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client disconnects.
    Leaves(OnDisconnect),
    /// The upstream closes its connection.
    UpstreamCloses,
    /// The rest arrives.
    Completes,
}

/// A stream of an upstream, with the true number of tokens used after each of its events.
pub struct Story {
    operation: Operation,
    kind: UpstreamKind,
    request: ModelRequest,
    prompt: i64,
    events: Vec<(String, i64)>,
}

impl Story {
    pub fn new(operation: Operation, kind: UpstreamKind, draw: Draw<'_>) -> Self {
        let contents = match operation {
            Operation::ChatCompletions | Operation::Messages => {
                r#""messages":[{"role":"user","content":"Tell me a story"}]"#
            }
            Operation::Completions => r#""prompt":"Tell me a story""#,
            Operation::Responses | Operation::Embeddings => r#""input":"Tell me a story""#,
        };
        let body = format!(r#"{{"model":"tk-chat","stream":true,{contents}}}"#);
        let request = ModelRequest::read(operation, &Bytes::from(body)).unwrap();
        let mut story = Self { operation, kind, request, prompt: 10 + draw(3_000), events: Vec::new() };
        story.tell(draw);
        story
    }

    /// Writes the events, in the form of the operation and the kind. Some events have tokens without visible
    /// text, such as hidden reasoning.
    fn tell(&mut self, draw: Draw<'_>) {
        let mut used = 0;
        self.begin();
        for _ in 0..=draw(6) {
            let words = 1 + draw(3);
            used += words + if draw(2) == 0 { 0 } else { draw(12) };
            self.text(&"word".repeat(usize::try_from(words).unwrap()), used);
        }
        used += draw(300);
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

    /// Returns the running counts that an upstream of this kind sends with each event.
    fn running(&self, used: i64) -> String {
        let prompt = self.prompt;
        match self.kind {
            Vllm | Sglang | Demo
                if matches!(self.operation, Operation::ChatCompletions | Operation::Completions) =>
            {
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

    /// Ends the stream after this many bytes. Returns the charge, the usage of the upstream up to the last event
    /// that was read, and the number of these events.
    fn end_after(&self, bytes: usize, end: End) -> (Settled, i64, usize) {
        let target = Target {
            dialect: Dialect::of(self.kind),
            model: "org/Model",
            max_completion_tokens: 100_000,
            inject: Injection::default(),
            options: TargetOptions::default(),
        };
        let mut cleaner = StreamCleaner::new(&self.request, &target, Vec::new());
        let whole: String = self.events.iter().map(|(event, _)| event.as_str()).collect();
        let mut framer = Framer::new();
        framer.push(Bytes::copy_from_slice(&whole.as_bytes()[..bytes]));
        let mut read = 0;
        while let Some(frame) = framer.next_event().unwrap() {
            cleaner.clean(&frame);
            read += 1;
        }
        if let End::Leaves(_) = end {
            cleaner.mark_left();
        }
        framer.push(Bytes::copy_from_slice(&whole.as_bytes()[bytes..]));
        while read < self.events.len() {
            let is_read = match end {
                // As in the gateway, wait for the first event.
                End::Leaves(OnDisconnect::Count) => read == 0 || !cleaner.is_counted(),
                End::Leaves(on_disconnect) => on_disconnect == OnDisconnect::Drain,
                End::UpstreamCloses => false,
                End::Completes => true,
            };
            if !is_read {
                break;
            }
            let frame = framer.next_event().unwrap().unwrap();
            cleaner.clean(&frame);
            read += 1;
        }
        let used = read.checked_sub(1).map_or(0, |last| self.events[last].1);
        (cleaner.counter().settle(bounds()), used, read)
    }

    pub fn length(&self) -> usize {
        self.events.iter().map(|(event, _)| event.len()).sum()
    }
}

/// Returns the price of a call in which a token of the answer costs ten times as much as a token of the
/// prompt.
fn price(prompt: i64, completion: i64) -> i64 {
    prompt + 10 * completion
}

/// Ends the stream after this many bytes, and checks the charge.
pub fn check(story: &Story, bytes: usize, end: End) {
    let (settled, used, read) = story.end_after(bytes, end);
    let shown =
        format!("{:?} {:?} {end:?} at byte {bytes}: {settled:?} of {used}", story.operation, story.kind);
    let charged = price(settled.prompt_tokens, settled.completion_tokens);
    let right = price(story.prompt, used);
    // A stream that fails before its first text is free.
    if end == End::UpstreamCloses && used == 0 && charged == 0 {
        return;
    }
    let counts_as_it_goes = !story.running(0).is_empty();
    let is_whole = read == story.events.len();
    match end {
        // Without a count, tokens are estimated. The text of the prompt has 15 bytes.
        End::Leaves(OnDisconnect::Cancel) | End::UpstreamCloses => {
            let least = if end == End::UpstreamCloses { 0 } else { 3 };
            assert!((least..=story.prompt).contains(&settled.prompt_tokens), "{shown}");
            assert!(settled.completion_tokens <= used, "{shown}");
            if end == End::UpstreamCloses && counts_as_it_goes {
                assert_eq!(charged, right, "{shown}");
            }
        }
        End::Leaves(_) => {
            assert!(charged <= right, "{shown}");
            assert!(10 * charged >= 9 * right, "{shown}");
            if !counts_as_it_goes {
                // The stream was read up to its usage.
                let whole = story.events.last().map_or(0, |(_, used)| *used);
                assert_eq!(charged, price(story.prompt, whole), "{shown}");
            }
        }
        End::Completes => assert_eq!(charged, right, "{shown}"),
    }
    if is_whole {
        assert_eq!(charged, right, "{shown}");
    }
}
