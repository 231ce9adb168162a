//! Whole streams of completions, responses and messages as llama.cpp and vLLM send them, and their results.

use super::*;

/// Cleans a stream for a request of this operation, whose prompt is estimated at a few tokens.
fn run_as(operation: Operation, members: &str, kind: UpstreamKind, body: &str) -> Outcome {
    let request = format!(r#"{{"model":"tk-chat","stream":true,{members},"padding":"------------------"}}"#);
    let request = ModelRequest::read(operation, &Bytes::from(request)).unwrap();
    clean(body, StreamCleaner::new(&request, &upstream(kind), vec!["10.0.0.5".to_owned()]))
}

const PROMPTS: &str = r#""prompt":["a","b"],"n":2"#;

fn choice(index: usize, text: &str, reason: &str, prompt: i64, completion: i64) -> String {
    format!(
        r#"data: {{"model":"org/Model","choices":[{{"index":{index},"text":"{text}","finish_reason":{reason}}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}

"#
    )
}

#[test]
fn completions_count_each_prompt_once() {
    // Two prompts with 3 and 5 tokens, each with two answers.
    let mut body = [
        choice(0, "x", "null", 3, 1),
        choice(2, "y", "null", 5, 1),
        choice(1, "z", "null", 3, 2),
        choice(0, "x", "\"stop\"", 3, 2),
    ]
    .concat();
    let cut = run_as(Operation::Completions, PROMPTS, Vllm, &body);
    // The prompts have 3 + 5 tokens, and the answers 2 + 2 + 1.
    assert_eq!((cut.settled, cut.is_complete), ((8, 5, None, false), false));
    assert_eq!(cut.forwarded.matches(r#""model":"tk-chat""#).count(), 4);
    assert!(!cut.forwarded.contains("usage"));
    for (index, prompt) in [(1, 3), (2, 5), (3, 5)] {
        body += &choice(index, "", "\"length\"", prompt, 2);
    }
    body +=
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":8}}\n\ndata: [DONE]\n\n";
    let good = run_as(Operation::Completions, PROMPTS, Vllm, &body);
    assert_eq!((good.settled, good.is_complete), ((8, 8, None, false), true));
}

const RESPONSE: &str = r#"event: response.created
data: {"type":"response.created","response":{"id":"resp_1","object":"response","status":"in_progress","model":"org/Model","usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","item":{"content":[],"id":"msg_1","role":"assistant","status":"in_progress","type":"message"}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"ge","timings":{"cache_n":19,"prompt_n":1,"predicted_n":1}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"fu","timings":{"cache_n":19,"prompt_n":1,"predicted_n":3}}

event: response.output_text.done
data: {"type":"response.output_text.done","item_id":"msg_1","text":"gefu"}

event: response.completed
data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"org/Model","output":[],"usage":{"input_tokens":20,"output_tokens":4,"total_tokens":24,"input_tokens_details":{"cached_tokens":19}}},"timings":{"cache_n":19,"prompt_n":1,"predicted_n":4}}

"#;
const INPUT: &str = r#""input":"hello""#;

#[test]
fn response_ends_with_its_usage() {
    let whole = run_as(Operation::Responses, INPUT, Llamacpp, RESPONSE);
    let mut expected = RESPONSE.replace("org/Model", "tk-chat");
    for timings in [
        r#","timings":{"cache_n":19,"prompt_n":1,"predicted_n":1}"#,
        r#","timings":{"cache_n":19,"prompt_n":1,"predicted_n":3}"#,
        r#","timings":{"cache_n":19,"prompt_n":1,"predicted_n":4}"#,
    ] {
        expected = expected.replace(timings, "");
    }
    assert_eq!(whole.forwarded, expected);
    assert_eq!((whole.settled, whole.is_complete), ((20, 4, Some(19), false), true));
    let incomplete = RESPONSE.replace("response.completed", "response.incomplete");
    assert!(run_as(Operation::Responses, INPUT, Llamacpp, &incomplete).is_complete);
    // Data after the end is ignored.
    let more = format!("{RESPONSE}data: [DONE]\n\n");
    assert_eq!(run_as(Operation::Responses, INPUT, Llamacpp, &more), whole);
}

#[test]
fn response_that_is_cut_counts_what_came() {
    let events: Vec<&str> = RESPONSE.split_inclusive("\n\n").collect();
    let cut = |count: usize, replace: (&str, &str)| {
        let body = events[..count].concat().replace(replace.0, replace.1);
        let outcome = run_as(Operation::Responses, INPUT, Llamacpp, &body);
        assert!(!outcome.is_complete);
        outcome.settled
    };
    assert_eq!(cut(2, ("", "")), (0, 0, None, true));
    assert_eq!(cut(3, ("", "")), (20, 1, Some(19), false));
    assert_eq!(cut(5, ("", "")), (20, 3, Some(19), false));
    // Without timings, each event counts as a token. The prompt has two tokens for its five letters, and
    // three for the message.
    assert_eq!(cut(5, ("timings", "others")), (5, 2, None, true));
    // `[DONE]` doesn't end a response.
    let body = events[..5].concat() + "data: [DONE]\n\n";
    assert!(!run_as(Operation::Responses, INPUT, Vllm, &body).is_complete);
}

#[test]
fn response_that_fails_is_an_error() {
    let failed = r#"event: response.failed
data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"died at 10.0.0.5"},"usage":{"input_tokens":9,"output_tokens":2}}}

"#;
    let outcome = run_as(Operation::Responses, INPUT, Vllm, failed);
    assert_eq!(error_message(outcome.failure.as_ref()), Some("died at upstream"));
    assert_eq!(outcome.settled, (9, 2, None, false), "the usage that the upstream reports");
    let error = "event: error\ndata: {\"type\":\"error\",\"code\":\"x\",\"message\":\"too hot\"}\n\n";
    let outcome = run_as(Operation::Responses, INPUT, Vllm, error);
    assert_eq!(error_message(outcome.failure.as_ref()), Some("too hot"));
}

const MESSAGE: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"org/Model","stop_reason":null,"stop_sequence":null,"usage":{"cache_read_input_tokens":8,"input_tokens":10,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ge"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":3}}

event: message_stop
data: {"type":"message_stop"}

"#;
const MESSAGES: &str = r#""messages":[{"role":"user","content":"Hi"}],"max_tokens":5"#;

#[test]
fn message_counts_are_totals() {
    let whole = run_as(Operation::Messages, MESSAGES, Llamacpp, MESSAGE);
    assert_eq!(whole.forwarded, MESSAGE.replace("org/Model", "tk-chat"));
    // The prompt has 10 tokens and 8 from the cache. The answer has 3 tokens, not 1 + 3.
    assert_eq!((whole.settled, whole.is_complete), ((18, 3, Some(8), false), true));
    let again = MESSAGE.replace(
        r#""usage":{"output_tokens":3}"#,
        r#""usage":{"input_tokens":10,"cache_creation_input_tokens":2,"output_tokens":3}"#,
    );
    assert_eq!(run_as(Operation::Messages, MESSAGES, Vllm, &again).settled, (20, 3, Some(8), false));
}

#[test]
fn message_that_is_cut_counts_what_came() {
    let events: Vec<&str> = MESSAGE.split_inclusive("\n\n").collect();
    let cut = |count: usize| {
        let outcome = run_as(Operation::Messages, MESSAGES, Llamacpp, &events[..count].concat());
        // A body that ends after the stop reason is complete.
        assert_eq!(outcome.is_complete, count >= 7);
        outcome.settled
    };
    assert_eq!(cut(0), (0, 0, None, true));
    assert_eq!(cut(3), (18, 0, Some(8), false));
    // "ge" and `{"a":` are 0.46 + 0.52 + 0.38 + 0.23 + 0.52 + 0.38.
    assert_eq!(cut(5), (18, 3, Some(8), true));
    assert_eq!(cut(7), (18, 3, Some(8), false));
    // Without a stop reason, the answer isn't complete.
    let open = MESSAGE.replace(r#""stop_reason":"max_tokens""#, r#""stop_reason":null"#);
    assert!(!run_as(Operation::Messages, MESSAGES, Llamacpp, &open).is_complete);
}

#[test]
fn message_that_fails_is_an_error() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    let outcome = run_as(Operation::Messages, MESSAGES, Vllm, error);
    assert_eq!(error_message(outcome.failure.as_ref()), Some("busy"));
}

#[test]
fn plain_answers_of_each_operation_are_counted() {
    let read = |operation: Operation, members: &str, body: &str| {
        let request = format!(r#"{{"model":"tk-chat",{members}}}"#);
        let request = ModelRequest::read(operation, &Bytes::from(request)).unwrap();
        let answer =
            PlainAnswer::read::<&str>(&Bytes::copy_from_slice(body.as_bytes()), &request, &[]).unwrap();
        let settled = answer.settle(Bounds::new(1_000, 1_000));
        assert_eq!(std::str::from_utf8(&answer.body).unwrap(), body.replace("org/Model", "tk-chat"));
        (settled.prompt_tokens, settled.completion_tokens, settled.cached_prompt_tokens, settled.estimated)
    };
    let response = r#"{"model":"org/Model","object":"response","status":"completed","error":null,"output":[{"content":[{"type":"output_text","text":"abcdefgh"}]}],"usage":{"input_tokens":20,"output_tokens":3,"input_tokens_details":{"cached_tokens":2}}}"#;
    assert_eq!(read(Operation::Responses, INPUT, response), (20, 3, Some(2), false));
    let without = response.replace("usage", "others");
    // The prompt has 0.24 + 4 × 0.23 tokens for its text, and three for the message. The answer has 8 × 0.23.
    assert_eq!(read(Operation::Responses, INPUT, &without), (5, 2, None, true));
    let message = r#"{"type":"message","model":"org/Model","content":[{"type":"text","text":"1234"},{"type":"tool_use","id":"x","name":"f","input":{"a":"b12"}}],"usage":{"cache_read_input_tokens":19,"input_tokens":1,"output_tokens":3}}"#;
    assert_eq!(read(Operation::Messages, MESSAGES, message), (20, 3, Some(19), false));
    // "1234", "f" and "b12" are six digits and two letters: 6 × 0.55 + 2 × 0.23.
    assert_eq!(read(Operation::Messages, MESSAGES, &message.replace("usage", "others")).1, 4);
    let embeddings = r#"{"object":"list","model":"org/Model","data":[{"embedding":"AAAA","index":0}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
    assert_eq!(read(Operation::Embeddings, INPUT, embeddings), (7, 0, None, false));
    let none: &[&str] = &[];
    for (operation, members, body) in [
        (Operation::Responses, INPUT, r#"{"status":"failed","error":{"message":"no"}}"#),
        (Operation::Messages, MESSAGES, r#"{"type":"error","error":{"type":"api_error","message":"no"}}"#),
        (Operation::Embeddings, INPUT, r#"{"error":{"message":"no"}}"#),
    ] {
        let request =
            ModelRequest::read(operation, &Bytes::from(format!(r#"{{"model":"m",{members}}}"#))).unwrap();
        let error = PlainAnswer::read(&Bytes::from(body), &request, none).unwrap_err();
        let PlainError::Error(error) = error else { panic!("{error:?}") };
        assert_eq!(error.message.as_deref(), Some("no"), "{body}");
    }
}
