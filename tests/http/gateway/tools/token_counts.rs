//! Counts of the tokens of a message (docs/contract/gateway.md#count-tokens).

use serde_json::json;

use super::{chat, last_body};
use crate::gateway::with_upstream;

use support::upstream::{Received, json_answer};
use support::{Database, on_each_database};

#[on_each_database]
fn tokens_are_counted_by_the_server_or_estimated(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.choose(|request: &Received| {
            assert!(request.head[0].contains("/v1/messages/count_tokens"), "{:?}", request.head);
            json_answer(200, &json!({"input_tokens": 42}))
        });
        let count = |key: &str| {
            scene.world.post("/v1/messages/count_tokens?beta=true", &chat()).header("x-api-key", key)
        };
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 42})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "");
        assert_eq!(last_body(scene)["model"], "org/engine-model");
        // Without money, and without a use of the key's rate.
        let poor = scene.world.place(&scene.ada, "poor").await;
        let limited = json!({"name": "k", "restrictions": {"rate_limit": 1}});
        let (_, poor) = scene.world.key(&scene.ada, &poor, &limited).await;
        for _ in 0..3 {
            assert_eq!(count(&poor).bare().await["input_tokens"], 42);
        }
        // A server that can't: three tokens for the message, and one for its text.
        scene.upstream.choose(|_: &Received| json_answer(404, &json!({"detail": "Not Found"})));
        let answer = count(&scene.key).send().await;
        assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 4})));
        assert_eq!(answer.header("x-tollkeeper-estimated"), "true");
        // Media at an address isn't loaded for a count, here or there.
        let before = scene.upstream.received().len();
        let image = json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}});
        let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": [image]}]});
        let answer = scene.call("/v1/messages/count_tokens", &body).send().await;
        assert_eq!(
            (answer.status, answer.header("x-tollkeeper-estimated")),
            (200, "true"),
            "{}",
            answer.text
        );
        assert_eq!(scene.upstream.received().len(), before);
        // The refusals are those of a message.
        assert_eq!(count("tk_wrong").send().await.status, 401);
        let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "hi"}]});
        let answer = scene.call("/v1/messages/count_tokens", &unknown).send().await;
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
        let (_, key) = scene
            .world
            .key(&scene.ada, &scene.place, &json!({"name": "e", "permissions": ["embeddings"]}))
            .await;
        assert_eq!(count(&key).refused().await, (403, "missing_permission".to_owned()));
        assert_eq!(scene.used().await, []);
    });
}
