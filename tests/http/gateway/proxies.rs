//! Streams through real proxies with the configurations of docs/gateway.md.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::MODEL;
use support::process::{Server, Start, Wire, free_addresses, until};
use support::proxy::{Proxy, is_installed};
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream_head};
use support::world::{Folder, runtime};

/// The size of the largest body.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The service between an upstream and a proxy.
struct Scene {
    _proxy: Proxy,
    front: SocketAddr,
    server: Server,
    /// A key that only this machine may use.
    key: String,
    upstream: Upstream,
    runtime: Runtime,
    _folder: Folder,
}

/// Returns the block of docs/gateway.md in this language, with the addresses of this test.
fn configuration(language: &str, front: SocketAddr, server: &Server) -> String {
    let guide = std::fs::read_to_string("docs/gateway.md").unwrap();
    let block = guide.split(&format!("\n```{language}\n")).nth(1).unwrap().split("\n```").next().unwrap();
    let places = [("127.0.0.1:8000", front), ("127.0.0.1:8080", server.public)];
    places.iter().fold(block.to_owned(), |text, (documented, here)| {
        assert!(text.contains(documented), "{documented} is not in the configuration of {language}");
        text.replace(documented, &here.to_string())
    })
}

fn nginx(folder: &Folder, text: &str, front: SocketAddr) -> Proxy {
    Proxy::nginx(&folder.0, text, front)
}

/// Starts Caddy without its admin interface.
fn caddy(folder: &Folder, text: &str, front: SocketAddr) -> Proxy {
    let file = folder.0.join("Caddyfile");
    std::fs::write(&file, format!("{{\n\tadmin off\n\tauto_https off\n}}\n{text}\n")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
    Proxy::start(command, &folder.0, front)
}

impl Scene {
    fn new(proxy: impl Fn(&Folder, &str, SocketAddr) -> Proxy, language: &str) -> Self {
        let (folder, runtime) = (Folder::new(), runtime());
        let upstream = runtime.block_on(Upstream::start());
        let catalog = folder.0.join("catalog.toml");
        let routes = "routes = [{ upstream = \"engine\" }]";
        let table =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        std::fs::write(&catalog, MODEL.replace("ROUTES", routes).replace("VECTORS", "") + &table).unwrap();
        let server = Start::new(&folder.0)
            .set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap())
            .set("TOLLKEEPER_TRUSTED_PROXIES", "127.0.0.1")
            .run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        let near = json!({"name": "near", "restrictions": {"allowed_ips": ["127.0.0.1"]}});
        let keys = format!("{}/api-keys", place.project_path);
        let key = server.post(&keys, &near).bearer(&ada.access_token).data();
        let key = key["key"].as_str().unwrap().to_owned();
        let (front, _) = free_addresses();
        let proxy = proxy(&folder, &configuration(language, front, &server), front);
        Self { _proxy: proxy, front, server, key, upstream, runtime, _folder: folder }
    }

    /// Builds a call through the proxy, by a client that claims another address.
    fn chat(&self, text: &str, is_stream: bool) -> Wire {
        let body = json!({"model": "chat-1", "stream": is_stream,
            "messages": [{"role": "user", "content": text}]});
        let call = Wire::new(self.front, "POST", "/v1/chat/completions").bearer(&self.key);
        call.header("x-forwarded-for", "192.0.2.1").json(&body)
    }

    /// Begins a stream.
    fn open(&self) -> BufReader<TcpStream> {
        let mut stream = self.chat("hi", true).open();
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
        stream
    }
}

/// Returns the event with the token of this number.
fn word(generated: i64) -> Step {
    event(&json!({
        "choices": [{"index": 0, "delta": {"content": generated.to_string()}, "finish_reason": null}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated},
    }))
}

/// Reads the data of the next event.
fn next_event(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        let count = stream.read_line(&mut line).expect("the next event arrives in time");
        assert!(count > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return data.trim_end().to_owned();
        }
    }
}

/// Checks that each event is passed on immediately: the upstream sends an event only after the client has
/// read the previous one.
fn each_event_passes_at_once(scene: &Scene) {
    let seen = Arc::new(Semaphore::new(0));
    let mut steps = vec![stream_head()];
    for generated in 1..=5 {
        steps.extend([word(generated), Step::AwaitPermit(Arc::clone(&seen))]);
    }
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    steps.extend([event(&last), piece("data: [DONE]\n\n"), end_of_body()]);
    scene.upstream.script([steps]);
    let mut stream = scene.open();
    for generated in 1..=5 {
        let data: Value = serde_json::from_str(&next_event(&mut stream)).unwrap();
        assert_eq!(data["choices"][0]["delta"]["content"], generated.to_string());
        seen.add_permits(1);
    }
    assert!(next_event(&mut stream).contains("\"stop\""));
    assert_eq!(next_event(&mut stream), "[DONE]");
}

fn client_that_leaves_stops_the_upstream(scene: &Scene) {
    scene.upstream.script([vec![stream_head(), word(1), Step::AwaitClose]]);
    let mut stream = scene.open();
    next_event(&mut stream);
    drop(stream);
    scene.runtime.block_on(scene.upstream.left(1));
    let left = "tollkeeper_gateway_calls_total{model=\"chat-1\",outcome=\"client_left\"}";
    assert!(until(|| scene.server.metric(left) == Some(1.0)), "{}", scene.server.log());
}

fn largest_body_passes(scene: &Scene) {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 1});
    scene.upstream.script([json_answer(200, &json!({"choices": [], "usage": usage}))]);
    // Without the text, a body has less than 1,000 bytes.
    let text = "a".repeat(MAX_BODY_BYTES - 1_000);
    let answer = scene.chat(&text, false).send();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let received = scene.upstream.received().pop().unwrap();
    assert!(received.body["messages"][0]["content"] == text, "the body has changed");
}

#[test]
fn streams_pass_nginx() {
    if is_installed("nginx", "nginx-light", "streams through nginx") {
        let scene = Scene::new(nginx, "nginx");
        each_event_passes_at_once(&scene);
        client_that_leaves_stops_the_upstream(&scene);
        largest_body_passes(&scene);
    }
}

#[test]
fn streams_pass_caddy() {
    if is_installed("caddy", "caddy", "streams through Caddy") {
        let scene = Scene::new(caddy, "caddy");
        each_event_passes_at_once(&scene);
        client_that_leaves_stops_the_upstream(&scene);
        largest_body_passes(&scene);
    }
}
