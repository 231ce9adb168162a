//! Answers from real servers, and others modeled on published formats, each stored with its correct charge
//! (`tests/servers`).

use std::path::{Path, PathBuf};

use super::*;

/// The description of a recorded answer.
#[derive(serde::Deserialize)]
struct Golden {
    kind: String,
    operation: String,
    request: serde_json::Value,
    stream: bool,
    end: String,
    charged: Charge,
    near: Option<Near>,
}

/// The expected charge. A count that must be estimated is absent.
#[derive(serde::Deserialize)]
struct Charge {
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    cached_prompt_tokens: Option<i64>,
    estimated: bool,
}

/// The true numbers of tokens of an answer whose charge is estimated.
#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(default)]
struct Near {
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
}

/// Returns `true` if a count is the expected one, or an estimate that is close enough.
fn is_right(counted: i64, expected: Option<i64>, near: Option<i64>) -> bool {
    match (expected, near) {
        (Some(expected), None) => counted == expected,
        (None, Some(near)) => 10 * counted >= 3 * near && counted <= 3 * near,
        // For each count, exactly one of the two is present.
        _ => false,
    }
}

/// Checks that a body in two pieces has the same events, wherever it is cut.
fn check_pieces(body: &Bytes) {
    let events = |pieces: [Bytes; 2]| {
        let (mut framer, mut events) = (Framer::new(), Vec::new());
        for piece in pieces {
            framer.push(piece);
            while let Some(frame) = framer.next_event().unwrap() {
                events.push(frame);
            }
        }
        events
    };
    let all = events([body.clone(), Bytes::new()]);
    // Only the two events around a cut can be affected by it.
    let mut start = 0;
    for pair in all.windows(2) {
        let end = start + pair.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        let both = body.slice(start..end);
        let whole = events([both.clone(), Bytes::new()]);
        for at in 1..both.len() {
            assert!(events([both.slice(..at), both.slice(at..)]) == whole, "cut at {}", start + at);
        }
        start += pair.first().map_or(0, |frame| frame.bytes.len());
    }
}

/// Returns the charge, and whether the answer is complete.
fn charge(golden: &Golden, body: Bytes) -> (Settled, bool) {
    let operation = Operation::ALL.into_iter().find(|one| one.path() == format!("/{}", golden.operation));
    let mut members = golden.request.clone();
    if golden.stream {
        members["stream"] = true.into();
    }
    let request = ModelRequest::read(operation.unwrap(), &Bytes::from(members.to_string())).unwrap();
    let kinds = [Vllm, Sglang, Llamacpp, Tgi, Openai];
    let kind = kinds.into_iter().find(|kind| kind.as_str() == golden.kind).unwrap();
    let bounds = Bounds::new(1_000_000, 1_000_000).with_cached_price();
    if !golden.stream {
        let answer = PlainAnswer::read::<&str>(&body, &request, &[]).unwrap();
        return (answer.settle(bounds), true);
    }
    let mut cleaner = StreamCleaner::new(&request, &upstream(kind), Vec::new());
    check_pieces(&body);
    let mut framer = Framer::new();
    framer.push(body);
    while let Some(frame) = framer.next_event().unwrap() {
        assert!(!matches!(cleaner.clean(&frame), Cleaned::Error(_) | Cleaned::Invalid), "{frame:?}");
    }
    if golden.end == "complete" {
        cleaner.end_of_body();
    }
    (cleaner.counter().settle(bounds), cleaner.counter().is_complete())
}

#[test]
fn recorded_answers_are_charged_as_their_servers_counted() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/streams");
    // `.ci/nightly` sets the variable to a folder with newly recorded answers.
    let folder = std::env::var_os("TOLLKEEPER_TEST_STREAMS").map_or(here, PathBuf::from);
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let golden: Golden = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let body = std::fs::read(path.with_extension(if golden.stream { "sse" } else { "body" })).unwrap();
        let (settled, is_complete) = charge(&golden, body.into());
        count += 1;
        let Charge { prompt_tokens, completion_tokens, cached_prompt_tokens, estimated } = golden.charged;
        let near = golden.near.unwrap_or_default();
        let is_right = is_right(settled.prompt_tokens, prompt_tokens, near.prompt_tokens)
            && is_right(settled.completion_tokens, completion_tokens, near.completion_tokens)
            && (settled.cached_prompt_tokens, settled.estimated) == (cached_prompt_tokens, estimated)
            && is_complete == (golden.end == "complete");
        if !is_right {
            wrong.push(format!("{}: {settled:?}, complete: {is_complete}", path.display()));
        }
    }
    assert!(count >= 60, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
