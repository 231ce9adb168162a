//! Model calls through the gateway (docs/contract/gateway.md).

mod abilities;
mod call_log;
mod compressed;
mod costs;
mod counters;
mod early;
mod endings;
mod failing_writes;
mod failover;
mod field_lists;
mod fields;
mod golden_counts;
mod golden_prices;
mod headers;
mod leaving;
mod llamacpp;
mod operations;
mod outage;
mod plain;
mod prices;
mod progress;
mod proxies;
mod random;
mod real_servers;
mod refusals;
mod seen;
mod shares;
mod streams;
mod tools;

use serde_json::{Value, json};
use tollkeeper::db::sql;

use support::Database;
use support::books::assert_books;
use support::http::Call;
use support::upstream::Upstream;
use support::world::{Folder, Place, TestUser, World};

/// A world with a catalog of two chat models and an embeddings model. `chat-1` costs 0.000001 per prompt
/// token, half of that per cached token, and 0.00001 per token of the answer; `chat-2` has no routes. A token
/// of an embeddings call costs 0.0000001.
pub struct Scene {
    pub world: World,
    pub upstream: Upstream,
    pub ada: TestUser,
    pub place: Place,
    pub key: String,
}

const MODEL: &str = r#"
currency = "USD"

[[models]]
id = "chat-1"
kind = "chat"
description = "A model"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
context_length = 5000
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [
  { effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.000001", cached_prompt_tokens = "0.0000005", completion_tokens = "0.00001" },
]
ROUTES

[[models]]
id = "embed-1"
kind = "embeddings"
description = "A model of vectors"
owned_by = "acme"
created = 1704067200
dimension = 8
max_tokens = 100
max_requests_per_min = 6000
max_concurrent_requests = 50
prices = [{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0.0000001", completion_tokens = "0" }]
VECTORS

[[models]]
id = "chat-2"
kind = "chat"
description = "A model without routes"
owned_by = "acme"
created = 1704067200
max_tokens = 1000
max_requests_per_min = 6000
max_concurrent_requests = 50
"#;

/// Runs a test on a database, with an upstream of this kind. `more` contains lines of its table. All keys
/// share its cache, so that requests and answers can be compared unchanged; `fields` tests the other case.
pub fn with_upstream(database: Database, kind: &str, more: &str, test: impl AsyncFn(&Scene)) {
    let (kind, more) = (kind.to_owned(), more.to_owned());
    with_catalog(
        database,
        |upstream| {
            let url = upstream.url();
            let routes = "routes = [{ upstream = \"engine\", model = \"org/engine-model\" }]";
            let shared =
                if more.contains("shared_prefix_cache") { "" } else { "shared_prefix_cache = true\n" };
            let upstream = format!(
                "[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\n{shared}{more}\n"
            );
            (routes.to_owned(), upstream)
        },
        test,
    );
}

/// Runs a test on a database. `describe` returns the model's routes and the tables of upstreams.
pub fn with_catalog(
    database: Database,
    describe: impl Fn(&Upstream) -> (String, String),
    test: impl AsyncFn(&Scene),
) {
    with_settings(database, &[], describe, test);
}

/// Like [`with_catalog`], with settings.
pub fn with_settings(
    database: Database,
    settings: &[(&str, &str)],
    describe: impl Fn(&Upstream) -> (String, String),
    test: impl AsyncFn(&Scene),
) {
    // The catalog contains a port that is known only once the upstream listens, which needs the test's
    // runtime.
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    std::fs::write(&file, MODEL.replace("ROUTES", "").replace("VECTORS", "")).unwrap();
    std::fs::write(folder.0.join("engine.key"), "sk-upstream\n").unwrap();
    let settings = [settings, &[("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap())]].concat();
    database.run(&settings, async |world: World| {
        let upstream = Upstream::start().await;
        let (routes, upstreams) = describe(&upstream);
        // TGI has no embeddings, and the costs of chat calls aren't those of embeddings.
        let is_chat = upstreams.contains("\"tgi\"") || routes.contains("cost = ");
        let vectors = if is_chat { "" } else { &routes };
        let catalog = MODEL.replace("ROUTES", &routes).replace("VECTORS", vectors) + &upstreams;
        std::fs::write(&file, catalog).unwrap();
        tollkeeper::catalog::activation::reload(&world.app.catalogs).await.unwrap();
        let ada = world.user("ada").await;
        let place = world.place(&ada, "acme").await;
        let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
        let scene = Scene { world, upstream, ada, place, key };
        test(&scene).await;
        scene.assert_settled().await;
    });
}

impl Scene {
    /// Builds a chat call with the key.
    pub fn chat(&self, body: &Value) -> Call {
        self.call("/v1/chat/completions", body)
    }

    /// Builds a model call with the key. Each call has its own time, so that the ids of calls are in order.
    pub fn call(&self, path: &str, body: &Value) -> Call {
        self.world.clock.advance_ms(1);
        self.world.post(path, body).bearer(&self.key)
    }

    /// Checks that no money is held, no call is open, and the books are right.
    pub async fn assert_settled(&self) {
        let gateway = &self.world.app.gateway;
        for _ in 0..400 {
            if gateway.open_calls() == 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        assert_eq!(gateway.open_calls(), 0, "a call isn't settled");
        let mut tx = self.world.app.db.read().await.unwrap();
        let (held,): (i64,) = sql("SELECT COUNT(*) FROM reservations").one(&mut tx).await.unwrap();
        drop(tx);
        assert_eq!(held, 0, "money is still reserved");
        assert_books(&self.world).await;
    }

    /// Returns the usage events of the gateway: prompt and completion tokens, the oldest first.
    pub async fn used(&self) -> Vec<(i64, i64)> {
        let mut tx = self.world.app.db.read().await.unwrap();
        let text = "SELECT prompt_tokens, completion_tokens FROM usage_events WHERE source = 'gateway' ORDER BY event_id";
        sql(text).all(&mut tx).await.unwrap()
    }
}
