//! Answers that real servers gave, and others after published formats, each with its right charge beside it
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
}

/// The expected charge. A count that must be estimated is absent.
#[derive(serde::Deserialize)]
struct Charge {
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    cached_prompt_tokens: Option<i64>,
    estimated: bool,
}

/// Returns what is charged, and whether the answer is complete.
fn charge(golden: &Golden, body: Bytes) -> (Settled, bool) {
    let operation = Operation::ALL.into_iter().find(|one| one.path() == format!("/{}", golden.operation));
    let mut members = golden.request.clone();
    if golden.stream {
        members["stream"] = true.into();
    }
    let request = ModelRequest::read(operation.unwrap(), &Bytes::from(members.to_string())).unwrap();
    let kinds = [Vllm, Sglang, Llamacpp, Tgi, Openai];
    let kind = kinds.into_iter().find(|kind| kind.as_str() == golden.kind).unwrap();
    let bounds = Bounds { prices_cached: true, ..Bounds::new(1_000_000, 1_000_000) };
    if !golden.stream {
        let answer = PlainAnswer::read::<&str>(&body, &request, &[]).unwrap();
        return (answer.settle(bounds), true);
    }
    let mut cleaner = StreamCleaner::new(&request, &upstream(kind), Vec::new());
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
    // Others that were recorded just now (`.ci/nightly`).
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
        let expected = Settled {
            prompt_tokens: prompt_tokens.unwrap_or(settled.prompt_tokens),
            completion_tokens: completion_tokens.unwrap_or(settled.completion_tokens),
            cached_prompt_tokens,
            estimated,
        };
        if settled != expected || is_complete != (golden.end == "complete") {
            wrong.push(format!("{}: {settled:?}, {}, not {expected:?}", path.display(), golden.end));
        }
    }
    assert!(count >= 60, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
