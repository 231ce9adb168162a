//! The table of stories. Each has the behavior of an upstream during a call, and the end of the call
//! (docs/contract/gateway.md#what-a-call-costs).

use std::time::Duration;

use serde_json::{Value, json};

use super::answers::{Counts, Request, WORDS};
use super::{Operation, Sdk};
use support::upstream::{Received, Step, end_of_body, piece};

const CHATS: &[Operation] = &[Operation::Chat];

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// The call ends with the whole answer and the upstream's counts.
    Good,
    /// The call ends with the whole answer, but the upstream doesn't count its tokens.
    Uncounted,
    /// The call ends with an error instead of the third word.
    Cut,
    /// The call ends with an error instead of the third word, and the upstream hasn't counted any tokens.
    CutUncounted,
    /// The call fails with this status and code instead of an answer.
    Failed(u16, &'static str),
}

/// A program's view of a call, and the prompt and completion tokens that are charged.
pub struct Outcome {
    pub seen: Value,
    pub charged: Option<(i64, i64)>,
}

type Answer = Box<dyn Fn(&Request<'_>) -> Vec<Step> + Send + Sync>;

/// An upstream's behavior, for each of these operations.
pub struct Story {
    name: String,
    pub is_stream: bool,
    pub operations: &'static [Operation],
    /// Additional settings of the upstream in the catalog.
    pub settings: &'static str,
    /// The number of calls, which are made one after another.
    pub calls: usize,
    answer: Answer,
    pub end: End,
}

impl Story {
    fn new(
        name: impl Into<String>,
        is_stream: bool,
        end: End,
        answer: impl Fn(&Request<'_>) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let (name, answer) = (name.into(), Box::new(answer));
        Self { name, is_stream, operations: Operation::ALL, settings: "", calls: 1, answer, end }
    }

    fn of_chats(self) -> Self {
        Self { operations: CHATS, ..self }
    }

    fn with(self, settings: &'static str) -> Self {
        Self { settings, ..self }
    }

    fn twice(self) -> Self {
        Self { calls: 2, ..self }
    }

    /// Returns the id of the model and of its upstream.
    pub fn model(&self, operation: Operation) -> String {
        let kind = if self.is_stream { "stream" } else { "plain" };
        format!("{}-{kind}-{}", operation.as_str(), self.name)
    }

    pub fn answer(&self, operation: Operation, received: &Received, address: &str) -> Vec<Step> {
        (self.answer)(&Request { operation, received, address })
    }

    /// Returns the expected outcome of a call with this SDK.
    pub fn outcome(&self, sdk: Sdk, operation: Operation) -> Outcome {
        let finish = match operation {
            Operation::Chat | Operation::Completions => "stop",
            Operation::Responses => "completed",
            Operation::Messages => "end_turn",
        };
        let whole = |tokens: Value, error: Value| {
            let text = WORDS.concat();
            json!({"text": text, "finish": finish, "tokens": tokens, "error": error})
        };
        let cut = || json!({"text": "Héllo", "finish": null, "tokens": null, "error": sdk.cut()});
        let (seen, charged) = match self.end {
            End::Good => (whole(json!([11, 9]), Value::Null), Some((11, 9))),
            // The tokens are estimated from the letters and punctuation of the words.
            End::Uncounted => (whole(Value::Null, Value::Null), Some((estimated_prompt(operation), 7))),
            End::Cut => {
                let charged = match operation {
                    Operation::Chat | Operation::Completions => (11, 4),
                    // The usage is at the end of a response, so both numbers are estimated: one token per
                    // event.
                    Operation::Responses => (estimated_prompt(operation), 2),
                    // A message begins with its number of prompt tokens.
                    Operation::Messages => (11, 2),
                };
                (cut(), Some(charged))
            }
            End::CutUncounted => (cut(), Some((estimated_prompt(operation), 2))),
            End::Failed(status, code) => {
                let class = match status {
                    400 => "BadRequestError",
                    _ => "InternalServerError",
                };
                let error = json!([class, status, code]);
                (json!({"text": "", "finish": null, "tokens": null, "error": error}), None)
            }
        };
        Outcome { seen, charged }
    }
}

/// Returns every story.
pub fn stories() -> Vec<Story> {
    let mut stories = plain_answers();
    stories.extend(good_streams());
    stories.extend(streams_that_are_cut());
    stories.extend(streams_that_fail());
    stories.extend(chats());
    stories.extend(statuses());
    stories
}

const UPSTREAM_FAILED: End = End::Failed(502, "upstream_failed");
const UPSTREAM_TIMEOUT: End = End::Failed(504, "upstream_timeout");

fn plain_answers() -> Vec<Story> {
    let plain = |name: &str, end, answer: fn(&Request<'_>) -> Vec<Step>| Story::new(name, false, end, answer);
    vec![
        plain("good", End::Good, |request| request.respond_json(200, &request.whole())),
        plain("in-pieces", End::Good, in_pieces),
        plain("slow", End::Good, |request| {
            let mut steps = vec![Step::Pause(Duration::from_millis(200))];
            steps.extend(request.respond_json(200, &request.whole()));
            steps
        }),
        plain("idle-connections-are-closed", End::Good, |request| {
            if request.received.earlier > 0 {
                return vec![Step::Close];
            }
            request.respond_json(200, &request.whole())
        })
        .twice(),
        plain("dies-midway", UPSTREAM_FAILED, |request| {
            let mut steps = in_pieces(request);
            steps.truncate(steps.len() / 2);
            steps.push(Step::Close);
            steps
        }),
        plain("dies-at-once", UPSTREAM_FAILED, |_| vec![Step::Close]),
        plain("silent", UPSTREAM_TIMEOUT, |_| vec![Step::AwaitClose]).with("total_ms = 1_000"),
        plain("html", UPSTREAM_FAILED, |request| request.respond_page(200)),
        plain("error-with-status-200", UPSTREAM_FAILED, |request| {
            let message = format!("CUDA out of memory at {}", request.address);
            request.respond_json(200, &json!({"error": {"message": message, "code": 500}}))
        }),
    ]
}

/// Returns the estimate for the prompt `hi there`. Its seven letters are 1.61 tokens, and a message adds
/// three.
const fn estimated_prompt(operation: Operation) -> i64 {
    match operation {
        Operation::Completions => 2,
        Operation::Chat | Operation::Responses | Operation::Messages => 2 + 3,
    }
}

/// Returns a valid answer that isn't a stream, in pieces of 50 bytes.
fn in_pieces(request: &Request<'_>) -> Vec<Step> {
    let Some(Step::Send(bytes)) = request.respond_json(200, &request.whole()).pop() else {
        panic!("no bytes")
    };
    let pieces = bytes.chunks(50).map(|bytes| Step::Send(bytes.to_vec()));
    pieces.flat_map(|piece| [piece, Step::Pause(Duration::from_millis(2))]).collect()
}

fn good_streams() -> Vec<Story> {
    let good = |name: &str, answer: fn(&Request<'_>) -> Vec<Step>| Story::new(name, true, End::Good, answer);
    vec![
        good("good", |request| request.stream(&request.events(request.asked_counts()))),
        good("a-byte-a-piece", |request| {
            let text = request.events(request.asked_counts()).concat();
            let mut steps = vec![request.stream_head()];
            steps.extend(text.bytes().map(|byte| Step::Send([&b"1\r\n"[..], &[byte], b"\r\n"].concat())));
            steps.push(end_of_body());
            steps
        }),
        good("in-one-piece", |request| {
            let steps = request.stream(&request.events(request.asked_counts()));
            let bytes = steps.into_iter().map(|step| match step {
                Step::Send(bytes) => bytes,
                other => panic!("{other:?}"),
            });
            vec![Step::Send(bytes.collect::<Vec<_>>().concat())]
        }),
        good("slow-first-byte", |request| {
            let pause = Step::Pause(Duration::from_millis(200));
            let mut steps = request.stream(&request.events(request.asked_counts()));
            steps.insert(1, pause.clone());
            steps.insert(0, pause);
            steps
        }),
        good("carriage-returns-and-comments", |request| {
            let events = request.events(request.asked_counts());
            let commented = |event: &String| format!(": working\n\n: still\n{event}");
            let other = |event: String| event.replace("data: ", "data:").replace('\n', "\r\n");
            request.stream(&events.iter().map(commented).map(other).collect::<Vec<_>>())
        }),
        good("idle-connections-are-closed", |request| {
            if request.received.earlier > 0 {
                return vec![Step::Close];
            }
            request.stream(&request.events(request.asked_counts()))
        })
        .twice(),
    ]
}

fn streams_that_are_cut() -> Vec<Story> {
    /// Returns a stream with two words, followed by these steps.
    fn then(request: &Request<'_>, steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
        let mut all = request.two_words(request.asked_counts());
        all.extend(steps);
        all
    }
    let cut = |name: &str, answer: fn(&Request<'_>) -> Vec<Step>| Story::new(name, true, End::Cut, answer);
    vec![
        cut("dies-midway", |request| then(request, [Step::Close])),
        cut("ends-early", |request| then(request, [end_of_body()])),
        cut("error-event", |request| {
            then(request, [piece(&request.error_event()), piece("data: [DONE]\n\n"), end_of_body()])
        }),
        cut("flat-error-event", |request| {
            let message = format!("CUDA out of memory at {}", request.address);
            let error =
                json!({"object": "error", "message": message, "type": "InternalServerError", "code": 500});
            then(request, [piece(&format!("data: {error}\n\n")), end_of_body()])
        }),
        cut("goes-silent", |request| then(request, [Step::AwaitClose])).with("between_events_ms = 1_000"),
        cut("event-without-json", |request| {
            let page = format!("event: error\ndata: <html>engine/1 at {}</html>\n\n", request.address);
            then(request, [piece(&page), end_of_body()])
        }),
    ]
}

fn streams_that_fail() -> Vec<Story> {
    let failed = |name: &str, end, answer: fn(&Request<'_>) -> Vec<Step>| Story::new(name, true, end, answer);
    vec![
        failed("never-begins", UPSTREAM_TIMEOUT, |request| vec![request.stream_head(), Step::AwaitClose])
            .with("first_event_ms = 1_000"),
        failed("silent", UPSTREAM_TIMEOUT, |_| vec![Step::AwaitClose]).with("first_event_ms = 1_000"),
        failed("dies-at-once", UPSTREAM_FAILED, |_| vec![Step::Close]),
        failed("dies-before-an-event", UPSTREAM_FAILED, |request| vec![request.stream_head(), Step::Close]),
        failed("ends-at-once", UPSTREAM_FAILED, |request| request.stream(&[])),
        failed("begins-with-an-error", UPSTREAM_FAILED, |request| request.stream(&[request.error_event()])),
        failed("no-stream", UPSTREAM_FAILED, |request| request.respond_json(200, &request.whole())),
        failed("html", UPSTREAM_FAILED, |request| request.respond_page(200)),
    ]
}

/// Returns the stories that depend on the events in which an upstream counts.
fn chats() -> Vec<Story> {
    let stream = |name: &str, end, answer: fn(&Request<'_>) -> Vec<Step>| {
        Story::new(name, true, end, answer).of_chats()
    };
    vec![
        Story::new("uncounted", false, End::Uncounted, |request| {
            let mut whole = request.whole();
            whole.as_object_mut().unwrap().remove("usage");
            request.respond_json(200, &whole)
        })
        .of_chats(),
        stream("uncounted", End::Uncounted, |request| request.stream(&request.events(Counts::Never))),
        stream("counted-at-the-end", End::Good, |request| request.stream(&request.events(Counts::AtTheEnd))),
        stream("cut-before-it-counts", End::CutUncounted, |request| {
            let mut steps = request.two_words(Counts::AtTheEnd);
            steps.push(Step::Close);
            steps
        }),
        stream("refuses-to-count-on-every-event", End::Good, |request| match request.asked_counts() {
            Counts::Running => {
                let message = "Unknown field: continuous_usage_stats";
                request.respond_json(400, &json!({"error": {"message": message, "code": 400}}))
            }
            counts => request.stream(&request.events(counts)),
        }),
        stream("ends-without-its-last-event", End::Good, |request| {
            let mut events = request.events(request.asked_counts());
            events.pop();
            request.stream(&events)
        }),
    ]
}

/// Returns stories with statuses other than 200. They have JSON where upstreams send it, and otherwise a
/// page.
fn statuses() -> Vec<Story> {
    let ends = [
        (400, End::Failed(400, "invalid_request")),
        (401, UPSTREAM_FAILED),
        (404, End::Failed(503, "model_not_served")),
        (422, End::Failed(400, "invalid_request")),
        (429, End::Failed(503, "model_overloaded")),
        (500, UPSTREAM_FAILED),
        (503, End::Failed(503, "model_overloaded")),
    ];
    let answer = |status: u16| {
        move |request: &Request<'_>| {
            let at = request.address;
            match status {
                400 => {
                    let message = format!("Too hot for http://{at}/v1.");
                    request
                        .respond_json(400, &json!({"error": {"message": message, "type": "BadRequestError"}}))
                }
                422 => {
                    let detail =
                        json!([{"loc": ["body", "temperature"], "msg": format!("too hot for {at}")}]);
                    request.respond_json(422, &json!({"detail": detail}))
                }
                status => request.respond_page(status),
            }
        }
    };
    let of = |is_stream| {
        ends.into_iter()
            .map(move |(status, end)| Story::new(format!("status-{status}"), is_stream, end, answer(status)))
    };
    of(false).chain(of(true)).collect()
}
