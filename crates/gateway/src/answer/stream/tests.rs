use super::*;
use crate::answer::{PlainAnswer, PlainError};
use crate::count::{Bounds, ReportedParts, Settled, Usage};
use crate::dialect::Dialect;
use crate::request::{Injection, TargetOptions};
use crate::sse::Framer;

mod bytes;
mod events;
mod golden;
mod leaving;
mod searches;
mod transcripts;

use catalog::UpstreamKind;
use catalog::UpstreamKind::{Llamacpp, Openai, Sglang, Tgi, Vllm};

/// The result of a stream.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// The bytes for the client, with `[DONE]`.
    forwarded: String,
    /// Prompt, completion and cached tokens, and whether they are estimated.
    settled: (i64, i64, Option<i64>, bool),
    is_complete: bool,
    /// The reason why the stream ended, unless it was `[DONE]` or the end of the body.
    failure: Option<Cleaned>,
}

fn request(members: &str) -> ModelRequest {
    let body = format!(r#"{{"model":"tk-chat","messages":[{{"role":"user","content":"Hi"}}]{members}}}"#);
    ModelRequest::read(Operation::ChatCompletions, &Bytes::from(body)).unwrap()
}

fn upstream(kind: UpstreamKind) -> Target<'static> {
    Target {
        dialect: Dialect::of(kind),
        model: "org/Model",
        max_completion_tokens: 100,
        inject: Injection::default(),
        options: TargetOptions::default(),
    }
}

fn cleaner(members: &str, kind: UpstreamKind) -> StreamCleaner {
    StreamCleaner::new(&request(members), &upstream(kind), vec!["10.0.0.5".to_owned()])
}

/// Cleans a whole stream for a request with these members, with 1,000 tokens of each kind reserved.
fn run(body: &str, kind: UpstreamKind, members: &str) -> Outcome {
    clean(body, cleaner(members, kind))
}

fn clean(body: &str, mut cleaner: StreamCleaner) -> Outcome {
    let mut framer = Framer::new();
    framer.push(Bytes::copy_from_slice(body.as_bytes()));
    let (mut forwarded, mut failure) = (Vec::new(), None);
    while let Some(frame) = framer.next_event().unwrap() {
        match cleaner.clean(&frame) {
            Cleaned::Forward(bytes) => forwarded.extend_from_slice(&bytes),
            Cleaned::Drop => {}
            Cleaned::Last(bytes) => forwarded.extend_from_slice(&bytes),
            other => failure = Some(other),
        }
    }
    assert_eq!(framer.finish(), None);
    cleaner.end_of_body();
    let settled = cleaner.counter().settle(Bounds::new(1_000, 1_000));
    Outcome {
        forwarded: String::from_utf8(forwarded).unwrap(),
        settled: (
            settled.prompt_tokens,
            settled.completion_tokens,
            settled.cached_prompt_tokens,
            settled.estimated,
        ),
        is_complete: cleaner.counter().is_complete(),
        failure,
    }
}

const PLAIN: &str = r#","stream":true"#;
const USAGE: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;
const CONTINUOUS: &str =
    r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
const TIMINGS: &str = r#","stream":true,"timings_per_token":true"#;

/// Returns the action for one event.
fn one(data: &str, kind: UpstreamKind, members: &str) -> Cleaned {
    let mut framer = Framer::new();
    framer.push(Bytes::from(format!("data: {data}\n\n")));
    cleaner(members, kind).clean(&framer.next_event().unwrap().unwrap())
}

fn forward(data: &str) -> Cleaned {
    Cleaned::Forward(Bytes::from(format!("data: {data}\n\n")))
}

#[test]
fn only_what_was_asked_for_is_forwarded() {
    let chunk = r#"{"id":"1", "model" : "org/Model","choices":[{"index":0,"delta":{"content":"model"}}], "usage": {"prompt_tokens":9,"completion_tokens":1},"x":[1.0, 2e1]}"#;
    for (members, expected) in [
        (
            PLAIN,
            chunk
                .replace("org/Model", "tk-chat")
                .replace(r#", "usage": {"prompt_tokens":9,"completion_tokens":1}"#, ""),
        ),
        (
            USAGE,
            chunk
                .replace("org/Model", "tk-chat")
                .replace(r#"{"prompt_tokens":9,"completion_tokens":1}"#, "null"),
        ),
        (CONTINUOUS, chunk.replace("org/Model", "tk-chat")),
    ] {
        assert_eq!(one(chunk, Vllm, members), forward(&expected), "{members}");
    }
    // If running usage wasn't requested, a chunk's `usage` object is the upstream's own and is forwarded.
    assert_eq!(one(chunk, Openai, USAGE), forward(&chunk.replace("org/Model", "tk-chat")));

    let last = r#"{"model":"tk-chat","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    for (members, expected) in [(PLAIN, Cleaned::Drop), (USAGE, forward(last)), (CONTINUOUS, forward(last))] {
        assert_eq!(one(last, Vllm, members), expected, "{members}");
    }
    let null = r#"{"model":"tk-chat","choices":[],"usage":null}"#;
    assert_eq!(one(null, Openai, PLAIN), forward(r#"{"model":"tk-chat","choices":[]}"#));
    assert_eq!(one(null, Openai, USAGE), forward(null));

    let timings = r#"{"timings":{"prompt_n":1,"predicted_n":1},"choices":[{"index":0,"delta":{}}]}"#;
    assert_eq!(one(timings, Llamacpp, PLAIN), forward(r#"{"choices":[{"index":0,"delta":{}}]}"#));
    assert_eq!(one(timings, Llamacpp, TIMINGS), forward(timings));
}

#[test]
fn what_stays_is_not_copied() {
    let mut framer = Framer::new();
    framer.push(Bytes::from_static(b"data: {\"model\":\"tk-chat\",\"choices\":[]}\n\n: ping\n\n"));
    let mut cleaner = cleaner(PLAIN, Openai);
    while let Some(frame) = framer.next_event().unwrap() {
        let Cleaned::Forward(bytes) = cleaner.clean(&frame) else { panic!("{frame:?}") };
        assert_eq!(bytes.as_ptr(), frame.bytes.as_ptr());
    }
}

#[test]
fn other_lines_of_an_event_stay() {
    let run = |body: &str| run(body, Openai, PLAIN).forwarded;
    assert_eq!(
        run("id: 1\r\ndata:{\"model\":\"x\"}\r\nevent: chunk\r\n\r\n"),
        "id: 1\r\ndata:{\"model\":\"tk-chat\"}\r\nevent: chunk\r\n\r\n"
    );
    // Data of several lines becomes one line.
    assert_eq!(run("data: {\"model\":\ndata: \"x\"\ndata: }\n\n"), "data: {\"model\": \"tk-chat\" }\n\n");
    assert_eq!(run(": ping\n\n\nretry: 5\n\ndata:\n\n"), ": ping\n\n\nretry: 5\n\n");
    let quoted = StreamCleaner::new(&request(PLAIN), &upstream(Openai), Vec::new());
    assert_eq!(quoted.options.model, b"\"tk-chat\"");
}

/// Returns the message of an error that an upstream reports.
fn error_message(cleaned: Option<&Cleaned>) -> Option<&str> {
    let Some(Cleaned::Error(error)) = cleaned else { panic!("{cleaned:?} is no error") };
    error.message.as_deref()
}

#[test]
fn what_is_only_measured_passes_as_it_came() {
    for data in [
        "null",
        "[1]",
        "\"text\"",
        r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}"#,
        "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\tb\"}}]}",
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"choices":[]}"#,
    ] {
        assert_eq!(one(data, Vllm, PLAIN), forward(data), "{data}");
    }
    // The same applies if a member is edited.
    for rest in [
        r#""choices":[{"index":0,"delta":{"content":"\ud83d"}}]}"#,
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\tb\"}}]}",
        r#""choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"logprob":NaN}]}}]}"#,
    ] {
        let named = |model: &str| format!("{{\"model\":\"{model}\",{rest}");
        assert_eq!(one(&named("org/Model"), Vllm, PLAIN), forward(&named("tk-chat")), "{rest}");
    }
    // An incomplete UTF-8 sequence, and the rest of it in the next event.
    for half in [&b"\xf0\x9f"[..], b"\x98\x80"] {
        let data =
            [b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", half, b"\"}}]}\n\n"].concat();
        let mut framer = Framer::new();
        framer.push(Bytes::from(data.clone()));
        let mut cleaner = cleaner(PLAIN, Vllm);
        assert_eq!(cleaner.clean(&framer.next_event().unwrap().unwrap()), Cleaned::Forward(data.into()));
        assert_eq!(cleaner.counter().settle(Bounds::new(1_000, 1_000)).completion_tokens, 1);
    }
}

#[test]
fn errors_end_a_stream() {
    for (data, message) in [
        (r#"{"error":{"message":"engine at 10.0.0.5 died","code":500}}"#, Some("engine at upstream died")),
        (r#"{"error":"overloaded","error_type":"overloaded"}"#, Some("overloaded")),
        (r#"{"object":"error","message":"too long","code":400}"#, Some("too long")),
        (r#"{"error":{"code":1},"choices":[]}"#, None),
        (r#"{"error":true}"#, None),
    ] {
        assert_eq!(error_message(Some(&one(data, Vllm, PLAIN))), message, "{data}");
    }
    for data in ["<html>", "[done]", "{\"choices\":["] {
        assert_eq!(one(data, Vllm, PLAIN), Cleaned::Invalid, "{data}");
    }
    assert_eq!(one("[DONE] ", Vllm, PLAIN), Cleaned::Last(Bytes::from_static(b"data: [DONE] \n\n")));
    for value in ["null", "false", "\"\"", "0", "{ }", "[]"] {
        let data = format!("{{\"error\":{value},\"choices\":[]}}");
        assert_eq!(one(&data, Vllm, PLAIN), forward(&data));
    }
    let named = run("event: error\ndata: {\"detail\":\"died\"}\n\n", Vllm, PLAIN);
    assert_eq!(error_message(named.failure.as_ref()), Some("died"));
}

#[test]
fn nothing_follows_an_end() {
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    for end in ["data: [DONE]\n\n", "data: {\"error\":\"x\"}\n\n", "data: x\n\n"] {
        let outcome = run(&format!("{end}{text}data: [DONE]\n\n"), Tgi, PLAIN);
        assert!(!outcome.forwarded.contains("content"), "{outcome:?}");
        assert_eq!((outcome.settled.1, outcome.is_complete), (0, false), "{end}");
    }
}

#[test]
fn plain_answers_are_cleaned() {
    let body = Bytes::from_static(
        br#"{"id":"1","model":"org/Model","choices":[{"index":0,"message":{"role":"assistant","content":"12345678"},"finish_reason":"stop"}],
 "usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}, "timings":{"prompt_n":6,"cache_n":3,"predicted_n":2}}"#,
    );
    let none: &[&str] = &[];
    let answer = PlainAnswer::read(&body, &request(""), none).unwrap();
    let expected = r#"{"id":"1","model":"tk-chat","choices":[{"index":0,"message":{"role":"assistant","content":"12345678"},"finish_reason":"stop"}],
 "usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#;
    assert_eq!(answer.body, expected);
    let usage = Usage {
        prompt_tokens: 9,
        completion_tokens: 2,
        cached_prompt_tokens: Some(3),
        parts: ReportedParts::default(),
    };
    assert_eq!(answer.usage, Some(usage));
    assert_eq!(
        answer.settle(Bounds::new(100, 1)),
        Settled { completion_tokens: 1, ..usage.settle(Bounds::new(100, 100)) }
    );
    let with_timings = PlainAnswer::read(&body, &request(r#","timings_per_token":true"#), none).unwrap();
    assert!(with_timings.body.ends_with(br#""predicted_n":2}}"#));

    // Without a `usage` object, the message has three tokens and its text one, and the answer has 8 × 0.23.
    let body = Bytes::from_static(
        br#"{"choices":[{"message":{"role":"assistant","content":"abcdefgh"}}],"usage":null}"#,
    );
    let answer = PlainAnswer::read(&body, &request(""), none).unwrap();
    assert_eq!((answer.usage, answer.body.as_ptr()), (None, body.as_ptr()));
    let settled = answer.settle(Bounds::new(40, 100));
    assert_eq!((settled.prompt_tokens, settled.completion_tokens, settled.estimated), (4, 2, true));
}

#[test]
fn plain_answers_that_are_none_are_errors() {
    let read = |body: &str| {
        PlainAnswer::read(&Bytes::copy_from_slice(body.as_bytes()), &request(""), &["10.0.0.5"]).unwrap_err()
    };
    for body in ["", "<html>", "{\"choices\":[}"] {
        assert_eq!(read(body), PlainError::Invalid, "{body}");
    }
    let PlainError::Error(error) = read(r#"{"error":{"message":"no 10.0.0.5"}}"#) else { panic!() };
    assert_eq!(error.message.as_deref(), Some("no upstream"));
}

#[test]
fn plain_answers_that_a_client_could_read_pass_as_they_came() {
    for text in [
        "[]",
        "null",
        "[[0.25,0.5]]",
        "\u{feff}{\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":5}}",
        r#"{"choices":[{"message":{"content":"\udc00"},"logprobs":{"x":NaN}}],"usage":{"prompt_tokens":4,"completion_tokens":5}}"#,
    ] {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let answer = PlainAnswer::read::<&str>(&body, &request(""), &[]).unwrap();
        assert_eq!(answer.body, body, "{text}");
        let settled = answer.settle(Bounds::new(100, 100));
        let is_counted = text.contains("usage");
        assert_eq!((settled.completion_tokens == 5, settled.estimated), (is_counted, !is_counted), "{text}");
    }
}

#[test]
fn plain_answers_whose_usage_counts_nothing_are_estimated() {
    let read = |operation: Operation, body: &str| {
        let contents = match operation {
            Operation::ChatCompletions | Operation::Messages => r#"[{"role":"user","content":"Hi"}]"#,
            _ => r#""Hi""#,
        };
        let request = format!(r#"{{"model":"m","{}":{contents},"max_tokens":100}}"#, operation.contents());
        let request = ModelRequest::read(operation, &Bytes::from(request)).unwrap();
        let answer = PlainAnswer::read::<&str>(&Bytes::copy_from_slice(body.as_bytes()), &request, &[]);
        answer.unwrap().settle(Bounds::new(1_000, 1_000))
    };
    for (operation, body) in [
        (
            Operation::ChatCompletions,
            r#"{"choices":[{"message":{"content":"abcdefgh"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
        ),
        (
            Operation::Completions,
            r#"{"choices":[{"text":"abcdefgh","usage":{"prompt_tokens":0,"completion_tokens":0}}]}"#,
        ),
        (
            Operation::Responses,
            r#"{"output":[{"content":[{"text":"abcdefgh"}]}],"usage":{"input_tokens":0,"output_tokens":0}}"#,
        ),
        (
            Operation::Messages,
            r#"{"content":[{"text":"abcdefgh"}],"usage":{"input_tokens":0,"output_tokens":0}}"#,
        ),
        (
            Operation::Embeddings,
            r#"{"data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":0,"total_tokens":0}}"#,
        ),
    ] {
        let settled = read(operation, body);
        assert!(settled.estimated && settled.prompt_tokens > 0, "{body}: {settled:?}");
        assert_eq!(settled.completion_tokens > 0, operation != Operation::Embeddings, "{body}: {settled:?}");
    }
}

#[test]
fn plain_answers_with_a_usage_in_each_choice_are_charged_for_all() {
    let choice = |index: usize, completion: i64| {
        format!(
            r#"{{"index":{index},"message":{{"content":"ab"}},"finish_reason":"stop","usage":{{"prompt_tokens":9,"completion_tokens":{completion}}}}}"#
        )
    };
    let body = format!(r#"{{"choices":[{},{}]}}"#, choice(0, 20), choice(1, 3));
    let answer = PlainAnswer::read::<&str>(&Bytes::from(body), &request(r#","n":2"#), &[]).unwrap();
    let counted = answer.usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens));
    assert_eq!(counted, Some((9, 23)));
}

/// Returns the text that the client gets for one event of an upstream with a shared cache.
fn hidden(operation: Operation, data: &str, members: &str) -> String {
    let body = format!(
        r#"{{"model":"tk-chat","messages":[{{"role":"user","content":"Hi"}}],"input":"Hi"{members}}}"#
    );
    let request = ModelRequest::read(operation, &Bytes::from(body)).unwrap();
    let options = TargetOptions { hides_cached_tokens: true, ..TargetOptions::default() };
    let mut cleaner = StreamCleaner::new(&request, &Target { options, ..upstream(Llamacpp) }, Vec::new());
    let mut framer = Framer::new();
    framer.push(Bytes::from(format!("data: {data}\n\n")));
    match cleaner.clean(&framer.next_event().unwrap().unwrap()) {
        Cleaned::Forward(bytes) | Cleaned::Last(bytes) => {
            String::from_utf8(bytes.to_vec()).unwrap().trim().trim_start_matches("data: ").to_owned()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn cached_tokens_of_a_shared_cache_are_not_revealed() {
    let usage = r#"{"prompt_tokens":75,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":74}}"#;
    let timings = r#"{"cache_n":74,"prompt_n":1,"predicted_n":2}"#;
    let last =
        format!(r#"{{"choices":[],"usage":{usage},"timings":{timings},"prompt_progress":{{"cache":74}}}}"#);
    let both = format!("{USAGE}{}", r#","timings_per_token":true"#);
    let shown: serde_json::Value =
        serde_json::from_str(&hidden(Operation::ChatCompletions, &last, &both)).unwrap();
    let expected = serde_json::json!({"choices": [], "timings": {"predicted_n": 2},
        "usage": {"prompt_tokens": 75, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}});
    assert_eq!(shown, expected);

    let response = r#"{"type":"response.completed","response":{"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":74},"output_tokens":2},"timings":{"prompt_n":1}}}"#;
    let shown: serde_json::Value =
        serde_json::from_str(&hidden(Operation::Responses, response, PLAIN)).unwrap();
    let expected = serde_json::json!({"type": "response.completed", "response": {
        "usage": {"input_tokens": 75, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 2}}});
    assert_eq!(shown, expected);

    for event in [
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"cache_read_input_tokens":74,"output_tokens":0}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":1,"cache_read_input_tokens":74,"output_tokens":2}}"#,
    ] {
        let shown = hidden(Operation::Messages, event, PLAIN);
        assert!(shown.contains("\"input_tokens\":75") && !shown.contains("74"), "{shown}");
    }
}

/// Cached tokens stay hidden in answers that aren't strict JSON, or that have a member twice.
#[test]
fn cached_tokens_are_not_revealed_by_lax_answers_either() {
    let usage = r#""usage":{"prompt_tokens":75,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":74},"cached_tokens":74}"#;
    let in_choice =
        format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"a"}},"logprobs":NaN,{usage}}}]}}"#);
    let events = [
        (Operation::ChatCompletions, format!(r#"{{"choices":[],"x":NaN,{usage}}}"#)),
        (Operation::ChatCompletions, in_choice.clone()),
        (Operation::ChatCompletions, in_choice.replace("NaN", r#""\ud83d""#)),
        (Operation::ChatCompletions, format!(r#"{{"choices":[],{usage},"usage":{{"cached_tokens":74}}}}"#)),
        (Operation::ChatCompletions, format!(r#"{{"model":"a","model":"b","choices":[{{{usage}}}]}}"#)),
        (Operation::Responses, format!(r#"{{"type":"a","type":"response.created","response":{{{usage}}}}}"#)),
        (Operation::Responses, format!(r#"{{"type":"response.completed","response":{{"model":"a","model":"b",{usage}}}}}"#)),
        (
            Operation::Messages,
            r#"{"type":"message_delta","type":"message_delta","usage":{"input_tokens":1,"cache_read_input_tokens":74}}"#.to_owned(),
        ),
        (
            Operation::Messages,
            r#"{"type":"message_start","message":{"model":"a","model":"b","usage":{"input_tokens":1,"cache_read_input_tokens":74}}}"#
                .to_owned(),
        ),
        (
            Operation::ChatCompletions,
            format!(r#"{{"choices":[],"usage":{{"prompt_tokens":75,"a\ud83d":1,"cached_tokens":74}},"x":{}1{}}}"#, "[".repeat(200), "]".repeat(200)),
        ),
    ];
    for (operation, event) in &events {
        let shown = hidden(*operation, event, USAGE);
        assert!(!shown.contains("74"), "{event}: {shown}");
    }
    // The text of such an event isn't lost.
    let twice =
        format!(r#"{{"model":"a","model":"b","choices":[{{"delta":{{"content":"Hello"}},{usage}}}]}}"#);
    assert!(hidden(Operation::ChatCompletions, &twice, USAGE).contains("Hello"));
}

#[test]
fn cached_tokens_are_not_revealed_by_lax_plain_answers_either() {
    let usage =
        r#""usage":{"prompt_tokens":75,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":74}}"#;
    let choice = r#"{"index":0,"message":{"content":"Hello"},"finish_reason":"stop""#;
    for body in [
        format!(r#"{{"choices":[{choice},"logprobs":NaN}}],{usage}}}"#),
        format!(r#"{{"choices":[{choice},"x":"\ud83d"}}],{usage}}}"#),
        format!(r#"{{"choices":[{choice},"x":NaN,{usage}}}],{usage}}}"#),
        format!(r#"{{"choices":[{choice},{usage}}}]}}"#),
        format!(r#"{{"model":"a","model":"b","choices":[{choice},{usage}}}],{usage}}}"#),
    ] {
        let body = Bytes::from(body);
        let answer = PlainAnswer::read_for::<&str>(&body, &request(""), &[], true).unwrap();
        let shown = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(!shown.contains("74") && shown.contains("Hello"), "{shown}");
        let settled = answer.settle(Bounds::new(1_000, 1_000));
        assert_eq!((settled.prompt_tokens, settled.completion_tokens, settled.estimated), (75, 2, false));
    }
}

/// Clients accept a body in which a member occurs twice, so it is forwarded.
#[test]
fn plain_answers_with_a_member_twice_pass() {
    let usage = r#""usage":{"prompt_tokens":75,"completion_tokens":2}"#;
    let choices = r#""choices":[{"index":0,"message":{"content":"Hello"}}]"#;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for (body, is_counted) in [
        (format!(r#"{{"model":"a","model":"b",{choices},{usage}}}"#), true),
        (format!(r#"{{{choices},{choices},{usage}}}"#), true),
        (format!(r#"{{"model":"a","model":"b",{choices}}}"#), false),
        (format!(r#"{{"choices":[{{"message":{{"content":{deep}}}}}],{usage}}}"#), true),
    ] {
        let body = Bytes::from(body);
        let answer = PlainAnswer::read::<&str>(&body, &request(""), &[]).unwrap();
        assert_eq!(answer.body, body);
        let settled = answer.settle(Bounds::new(1_000, 1_000));
        assert_eq!(settled.estimated, !is_counted, "{settled:?}");
        assert!(settled.completion_tokens >= 2, "{settled:?}");
    }
}

/// The text around an unpaired surrogate is counted.
#[test]
fn text_with_an_unpaired_surrogate_is_counted() {
    let text = "many words of a text ".repeat(10);
    for (operation, event) in [
        (Operation::Responses, r#"{"type":"response.output_text.delta","delta":"TEXT"}"#),
        (Operation::Responses, r#"{"type":"response.output_text.delta","delta":"TEXT","logprobs":NaN}"#),
        (
            Operation::Messages,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"TEXT"}}"#,
        ),
        (Operation::ChatCompletions, r#"{"choices":[{"index":0,"delta":{"content":"TEXT"}}]}"#),
    ] {
        let tokens = |text: &str| {
            let body = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}],"input":"Hi","max_tokens":9,"stream":true}"#;
            let request = ModelRequest::read(operation, &Bytes::from(body)).unwrap();
            let cleaner = StreamCleaner::new(&request, &upstream(Vllm), Vec::new());
            let outcome = clean(&format!("data: {}\n\n", event.replace("TEXT", text)), cleaner);
            assert_eq!(outcome.failure, None);
            outcome.settled.1
        };
        assert!(tokens(&text) > 20);
        assert_eq!(tokens(&format!("{text}\\ud83d")), tokens(&format!("{text} ")), "{event}");
    }
}
