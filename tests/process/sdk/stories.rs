//! Every possible end of a call, from the point of view of programs that use the official SDKs. A table lists
//! the failures of the upstream and the expected cost of each call.

mod answers;
mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tollkeeper::app::App;
use tollkeeper::billing::audit;
use tollkeeper::clock::Clock;
use tollkeeper::db::sql;
use tollkeeper::ids::ApiKeyId;

use answers::SECRETS;
use support::books::assert_books_of;
use support::node::node;
use support::process::{Account, Place, Server, Start, run_to_end};
use support::python::python;
use support::upstream::{Received, Upstream};
use support::world::{Folder, runtime};
use table::Story;

/// An operation that a program calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Chat,
    Completions,
    Responses,
    Messages,
}

impl Operation {
    const ALL: &[Self] = &[Self::Chat, Self::Completions, Self::Responses, Self::Messages];

    /// Returns the operation's name in the programs of `tests/sdk`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// An official SDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sdk {
    OpenaiPython,
    OpenaiNode,
    AnthropicPython,
}

impl Sdk {
    /// Returns the program that makes calls with the SDK, without its argument, or `None` if the SDK isn't
    /// installed.
    pub fn program(self) -> Option<Command> {
        let (mut program, file) = match self {
            Self::OpenaiPython => {
                (python("openai", "openai", "the OpenAI SDK for Python")?, "openai_stories.py")
            }
            Self::OpenaiNode => (node("openai", "the OpenAI SDK for Node")?, "openai_stories.cjs"),
            Self::AnthropicPython => {
                (python("anthropic", "anthropic", "the Anthropic SDK for Python")?, "anthropic_stories.py")
            }
        };
        program.arg(format!("{}/tests/sdk/{file}", env!("CARGO_MANIFEST_DIR")));
        Some(program)
    }

    pub const fn operations(self) -> &'static [Operation] {
        match self {
            Self::OpenaiPython | Self::OpenaiNode => {
                &[Operation::Chat, Operation::Completions, Operation::Responses]
            }
            Self::AnthropicPython => &[Operation::Messages],
        }
    }

    /// Returns the error of a stream that is cut off: its class, its status and its code.
    fn cut(self) -> Value {
        match self {
            Self::OpenaiPython | Self::OpenaiNode => json!(["APIError", null, "upstream_cut"]),
            Self::AnthropicPython => json!(["APIStatusError", 200, "upstream_cut"]),
        }
    }
}

/// A server, and a project with a key that calls the server's models.
pub struct Stage {
    _folder: Folder,
    start: Start,
    pub server: Server,
    ada: Account,
    place: Place,
}

impl Stage {
    /// Starts a server with these models and upstreams.
    pub fn new(tables: &str) -> Self {
        let folder = Folder::new();
        let catalog = folder.0.join("catalog.toml");
        std::fs::write(&catalog, format!("currency = \"USD\"\n{tables}")).unwrap();
        let start = Start::new(&folder.0).set("TOLLKEEPER_CATALOG_FILE", catalog.to_str().unwrap());
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        Self { _folder: folder, start, server, ada, place }
    }

    /// Makes calls to this address. Returns the program's view of each.
    pub fn call(&self, mut program: Command, address: SocketAddr, calls: &[Value]) -> Vec<Value> {
        let base_url = format!("http://{address}/v1");
        program.arg(json!({"base_url": base_url, "key": self.place.key, "stories": calls}).to_string());
        let ended = run_to_end(program);
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.log);
        let seen: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(seen.len(), calls.len());
        seen
    }

    /// Returns the charged requests, prompt tokens and completion tokens, by model.
    pub fn charged(&self) -> BTreeMap<String, [i64; 3]> {
        // A run may begin in one month and end in the next.
        let from = ApiKeyId::parse(&self.place.key_id).unwrap().created_at();
        let path = format!("{}/usage?group_by=month,model&start_date={from}", self.place.project_path);
        let report = self.server.get(&path).bearer(&self.ada.access_token).data();
        let mut charged: BTreeMap<String, [i64; 3]> = BTreeMap::new();
        for row in report["usage"].as_array().unwrap() {
            let model = charged.entry(row["model"].as_str().unwrap().to_owned()).or_default();
            let counts = ["/chat/requests", "/chat/tokens/prompt", "/chat/tokens/completion"];
            for (sum, count) in model.iter_mut().zip(counts) {
                *sum += row.pointer(count).unwrap().as_i64().unwrap();
            }
        }
        charged
    }

    /// Stops the server. Checks that every call was settled, and that the books are correct.
    pub fn close(self) {
        let log = self.server.stop().log;
        // An upstream without a path or a model is the operator's mistake.
        let is_catalog = |line: &str| line.contains("model_not_served") || line.contains("upstream check");
        let errors: Vec<_> =
            log.lines().filter(|line| line.contains(" ERROR ") && !is_catalog(line)).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        runtime().block_on(async {
            let app = App::new(self.start.config(), Clock::System).unwrap();
            app.boot().await.unwrap();
            let held: Vec<(String,)> =
                sql("SELECT id FROM reservations").all(&mut app.db.read().await.unwrap()).await.unwrap();
            assert!(held.is_empty(), "money is still reserved: {held:?}");
            assert_books_of(&app).await;
            let drifts = audit::check(&app.billing, None).await.unwrap().drifts;
            assert!(drifts.is_empty(), "{drifts:#?}");
        });
    }
}

/// Returns the catalog's tables for a model and its upstream, which has the same id.
pub fn model(id: &str, upstream: &str) -> String {
    format!(
        r#"
[[models]]
id = "{id}"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
context_length = 4096
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.00001" }}]
routes = [{{ upstream = "{id}" }}]

[[upstreams]]
id = "{id}"
{upstream}
"#
    )
}

/// A proxy that forwards connections to a server, and records everything that the server sends.
struct Tap {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, sent) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let shared = Arc::clone(&sent);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(pass_on(client, server, Arc::clone(&shared)));
            }
        });
        Self { address, sent }
    }

    /// Returns the server's output so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }
}

async fn pass_on(client: TcpStream, server: TcpStream, sent: Arc<Mutex<Vec<u8>>>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let questions = async {
        drop(copy(&mut from_client, &mut to_server).await);
        drop(to_server.shutdown().await);
    };
    let answers = async {
        let mut bytes = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            sent.lock().unwrap().extend_from_slice(&bytes[..count]);
            if to_client.write_all(&bytes[..count]).await.is_err() {
                break;
            }
        }
        drop(to_client.shutdown().await);
    };
    tokio::join!(questions, answers);
}

/// Runs every story with an SDK.
fn tell(sdk: Sdk) {
    let Some(program) = sdk.program() else { return };
    let stories = Arc::new(table::stories());
    let of_story = |story| sdk.operations().iter().map(move |operation| (story, *operation));
    let told = stories.iter().flat_map(of_story);
    let told: Vec<(&Story, Operation)> =
        told.filter(|(story, operation)| story.operations.contains(operation)).collect();

    let runtime = runtime();
    let upstream = runtime.block_on(Upstream::start());
    let (known, address) = (Arc::clone(&stories), upstream.address.clone());
    upstream.choose(move |received| {
        let of_story = |story| Operation::ALL.iter().map(move |operation| (story, *operation));
        let mut all = known.iter().flat_map(of_story);
        let asked =
            |(story, operation): &(&Story, Operation)| received.body["model"] == story.model(*operation);
        let (story, operation) = all.find(asked).unwrap();
        story.answer(operation, received, &address)
    });
    let tables = told.iter().map(|(story, operation)| {
        let upstream = format!("kind = \"vllm\"\nurl = \"{}\"\n{}", upstream.url(), story.settings);
        model(&story.model(*operation), &upstream)
    });
    let stage = Stage::new(&tables.collect::<String>());
    let tap = runtime.block_on(Tap::start(stage.server.public));

    let calls: Vec<_> = told.iter().flat_map(|told| std::iter::repeat_n(*told, told.0.calls)).collect();
    let asked = calls.iter().map(|(story, operation)| {
        json!({"operation": operation.as_str(), "model": story.model(*operation), "stream": story.is_stream})
    });
    let seen = stage.call(program, tap.address, &asked.collect::<Vec<_>>());

    let (mut wrong, mut charged) = (Vec::new(), stage.charged());
    for ((story, operation), seen) in calls.iter().zip(&seen) {
        let expected = story.outcome(sdk, *operation).seen;
        if *seen != expected {
            wrong.push(format!("{}: {seen} is seen, and not {expected}", story.model(*operation)));
        }
    }
    for (story, operation) in &told {
        let calls = story.calls as i64;
        let expected = story.outcome(sdk, *operation).charged;
        let expected = expected.map(|(prompt, completion)| [calls, calls * prompt, calls * completion]);
        let found = charged.remove(&story.model(*operation));
        if found != expected {
            wrong.push(format!("{}: {found:?} is charged, and not {expected:?}", story.model(*operation)));
        }
    }
    if !wrong.is_empty() || !charged.is_empty() {
        let log = stage.server.log();
        let warnings: Vec<_> = log.lines().filter(|line| !line.contains(" INFO ")).collect();
        panic!("{}\nalso charged: {charged:?}\n{}", wrong.join("\n"), warnings.join("\n"));
    }
    assert_nothing_leaks(&tap.text(), &upstream.address);
    assert_connections_were_closed(&upstream.received());
    stage.close();
}

/// Checks that clients got the message of a refusal, and nothing else from the upstream.
fn assert_nothing_leaks(sent: &str, address: &str) {
    for secret in SECRETS.into_iter().chain([address]) {
        if let Some(at) = sent.find(secret) {
            let before = String::from_utf8_lossy(&sent.as_bytes()[at.saturating_sub(500)..at]);
            panic!("{secret} was revealed after {before}");
        }
    }
    for words in ["Too hot for ", "temperature: too hot for "] {
        assert!(sent.contains(words), "{words}");
    }
}

/// Checks that calls arrived on idle connections that were then closed. Otherwise the story would test
/// nothing.
fn assert_connections_were_closed(received: &[Received]) {
    let is_closed = |received: &&Received| {
        let is_of_story = received.body["model"].as_str().unwrap().ends_with("idle-connections-are-closed");
        is_of_story && received.earlier > 0
    };
    assert_ne!(received.iter().filter(is_closed).count(), 0);
}

#[test]
fn openai_python_sees_every_end() {
    tell(Sdk::OpenaiPython);
}

#[test]
fn openai_node_sees_every_end() {
    tell(Sdk::OpenaiNode);
}

#[test]
fn anthropic_python_sees_every_end() {
    tell(Sdk::AnthropicPython);
}
