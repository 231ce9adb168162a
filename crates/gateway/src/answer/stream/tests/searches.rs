//! Searches and tiers of responses and messages, streamed and plain.

use super::*;
use catalog::{Component, ServiceTier};

fn request_of(operation: Operation) -> ModelRequest {
    let body =
        r#"{"model":"tk-chat","input":"Hi","messages":[{"role":"user","content":"Hi"}],"max_tokens":100}"#;
    ModelRequest::read(operation, &Bytes::from(body)).unwrap()
}

/// Returns the charged searches, and the service tier.
fn of(settled: Settled) -> (i64, ServiceTier) {
    (settled.parts.get(Component::Search), settled.service_tier)
}

fn streamed(operation: Operation, events: &[&str]) -> (i64, ServiceTier) {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    let mut cleaner = StreamCleaner::new(&request_of(operation), &upstream(Openai), Vec::new());
    let mut framer = Framer::new();
    framer.push(Bytes::from(body));
    while let Some(frame) = framer.next_event().unwrap() {
        cleaner.clean(&frame);
    }
    of(cleaner.counter().settle(Bounds::new(1_000, 1_000)))
}

fn plain(operation: Operation, body: &str) -> (i64, ServiceTier) {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let answer = PlainAnswer::read::<&str>(&body, &request_of(operation), &[]).unwrap();
    of(answer.settle(Bounds::new(1_000, 1_000)))
}

/// Two searches, an opened page, a failed search, a search in progress, and a function with a similar name.
const ITEMS: [&str; 6] = [
    r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"a"}}"#,
    r#"{"type":"web_search_call","id":"ws_2","status":"completed"}"#,
    r#"{"type":"web_search_call","id":"ws_3","status":"completed","action":{"type":"open_page","url":"https://b.example"}}"#,
    r#"{"type":"web_search_call","id":"ws_4","status":"failed","action":{"type":"search","query":"b"}}"#,
    r#"{"type":"web_search_call","id":"ws_5","status":"in_progress","action":{"type":"search","query":"c"}}"#,
    r#"{"type":"function_call","name":"web_search_call","arguments":"{}"}"#,
];

#[test]
fn finished_searches_of_a_response_are_counted() {
    let response = |output: &str, more: &str| {
        format!(
            r#"{{"object":"response","status":"completed","output":{output},"usage":{{"input_tokens":9,"output_tokens":5{more}}},"service_tier":"flex"}}"#
        )
    };
    let all = format!("[{}]", ITEMS.join(","));
    let two = (2, ServiceTier::Flex);
    assert_eq!(plain(Operation::Responses, &response(&all, "")), two);
    assert_eq!(plain(Operation::Responses, &response("null", "")), (0, ServiceTier::Flex));
    // The provider's count isn't added to the searches that are counted from the items.
    let counted = |count: i64| format!(r#","server_side_tool_usage_details":{{"web_search_calls":{count}}}"#);
    assert_eq!(plain(Operation::Responses, &response(&all, &counted(1))), two);
    assert_eq!(plain(Operation::Responses, &response(&all, &counted(3))), (3, ServiceTier::Flex));

    let created = r#"{"type":"response.created","response":{"output":[],"service_tier":"auto"}}"#.to_owned();
    let done = ITEMS.map(|item| format!(r#"{{"type":"response.output_item.done","item":{item}}}"#));
    let added = format!(r#"{{"type":"response.output_item.added","item":{}}}"#, ITEMS[0]);
    let delta = r#"{"type":"response.output_text.delta","delta":"Hi"}"#.to_owned();
    let completed = format!(r#"{{"type":"response.completed","response":{}}}"#, response(&all, ""));
    let mut events = vec![created, added];
    events.extend(done);
    events.push(delta);
    let cut: Vec<_> = events.iter().map(String::as_str).collect();
    assert_eq!(streamed(Operation::Responses, &cut), (2, ServiceTier::Default));
    // The last event repeats all searches, or contains none.
    let whole: Vec<_> = cut.iter().copied().chain([completed.as_str()]).collect();
    assert_eq!(streamed(Operation::Responses, &whole), two);
    let bare = format!(r#"{{"type":"response.completed","response":{}}}"#, response("[]", ""));
    let whole: Vec<_> = cut.iter().copied().chain([bare.as_str()]).collect();
    assert_eq!(streamed(Operation::Responses, &whole), two);
    assert_eq!(streamed(Operation::Responses, &[&completed]), two);
}

#[test]
fn searches_and_tier_of_a_message_are_those_of_its_usage() {
    let usage = r#"{"input_tokens":9,"output_tokens":5,"server_tool_use":{"web_search_requests":3},"service_tier":"priority"}"#;
    let message = format!(
        r#"{{"type":"message","stop_reason":"end_turn","content":[{{"type":"text","text":"Hi"}}],"usage":{usage}}}"#
    );
    assert_eq!(plain(Operation::Messages, &message), (3, ServiceTier::Priority));
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1,"service_tier":"batch"}}}"#;
    let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#;
    assert_eq!(streamed(Operation::Messages, &[start, text]), (0, ServiceTier::Batch));
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5,"server_tool_use":{"web_search_requests":3}}}"#;
    assert_eq!(streamed(Operation::Messages, &[start, text, end]), (3, ServiceTier::Batch));
    let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#);
    assert_eq!(streamed(Operation::Messages, &[start, text, &end]), (3, ServiceTier::Priority));
}

/// An answer without a `usage` object still has a tier and searches.
#[test]
fn estimates_have_the_tier_and_the_searches() {
    let response = format!(r#"{{"object":"response","output":[{}],"service_tier":"flex"}}"#, ITEMS[0]);
    assert_eq!(plain(Operation::Responses, &response), (1, ServiceTier::Flex));
    let chat = r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"service_tier":"priority"}"#;
    assert_eq!(plain(Operation::ChatCompletions, chat), (0, ServiceTier::Priority));
    // In a body that isn't an object, both are found at its end.
    let deep = format!("{}{chat}{}", "[".repeat(300), "]".repeat(300));
    assert_eq!(plain(Operation::ChatCompletions, &deep), (0, ServiceTier::Priority));
}
