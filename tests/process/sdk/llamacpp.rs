//! The official SDKs with a real llama.cpp behind the gateway.

use serde_json::{Value, json};

use super::stories::{Sdk, Stage, model};
use support::llamacpp::LlamaCpp;

/// Makes each call of an SDK plain and streamed. Both must have the same text, and cost the tokens that
/// llama.cpp has generated.
fn call(sdk: Sdk) {
    let Some(program) = sdk.program() else { return };
    let Some(engine) = LlamaCpp::start(1, "an SDK with llama.cpp behind the gateway") else { return };
    let upstream = format!("kind = \"llamacpp\"\nurl = \"{}\"", engine.url());
    // llama.cpp has one model, which it uses for every requested name.
    let tables = sdk.operations().iter().map(|operation| model(operation.as_str(), &upstream));
    let stage = Stage::new(&tables.collect::<String>());
    let calls = sdk.operations().iter().flat_map(|operation| {
        let name = operation.as_str();
        [false, true].map(|is_stream| json!({"operation": name, "model": name, "stream": is_stream}))
    });
    let before = engine.generated();
    let seen = stage.call(program, stage.server.public, &calls.collect::<Vec<_>>());
    let mut charged = stage.charged();
    for (operation, pair) in sdk.operations().iter().zip(seen.chunks(2)) {
        let [plain, streamed] = pair else { panic!("{pair:?}") };
        assert_eq!(plain, streamed, "{operation:?}");
        let text = plain["text"].as_str().unwrap();
        assert!(text.len() > 16 && plain["error"].is_null() && plain["finish"].is_string(), "{plain}");
        let tokens = |place: usize| plain["tokens"][place].as_i64().unwrap();
        assert!(tokens(0) > 0 && tokens(1) == 16, "{plain}");
        let expected = [2, 2 * tokens(0), 2 * tokens(1)];
        assert_eq!(charged.remove(operation.as_str()), Some(expected), "{operation:?}");
    }
    assert!(charged.is_empty(), "{charged:?}");
    let completion = |seen: &Value| seen["tokens"][1].as_i64().unwrap();
    assert_eq!(engine.generated() - before, seen.iter().map(completion).sum::<i64>());
    stage.close();
}

#[test]
fn openai_python_calls_llamacpp() {
    call(Sdk::OpenaiPython);
}

#[test]
fn openai_node_calls_llamacpp() {
    call(Sdk::OpenaiNode);
}

#[test]
fn anthropic_python_calls_llamacpp() {
    call(Sdk::AnthropicPython);
}
