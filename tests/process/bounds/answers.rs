//! Model answers that no client reads, and log lines about invalid ones.

use std::time::Duration;

use serde_json::{Value, json};

use super::KIB;
use super::flood::resident_mib;
use support::process::{Server, Start, Wire, until};
use support::upstream::{Upstream, json_answer};
use support::world::{Folder, runtime};

const CATALOG: &str = r#"
currency = "USD"

[[models]]
id = "embed-1"
kind = "embeddings"
description = "A model of vectors"
owned_by = "acme"
created = 1704067200
dimension = 8
max_tokens = 100
max_requests_per_min = 1000000
max_concurrent_requests = 1000
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.0000001", completion_tokens = "0" }]
routes = [{ upstream = "engine" }]

[[upstreams]]
id = "engine"
kind = "vllm"
max_concurrent = 1000
"#;

/// The number of answers of 16 MiB that no client reads.
const UNREAD: usize = 24;
/// Maximum growth of memory, in MiB: a third of the 256 MiB that model calls share, and the same for the
/// allocator's reserve. All answers together have 384.
const MAX_MIB: usize = 192;

fn embed(server: &Server, key: &str, input: &str) -> Wire {
    let call = Wire::new(server.public, "POST", "/v1/embeddings");
    call.bearer(key).json(&json!({"model": "embed-1", "input": input}))
}

fn vectors(length: usize) -> Value {
    json!({"data": [{"embedding": "A".repeat(length)}], "usage": {"prompt_tokens": 1, "total_tokens": 1}})
}

#[test]
fn unread_answers_of_one_organization_leave_memory_for_others() {
    let folder = Folder::new();
    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    let [large, small] = [16 * KIB * KIB, 100].map(|length| json_answer(200, &vectors(length)));
    upstream
        .choose(move |request| if request.body["input"] == "large" { large.clone() } else { small.clone() });
    let catalog = folder.0.join("answers.toml");
    std::fs::write(&catalog, format!("{CATALOG}url = \"{}\"\n", upstream.url())).unwrap();
    let server = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()).run();
    let [hostile, other] = ["ada", "bob"].map(|name| server.settle(&server.sign_up(name)).key);
    assert_eq!(embed(&server, &other, "small").send().status, 200);
    let before = resident_mib(&server);
    let unread: Vec<_> = (0..UNREAD).map(|_| embed(&server, &hostile, "large").open()).collect();
    let (mut most, mut steady) = (0, 0);
    assert!(until(|| {
        let now = resident_mib(&server);
        steady = if now > most { 0 } else { steady + 1 };
        most = most.max(now);
        std::thread::sleep(Duration::from_millis(20));
        steady > 50
    }));
    println!("{before} MiB before, {most} MiB with {UNREAD} unread answers of 16 MiB");
    assert!(most > before + 16, "{before} MiB before, {most} MiB then: nothing was sent");
    assert!(most < before + MAX_MIB, "{before} MiB before, {most} MiB then");
    for _ in 0..5 {
        let answer = embed(&server, &other, "small").send();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    // A client that reads its answer gets all of it.
    let mut first = unread.into_iter().next().unwrap();
    let answer = support::process::read_answer(&mut first, true).unwrap();
    assert_eq!((answer.status, answer.json() == vectors(16 * KIB * KIB)), (200, true));
}

/// An upstream's error text may contain a part of a prompt, so it is logged only at level `debug`.
#[test]
fn texts_of_errors_are_not_in_the_log() {
    for (level, is_there) in [("info", false), ("debug", true)] {
        let folder = Folder::new();
        let runtime = runtime();
        let upstream = runtime.block_on(Upstream::start());
        upstream
            .script([json_answer(200, &json!({"error": {"message": "the prompt was MY-SECRET-PROMPT"}}))]);
        let catalog = folder.0.join("answers.toml");
        std::fs::write(&catalog, format!("{CATALOG}url = \"{}\"\n", upstream.url())).unwrap();
        let start = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap());
        let server = start.set("TOLLKEEPER_LOG__LEVEL", level).run();
        let key = server.settle(&server.sign_up("ada")).key;
        assert_eq!(embed(&server, &key, "hi").send().status, 502);
        server.wait_for_log("its answer is an error");
        assert_eq!(server.log().contains("MY-SECRET-PROMPT"), is_there, "{level}: {}", server.log());
    }
}

/// If an upstream reports more parts than tokens, operators need its numbers once, not for each call.
#[test]
fn parts_that_do_not_fit_are_logged_once_per_minute() {
    let folder = Folder::new();
    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    let usage = json!({"prompt_tokens": 10, "total_tokens": 10,
        "prompt_tokens_details": {"audio_tokens": 6, "image_tokens": 8}});
    let answer = json_answer(200, &json!({"data": [{"embedding": "AAAA"}], "usage": usage}));
    upstream.choose(move |_| answer.clone());
    let catalog = folder.0.join("answers.toml");
    std::fs::write(&catalog, format!("{CATALOG}url = \"{}\"\n", upstream.url())).unwrap();
    let server = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap()).run();
    let key = server.settle(&server.sign_up("ada")).key;
    for _ in 0..3 {
        assert_eq!(embed(&server, &key, "hi").send().status, 200);
    }
    // Before a server ends, it waits for the usage of its calls.
    let log = server.stop().log;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("exceed their total")).collect();
    let [line] = lines[..] else { panic!("{log}") };
    for part in ["WARN", "engine", "prompt_tokens=10", "audio_prompt", "image_prompt"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
