//! Parts of a request that upstreams get: fields, tools, media by URL, and the salts of caches.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Scene, with_catalog, with_settings, with_upstream};
use support::twin::Twin;
use support::upstream::{Upstream, end_of_body, event, json_answer, named_event, piece, stream_head};
use support::{Database, on_each_database};

/// Returns a chat with these members.
fn chat(more: &Value) -> Value {
    let mut body =
        json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn answer() -> Value {
    json!({"object": "chat.completion", "model": "org/engine-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 75, "completion_tokens": 1, "total_tokens": 76, "prompt_tokens_details": {"cached_tokens": 74}}})
}

/// Sends a call that is refused; returns the code and the field.
async fn refused(scene: &Scene, path: &str, body: &Value) -> (String, Value) {
    let response = scene.call(path, body).send().await;
    assert_eq!(response.status, 400, "{}", response.text);
    (response.code(), response.json()["error"]["param"].clone())
}

#[on_each_database]
fn fields_of_a_call_are_those_that_the_upstream_may_get(database: Database) {
    let lists = "allow_fields = [\"service_tier\", \"keep_alive\"]\ndeny_fields = [\"seed\"]\nshared_prefix_cache = true";
    with_upstream(database, "openai", lists, async |scene| {
        let path = "/v1/chat/completions";
        for (more, param) in [
            (json!({"priority": 1}), "priority"),
            (json!({"seed": 1}), "seed"),
            // A server that ignores case reads these as fields that are checked here.
            (json!({"Model": "chat-2"}), "Model"),
            (json!({"MAX_TOKENS": 90_000}), "MAX_TOKENS"),
            (json!({"N": 50}), "N"),
            (json!({"max_to\u{212a}ens": 90_000}), "max_to\u{212a}ens"),
            (json!({"\u{17f}tream": true}), "\u{17f}tream"),
            (json!({"tools": [{"type": "web_search"}]}), "tools.web_search"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}),
                "messages.file_id",
            ),
        ] {
            let (code, named) = refused(scene, path, &chat(&more)).await;
            assert_eq!((code.as_str(), named), ("unsupported_parameter", json!(param)), "{more}");
        }
        assert!(scene.upstream.received().is_empty(), "none of these is asked for");
        scene.upstream.script([json_answer(200, &answer())]);
        let body = chat(&json!({"service_tier": "priority", "keep_alive": 5}));
        let response = scene.call(path, &body).send().await;
        assert_eq!(response.status, 200, "{}", response.text);
        let received = &scene.upstream.received()[0].body;
        assert_eq!((&received["service_tier"], &received["keep_alive"]), (&json!("priority"), &json!(5)));
    });
}

#[on_each_database]
fn a_call_moves_on_to_an_upstream_that_takes_its_fields(database: Database) {
    with_catalog(
        database,
        |upstream| {
            let routes =
                "routes = [{ upstream = \"provider\" }, { upstream = \"own\", tier = 1 }]".to_owned();
            let table = |id: &str, kind: &str| {
                format!("[[upstreams]]\nid = \"{id}\"\nkind = \"{kind}\"\nurl = \"{}\"\n", upstream.url())
            };
            (routes, table("provider", "openai") + &table("own", "tgi"))
        },
        async |scene| {
            scene.upstream.script([json_answer(200, &answer())]);
            let response = scene.chat(&chat(&json!({"ignore_eos": true}))).send().await;
            assert_eq!(response.status, 200, "{}", response.text);
            assert_eq!(scene.upstream.received().len(), 1);
        },
    );
}

#[on_each_database]
fn search_that_codex_offers_does_not_reach_a_server_of_ones_own(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let done = json!({"object": "response", "model": "org/engine-model", "status": "completed", "output": [],
            "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4}});
        scene.upstream.script([json_answer(200, &done)]);
        let function = json!({"type": "function", "name": "shell", "parameters": {}});
        let body = json!({"model": "chat-1", "input": "hi", "tools": [function, {"type": "web_search"}], "tool_choice": "auto"});
        let response = scene.call("/v1/responses", &body).send().await;
        assert_eq!(response.status, 200, "{}", response.text);
        assert_eq!(scene.upstream.received()[0].body["tools"], json!([function]));
        let forced = json!({"model": "chat-1", "input": "hi", "tools": [{"type": "web_search"}], "tool_choice": "required"});
        let expected = ("unsupported_parameter".to_owned(), json!("tools.web_search"));
        assert_eq!(refused(scene, "/v1/responses", &forced).await, expected);
    });
}

/// Starts a server of one image; returns the image's URL and the number of its requests.
async fn image_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/a.png?secret=word", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4_096];
            drop(stream.read(&mut request).await);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 4\r\n\r\n\x89PNG";
            stream.write_all(answer).await.ok();
        }
    });
    (url, asked)
}

fn with_image(url: &str) -> Value {
    let part = json!({"type": "image_url", "image_url": {"url": url}});
    chat(&json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, part]}]}))
}

/// Returns a catalog with two upstreams of one server, so that a call that the first one refuses is sent to
/// the second one.
fn twice(keys: &'static str) -> impl Fn(&Upstream) -> (String, String) {
    move |upstream| {
        let table = |id: &str| {
            format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{}\"\n{keys}\n", upstream.url())
        };
        (
            "routes = [{ upstream = \"a\" }, { upstream = \"b\", tier = 1 }]".to_owned(),
            table("a") + &table("b"),
        )
    }
}

#[on_each_database]
fn media_are_loaded_once_and_reach_the_upstream_inline(database: Database) {
    let settings = [("TOLLKEEPER_GATEWAY__ALLOW_PRIVATE_MEDIA", "true")];
    with_settings(database, &settings, twice(""), async |scene| {
        let (url, asked) = image_server().await;
        // A call without a valid key doesn't load the image.
        let stranger =
            scene.world.post("/v1/chat/completions", &with_image(&url)).bearer("tk_unknown").send().await;
        assert_eq!((stranger.status, asked.load(Ordering::SeqCst)), (401, 0));
        scene.upstream.script([json_answer(503, &json!({})), json_answer(200, &answer())]);
        let response = scene.chat(&with_image(&url)).send().await;
        assert_eq!(response.status, 200, "{}", response.text);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let received = scene.upstream.received();
        assert_eq!(received.len(), 2);
        for request in received {
            assert_eq!(
                request.body["messages"][0]["content"][1]["image_url"]["url"],
                "data:image/png;base64,iVBORw=="
            );
            assert!(!request.body.to_string().contains("secret"), "{}", request.body);
        }
    });
}

#[on_each_database]
fn media_of_private_networks_are_refused_without_a_word_about_them(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let (url, asked) = image_server().await;
        let mut told = Vec::new();
        for url in [
            url.as_str(),
            "http://127.0.0.1:1/",
            "https://no-such-host.invalid/",
            "http://169.254.169.254/latest",
        ] {
            let response = scene.chat(&with_image(url)).send().await;
            assert_eq!(
                (response.status, response.code().as_str()),
                (400, "invalid_request"),
                "{}",
                response.text
            );
            told.push(response.json()["error"].clone());
        }
        assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
        for url in ["file:///etc/passwd", "/etc/passwd.png", "ftp://example.com/a.png"] {
            let (code, param) = refused(scene, "/v1/chat/completions", &with_image(url)).await;
            assert_eq!((code.as_str(), param), ("unsupported_parameter", json!("messages")));
        }
        assert_eq!((asked.load(Ordering::SeqCst), scene.upstream.received().len()), (0, 0));
    });
}

#[on_each_database]
fn an_upstream_may_refuse_addresses_or_load_them_itself(database: Database) {
    with_upstream(database, "vllm", "media_urls = \"refuse\"", async |scene| {
        let url = "https://example.com/a.png";
        let (code, param) = refused(scene, "/v1/chat/completions", &with_image(url)).await;
        assert_eq!((code.as_str(), param), ("unsupported_parameter", json!("messages")));
    });
    with_upstream(database, "vllm", "media_urls = \"pass\"", async |scene| {
        scene.upstream.script([json_answer(200, &answer())]);
        let body = with_image("https://example.com/a.png");
        assert_eq!(scene.chat(&body).send().await.status, 200);
        assert_eq!(scene.upstream.received()[0].body["messages"], body["messages"]);
    });
}

#[on_each_database]
fn caches_are_kept_apart_by_organization(database: Database) {
    with_catalog(database, twice(""), async |scene| {
        let bob = scene.world.user("bob").await;
        let place = scene.world.place(&bob, "other").await;
        let (_, key) = scene.world.key(&bob, &place, &json!({"name": "k"})).await;
        let completed = json!({"object": "response", "model": "m", "status": "completed", "output": [],
            "usage": {"input_tokens": 75, "input_tokens_details": {"cached_tokens": 74}, "output_tokens": 1, "total_tokens": 76}});
        scene.upstream.script([
            json_answer(200, &answer()),
            json_answer(200, &completed),
            json_answer(200, &answer()),
        ]);
        let first = scene.chat(&chat(&json!({}))).send().await.json();
        let input = json!({"model": "chat-1", "input": "hi"});
        let second = scene.call("/v1/responses", &input).send().await.json();
        let third = scene.world.post("/v1/chat/completions", &chat(&json!({}))).bearer(&key).send().await;
        assert_eq!(third.status, 200, "{}", third.text);
        // Another replica has the same salts, so a cache is used by the calls of both.
        let [_, replica] = Twin::both(&scene.world).await;
        let fourth = replica.post("/v1/chat/completions", &chat(&json!({}))).bearer(&key).send().await;
        assert_eq!(fourth.status, 200, "{}", fourth.text);
        let salts: Vec<_> =
            scene.upstream.received().iter().map(|request| request.body["cache_salt"].clone()).collect();
        let [ada, again, bob, at_replica] = salts.as_slice() else { panic!("{salts:?}") };
        assert!(ada == again && ada != bob && ada.as_str().unwrap().len() == 43, "{salts:?}");
        assert_eq!(bob, at_replica);
        // The contents of the client's own cache aren't secret.
        assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 74);
        assert_eq!(second["usage"]["input_tokens_details"]["cached_tokens"], 74);
        let own = chat(&json!({"cache_salt": ada}));
        let expected = ("unsupported_parameter".to_owned(), json!("cache_salt"));
        assert_eq!(refused(scene, "/v1/chat/completions", &own).await, expected);
    });
}

#[on_each_database]
fn cached_tokens_of_a_common_cache_are_for_the_books_only(database: Database) {
    with_catalog(database, tables("llamacpp", ""), async |scene| {
        let timings = json!({"cache_n": 74, "prompt_n": 1, "predicted_n": 1});
        let mut whole = answer();
        whole["timings"] = timings.clone();
        let chunk = json!({"model": "m", "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}], "timings": timings});
        let last = json!({"model": "m", "choices": [], "usage": answer()["usage"], "timings": timings});
        let message = json!({"type": "message", "model": "m", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "cache_read_input_tokens": 74, "output_tokens": 1}});
        let start = json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1, "cache_read_input_tokens": 74, "output_tokens": 0}}});
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}});
        let steps =
            vec![stream_head(), event(&chunk), event(&last), piece("data: [DONE]\n\n"), end_of_body()];
        let messages = vec![
            stream_head(),
            named_event("message_start", &start),
            named_event("message_delta", &delta),
            named_event("message_stop", &json!({"type": "message_stop"})),
            end_of_body(),
        ];
        scene.upstream.script([json_answer(200, &whole), steps, json_answer(200, &message), messages]);
        let asked =
            json!({"timings_per_token": true, "stream": true, "stream_options": {"include_usage": true}});
        let plain = scene.chat(&chat(&json!({"timings_per_token": true}))).send().await;
        let streamed = scene.chat(&chat(&asked)).send().await;
        let message = scene.call("/v1/messages", &chat(&json!({}))).send().await;
        let message_stream = scene.call("/v1/messages", &chat(&json!({"stream": true}))).send().await;
        for response in [&plain, &streamed, &message, &message_stream] {
            assert_eq!(response.status, 200, "{}", response.text);
            assert!(
                !response.text.contains("74") && !response.text.contains("prompt_n"),
                "{}",
                response.text
            );
        }
        assert_eq!(plain.json()["timings"], json!({"predicted_n": 1}));
        assert_eq!(plain.json()["usage"]["prompt_tokens"], 75);
        assert_eq!(
            message.json()["usage"],
            json!({"input_tokens": 75, "cache_read_input_tokens": 0, "output_tokens": 1})
        );
        assert!(message_stream.text.contains("\"input_tokens\":75"), "{}", message_stream.text);
        // The usage events contain the cached tokens.
        assert_eq!(cached(scene).await, [Some(74); 4]);
    });
    with_catalog(database, tables("llamacpp", "shared_prefix_cache = true"), async |scene| {
        scene.upstream.script([json_answer(200, &answer())]);
        let told = scene.chat(&chat(&json!({}))).send().await.json();
        assert_eq!(told["usage"], answer()["usage"]);
    });
    with_catalog(database, tables("vllm", "shared_prefix_cache = true"), async |scene| {
        scene.upstream.script([json_answer(200, &answer())]);
        assert_eq!(scene.chat(&chat(&json!({}))).send().await.json()["usage"], answer()["usage"]);
        assert_eq!(scene.upstream.received()[0].body.get("cache_salt"), None);
    });
}

/// Returns a function for a catalog with one upstream that has these keys.
fn tables(kind: &'static str, keys: &'static str) -> impl Fn(&Upstream) -> (String, String) {
    move |upstream| {
        let url = upstream.url();
        let table = format!("[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\n{keys}\n");
        ("routes = [{ upstream = \"engine\" }]".to_owned(), table)
    }
}

/// Returns the cached tokens of every event.
async fn cached(scene: &Scene) -> Vec<Option<i64>> {
    let mut tx = scene.world.app.db.read().await.unwrap();
    let text = "SELECT cached_prompt_tokens FROM usage_events WHERE source = 'gateway' ORDER BY event_id";
    let rows: Vec<(Option<i64>,)> = tollkeeper::db::sql(text).all(&mut tx).await.unwrap();
    rows.into_iter().map(|(cached,)| cached).collect()
}
