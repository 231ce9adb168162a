//! `tollkeeper upstream check`

use serde_json::{Value, json};

use support::process::Start;
use support::upstream::{Upstream, end_of_body, json_answer, named_event, stream, stream_head};
use support::world::{Folder, runtime};

const MODEL: &str = r#"
currency = "USD"

[[models]]
id = "chat-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
CONTEXT
max_requests_per_min = 60
max_concurrent_requests = 5
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.00001" }]
"#;

fn table(id: &str, kind: &str, url: &str) -> String {
    let url = if url.is_empty() { String::new() } else { format!("url = \"{url}\"\n") };
    format!("[[upstreams]]\nid = \"{id}\"\nkind = \"{kind}\"\n{url}")
}

#[test]
fn upstreams_are_asked_for_their_models() {
    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    upstream.set_models(json!({"data": [{"id": "big/model", "max_model_len": 4096}, {"id": "other"}]}));
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    let start = Start::new(&folder.0);
    let check = |context: &str, routes: &str, upstreams: &str, arguments: &[&str]| {
        let catalog = MODEL.replace("CONTEXT", context);
        std::fs::write(&file, format!("{catalog}routes = [{routes}]\n{upstreams}")).unwrap();
        start.command(&[&["upstream", "check", file.to_str().unwrap()], arguments].concat())
    };
    let vllm = table("vllm-a", "vllm", &upstream.url());
    let good = "{ upstream = \"vllm-a\", model = \"big/model\" }";
    let ended = check("context_length = 4096", good, &vllm, &[]);
    assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(
        ended.stdout.starts_with(&format!("vllm-a (vllm, {}): 2 models, ", upstream.url())),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("): 2 models, ")
            && ended.stdout.contains("\n  big/model, 4096 tokens of context\n  other\n"),
        "{}",
        ended.stdout
    );

    // The output contains the mistake, and how to fix it.
    let wrong = "{ upstream = \"vllm-a\", model = \"small\" }";
    let ended = check("", wrong, &vllm, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("  problem: `chat-1` is routed to `small`, which the upstream doesn't list"),
        "{}",
        ended.stdout
    );
    assert!(ended.log.contains("upstreams with problems: 1 of 1"), "{}", ended.log);
    let ended = check("", good, &vllm, &[]);
    assert!(
        ended.code == Some(0) && ended.stdout.contains("warning: `chat-1` has no `context_length`"),
        "{}",
        ended.stdout
    );
    let ended = check("context_length = 5000", good, &vllm, &[]);
    assert!(
        ended.stdout.contains(
            "warning: `chat-1` has a `context_length` of 5000, but the upstream's `big/model` has a context \
             of 4096"
        ),
        "{}",
        ended.stdout
    );
    let down = table("vllm-a", "vllm", "http://127.0.0.1:9/v1");
    let ended = check("", good, &down, &[]);
    assert!(
        ended.code == Some(1) && ended.stdout.contains("problem: ") && ended.stdout.contains("refused"),
        "{}",
        ended.stdout
    );

    // As JSON, with an upstream that isn't requested, and an upstream that ignores the names of models.
    let llamacpp = table("cpp", "llamacpp", &upstream.url()) + &table("demo", "demo", "");
    let routes = "{ upstream = \"cpp\", model = \"any\" }, { upstream = \"demo\", tier = 1 }";
    let ended = check("", routes, &llamacpp, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&report["ok"], &report["upstreams"][0]["models"][0]),
        (&json!(true), &json!({"id": "big/model", "context_length": 4096}))
    );
    assert_eq!(
        (&report["upstreams"][1]["models"], &report["upstreams"][1]["problems"]),
        (&Value::Null, &json!([]))
    );
    assert_eq!(report["upstreams"][0]["warnings"].as_array().unwrap().len(), 1);

    // Without an argument, the configured file is checked.
    let ended = start.command(&["upstream", "check"]);
    assert!(ended.code == Some(1) && ended.log.contains("tollkeeper upstream check FILE"), "{}", ended.log);
    let configured = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap());
    assert_eq!(configured.command(&["upstream", "check"]).code, Some(0));
}

/// llama.cpp reports contexts in another field, and for a LoRA adapter vLLM reports the context at its base
/// model. A limit must fit into the context.
#[test]
fn contexts_are_found_wherever_servers_say_them() {
    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    upstream.set_models(json!({"data": [
        {"id": "base", "max_model_len": 512},
        {"id": "adapter", "parent": "base", "max_model_len": null},
        {"id": "gguf", "meta": {"n_ctx": 768, "n_ctx_train": 4096}},
    ]}));
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    let start = Start::new(&folder.0);
    for (kind, model, context) in [("vllm", "adapter", 512), ("vllm", "base", 512), ("llamacpp", "gguf", 768)]
    {
        let routes = format!("routes = [{{ upstream = \"engine\", model = \"{model}\" }}]\n");
        let table = table("engine", kind, &upstream.url());
        std::fs::write(&file, MODEL.replace("CONTEXT", "context_length = 2000") + &routes + &table).unwrap();
        let ended = start.command(&["upstream", "check", file.to_str().unwrap()]);
        let smaller = format!(
            "warning: `chat-1` has a `context_length` of 2000, but the upstream's `{model}` has a context of \
             {context}"
        );
        assert!(ended.stdout.contains(&smaller), "{}", ended.stdout);
        let limit =
            format!("allows answers of 1000 tokens, but the upstream's `{model}` has a context of {context}");
        assert_eq!(ended.stdout.contains(&limit), kind == "vllm", "{}", ended.stdout);
    }
    // The same check within a catalog.
    std::fs::write(&file, MODEL.replace("CONTEXT", "context_length = 500")).unwrap();
    let ended = start.command(&["catalog", "check", file.to_str().unwrap()]);
    assert!(
        ended.stdout.contains("its `max_tokens` of 1000 is more than its `context_length` of 500"),
        "{}",
        ended.stdout
    );
}

/// With `--probe` each operation is called, and the outcome shows how it is counted.
#[test]
fn probes_say_how_a_server_counts() {
    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    upstream.set_models(json!({"data": [{"id": "m", "max_model_len": 2000}]}));
    upstream.choose(|request| {
        let is_stream = request.body["stream"] == true;
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4});
        if request.body.get("prompt").is_some() {
            return json_answer(404, &json!({"detail": "Not Found"}));
        }
        if request.body.get("input").is_some() {
            let text = json!({"type": "response.output_text.delta", "delta": "a"});
            let end = json!({"type": "response.completed", "response": {"usage": {"input_tokens": 3, "output_tokens": 1}}});
            let events = [named_event("response.output_text.delta", &text), named_event("response.completed", &end)];
            let steps = [vec![stream_head()], events.to_vec(), vec![end_of_body()]].concat();
            return if is_stream { steps } else { json_answer(200, &json!({"output": [{"content": [{"text": "a"}]}]})) };
        }
        if !is_stream {
            return json_answer(200, &json!({"choices": [{"index": 0, "message": {"content": "a"}}], "usage": usage}));
        }
        let text = json!({"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": usage});
        let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        stream(&[text, stop])
    });
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    let routes = "routes = [{ upstream = \"engine\", model = \"m\" }]\n";
    let catalog = MODEL.replace("CONTEXT", "context_length = 2000") + routes;
    std::fs::write(&file, catalog + &table("engine", "vllm", &upstream.url())).unwrap();
    let start = Start::new(&folder.0);
    let ended = start.command(&["upstream", "check", file.to_str().unwrap(), "--probe"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.log);
    for line in [
        "  chat-1 /v1/chat/completions: counts at the end\n",
        "  chat-1 /v1/chat/completions streamed: counts with each event\n",
        "  chat-1 /v1/completions: refused with 404: Not Found\n",
        "  chat-1 /v1/responses: doesn't count: tokens are estimated\n",
        "  chat-1 /v1/responses streamed: counts at the end\n",
        "  warning: `chat-1`: /v1/responses reports no usage, so tokens are estimated",
    ] {
        assert!(ended.stdout.contains(line), "{line}{}", ended.stdout);
    }
    // The probes are the smallest possible calls.
    assert!(upstream.received().iter().all(|request| {
        let limits = [&request.body["max_tokens"], &request.body["max_output_tokens"]];
        limits.into_iter().any(|limit| *limit == 16)
    }));
    let ended = start.command(&["upstream", "check", file.to_str().unwrap(), "--probe", "--json"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["upstreams"][0]["probes"][0]["outcome"], "counts at the end", "{found}");
}
