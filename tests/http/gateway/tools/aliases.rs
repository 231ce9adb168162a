//! Aliases of models (docs/contract/models.md#aliases).

use serde_json::json;
use tollkeeper::db::sql;

use super::{answer_all, chat, last_body, message, with_model};

use support::upstream::{Received, json_answer, stream};
use support::{Database, on_each_database};

#[on_each_database]
fn aliases_are_called_and_charged_as_their_model(database: Database) {
    with_model(database, "aliases = [\"gpt-5\", \"claude-sonnet-4-5\"]", async |scene| {
        answer_all(scene);
        let mut body = message();
        body["model"] = json!("claude-sonnet-4-5");
        let answer = scene.call("/v1/messages", &body).bare().await;
        assert_eq!(answer["model"], "claude-sonnet-4-5");
        assert_eq!(last_body(scene)["model"], "org/engine-model");
        // A key that is restricted to the model has its aliases, and no other.
        let one = json!({"name": "one", "restrictions": {"models": ["tool-1"]}});
        let (_, one) = scene.world.key(&scene.ada, &scene.place, &one).await;
        let other = json!({"name": "other", "restrictions": {"models": ["chat-2"]}});
        let (_, other) = scene.world.key(&scene.ada, &scene.place, &other).await;
        let mut body = chat();
        body["model"] = json!("gpt-5");
        scene.world.post("/v1/chat/completions", &body).bearer(&one).bare().await;
        let refused = scene.world.post("/v1/chat/completions", &body).bearer(&other).refused().await;
        assert_eq!(refused, (403, "model_not_allowed".to_owned()));
        let by_alias = json!({"name": "alias", "restrictions": {"models": ["gpt-5"]}});
        let path = format!("{}/api-keys", scene.place.project_path());
        let refused = scene.world.post(&path, &by_alias).bearer(&scene.ada.access_token).send().await;
        assert_eq!(refused.status, 400, "restrictions contain ids of models: {}", refused.text);
        // Usage that another server reports under an alias is the model's as well.
        let (key_id, key) = scene.world.key(&scene.ada, &scene.place, &json!({"name": "reported"})).await;
        let question = json!({"credential": key, "operation": "chat", "model": "gpt-5", "reserve": false});
        let decision = scene.world.ask("/service/v1/authorize", &question).bare().await;
        assert_eq!((&decision["allowed"], &decision["model"]), (&json!(true), &json!("gpt-5")));
        let event = json!({"id": "1", "source": "own", "time": scene.world.clock.now().to_string(), "api_key_id": key_id,
            "model": "gpt-5", "kind": "chat", "prompt_tokens": 5, "completion_tokens": 6});
        for expected in ["accepted", "duplicate"] {
            let results = scene.world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
            assert_eq!(results["results"][0]["status"], expected, "{results}");
        }
        let mut tx = scene.world.app.db.read().await.unwrap();
        let text = "SELECT model, prompt_tokens FROM usage_events ORDER BY prompt_tokens";
        let used: Vec<(String, i64)> = sql(text).all(&mut tx).await.unwrap();
        drop(tx);
        assert_eq!(used, [1, 1, 5].map(|tokens| ("tool-1".to_owned(), tokens)));
        // They are listed where that is asked for.
        let ids = async |path: &str| {
            let list = scene.world.get(path).bearer(&scene.key).bare().await;
            let data = list["data"].as_array().unwrap().clone();
            data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids("/v1/models").await, ["chat-1", "embed-1", "chat-2", "tool-1"]);
        let with_aliases = ["chat-1", "embed-1", "chat-2", "tool-1", "gpt-5", "claude-sonnet-4-5"];
        assert_eq!(ids("/v1/models?aliases=true").await, with_aliases);
        let read = |key: &str| scene.world.get("/v1/models/gpt-5").bearer(key);
        let model = read(&one).bare().await;
        assert_eq!((&model["id"], &model["root"]), (&json!("gpt-5"), &json!("tool-1")));
        assert_eq!(read(&other).refused().await, (403, "model_not_allowed".to_owned()));
    });
}

#[on_each_database]
fn streams_and_counts_have_the_alias_as_their_model(database: Database) {
    with_model(database, "aliases = [\"gpt-5\"]", async |scene| {
        scene.upstream.choose(|request: &Received| {
            if request.head[0].contains("/count_tokens") {
                return json_answer(200, &json!({"input_tokens": 42}));
            }
            let chunk = |delta: serde_json::Value, end: Option<&str>| {
                json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "org/engine-model",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
            };
            stream(&[chunk(json!({"content": "a"}), None), chunk(json!({}), Some("stop"))])
        });
        let mut body = chat();
        body["model"] = json!("gpt-5");
        let counted = scene.call("/v1/messages/count_tokens", &body).bare().await;
        assert_eq!(
            (&counted["input_tokens"], &last_body(scene)["model"]),
            (&json!(42), &json!("org/engine-model"))
        );
        body["stream"] = json!(true);
        let answer = scene.chat(&body).send().await;
        assert_eq!(answer.text.matches("\"model\":\"gpt-5\"").count(), 2, "{}", answer.text);
        assert!(!answer.text.contains("engine-model") && !answer.text.contains("tool-1"), "{}", answer.text);
    });
}

#[on_each_database]
fn aliases_share_the_rate_of_their_model(database: Database) {
    with_model(database, "aliases = [\"gpt-5\"]\nmax_requests_per_min = 2", async |scene| {
        answer_all(scene);
        let call = |name: &str| {
            let mut body = chat();
            body["model"] = json!(name);
            scene.chat(&body)
        };
        call("gpt-5").bare().await;
        call("tool-1").bare().await;
        for name in ["gpt-5", "tool-1"] {
            assert_eq!(call(name).refused().await, (429, "model_rate_limited".to_owned()), "{name}");
        }
    });
}
