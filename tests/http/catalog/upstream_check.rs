//! `tollkeeper upstream check`

use serde_json::{Value, json};

use support::process::Start;
use support::upstream::Upstream;
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

    // What is wrong is named, with the way out.
    let wrong = "{ upstream = \"vllm-a\", model = \"small\" }";
    let ended = check("", wrong, &vllm, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("  problem: `chat-1` is routed to its `small`, which it doesn't list"),
        "{}",
        ended.stdout
    );
    assert!(ended.log.contains("upstreams with problems: 1 of 1"), "{}", ended.log);
    let ended = check("", good, &vllm, &[]);
    assert!(
        ended.code == Some(0) && ended.stdout.contains("warning: `chat-1` has no context_length"),
        "{}",
        ended.stdout
    );
    let ended = check("context_length = 5000", good, &vllm, &[]);
    assert!(
        ended
            .stdout
            .contains("warning: `chat-1` has a context_length of 5000, and `big/model` one of 4096 there"),
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

    // As JSON, with an upstream that isn't asked, and one that ignores names.
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

    // Without a file the configured one is checked.
    let ended = start.command(&["upstream", "check"]);
    assert!(ended.code == Some(1) && ended.log.contains("tollkeeper upstream check FILE"), "{}", ended.log);
    let configured = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap());
    assert_eq!(configured.command(&["upstream", "check"]).code, Some(0));
}
