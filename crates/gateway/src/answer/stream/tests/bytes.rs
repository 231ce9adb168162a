//! Any text that a client could read is forwarded byte for byte: in the events of each operation, wherever a
//! stream is cut, and in plain answers.

use proptest::prelude::*;

use super::*;

/// A part of a JSON string as servers send it: any bytes, whole characters, incomplete sequences, escapes and
/// unpaired surrogates.
fn text_part() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // A quote or a backslash would end the string or begin an escape. A line end would end the line of
        // the event.
        proptest::collection::vec(
            any::<u8>().prop_filter("a sign of JSON or of events", |byte| !b"\"\\\r\n".contains(byte)),
            1..8
        ),
        any::<u16>().prop_map(|unit| format!("\\u{unit:04x}").into_bytes()),
        (0xd800_u16..0xe000).prop_map(|unit| format!("\\u{unit:04X}").into_bytes()),
        proptest::sample::select(vec!["\\n", "\\\"", "\\\\", "\\/", "é", "😀", "data: ", "[DONE]", "\\\\u"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(text_part(), 0..12).prop_map(|parts| parts.concat())
}

/// Events that contain a text: the operation, the parts before and after the text, and the request that it
/// answers.
const EVENTS: [(Operation, &str, &str, &str); 5] = [
    (
        Operation::ChatCompletions,
        r#""messages":[{"role":"user","content":"Hi"}]"#,
        r#"{"model":"MODEL","choices":[{"index":0,"delta":{"content":""#,
        r#""},"logprobs":NaN}]}"#,
    ),
    (
        Operation::ChatCompletions,
        r#""messages":[{"role":"user","content":"Hi"}]"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":""#,
        r#""}}]}}],"model":"MODEL"}"#,
    ),
    (
        Operation::Completions,
        r#""prompt":"a""#,
        r#"{"choices":[{"index":0,"text":""#,
        r#""}],"model":"MODEL"}"#,
    ),
    (
        Operation::Responses,
        r#""input":"a""#,
        r#"{"type":"response.output_text.delta","output_index":0,"delta":""#,
        r#""}"#,
    ),
    (
        Operation::Messages,
        r#""max_tokens":9,"messages":[{"role":"user","content":"Hi"}]"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""#,
        r#""}}"#,
    ),
];

fn event(before: &str, text: &[u8], after: &str, model: &str) -> Vec<u8> {
    let before = before.replace("MODEL", model);
    let after = after.replace("MODEL", model);
    [b"data: ", before.as_bytes(), text, after.as_bytes(), b"\n\n"].concat()
}

proptest! {
    #[test]
    fn any_text_passes_in_pieces_of_any_size(
        text in text(),
        which in 0..EVENTS.len(),
        cuts in proptest::collection::vec(0_usize..200, 0..6),
    ) {
        let (operation, members, before, after) = EVENTS[which];
        let body = event(before, &text, after, "org/Model");
        let request = format!(r#"{{"model":"tk-chat","stream":true,{members}}}"#);
        let request = ModelRequest::read(operation, &Bytes::from(request)).unwrap();
        let mut cleaner = StreamCleaner::new(&request, &upstream(Vllm), Vec::new());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let mut framer = Framer::new();
        let mut passed = Vec::new();
        for piece in cuts.windows(2) {
            framer.push(Bytes::copy_from_slice(&body[piece[0]..piece[1]]));
            while let Some(frame) = framer.next_event().unwrap() {
                match cleaner.clean(&frame) {
                    Cleaned::Forward(bytes) => passed.extend_from_slice(&bytes),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
        prop_assert_eq!(passed, event(before, &text, after, "tk-chat"));
    }

    #[test]
    fn any_text_passes_in_a_plain_answer(text in text()) {
        let answer = |model: &str| {
            let before = format!(r#"{{"model":"{model}","choices":[{{"message":{{"content":""#);
            let after: &[u8] = br#""}}],"usage":{"prompt_tokens":4,"completion_tokens":5}}"#;
            [before.as_bytes(), &text, after].concat()
        };
        let read = PlainAnswer::read::<&str>(&answer("org/Model").into(), &request(""), &[]).unwrap();
        let settled = read.settle(Bounds::new(100, 100));
        prop_assert_eq!(read.body, answer("tk-chat"));
        prop_assert_eq!((settled.prompt_tokens, settled.completion_tokens, settled.estimated), (4, 5, false));
    }

    /// Reading never panics, and never counts more than was reserved, no matter what an upstream sends.
    #[test]
    fn any_bytes_are_read(
        events in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..6),
        which in 0..EVENTS.len(),
    ) {
        let (operation, members, before, _) = EVENTS[which];
        let request = format!(r#"{{"model":"tk-chat","stream":true,{members}}}"#);
        let request = ModelRequest::read(operation, &Bytes::from(request)).unwrap();
        let mut cleaner = StreamCleaner::new(&request, &upstream(Vllm), Vec::new());
        let mut framer = Framer::new();
        for bytes in events {
            framer.push([b"data: ", before.as_bytes(), &bytes, b"\n\n"].concat().into());
            while let Some(frame) = framer.next_event().unwrap() {
                cleaner.clean(&frame);
            }
        }
        cleaner.end_of_body();
        let settled = cleaner.counter().settle(Bounds::new(50, 60));
        prop_assert!((0..=50).contains(&settled.prompt_tokens) && (0..=60).contains(&settled.completion_tokens));
    }
}
