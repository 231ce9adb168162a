//! Costs of calls on their routes (docs/operations.md#costs-and-margins).

use serde_json::{Value, json};
use tollkeeper::db::sql;

use super::{Scene, with_catalog};
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream_head};
use support::{Database, on_each_database};

/// Returns two routes: a cheap route that also has a price per call, and an expensive route.
fn two_costs(upstream: &Upstream) -> (String, String) {
    let routes = r#"
[[models.routes]]
upstream = "a"
model = "m-a"
cost = { prompt = "0.0000004", cached_prompt = "0.0000001", completion = "0.000002", request = "0.001" }

[[models.routes]]
upstream = "b"
model = "m-b"
tier = 1
cost = { prompt = "0.000002", completion = "0.00002" }
"#;
    let table =
        |id: &str| format!("[[upstreams]]\nid = \"{id}\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
    (routes.to_owned(), table("a") + &table("b"))
}

fn body(is_stream: bool) -> Value {
    json!({"model": "chat-1", "stream": is_stream, "messages": [{"role": "user", "content": "hi"}]})
}

fn plain(prompt: i64, cached: i64, completion: i64) -> Vec<Step> {
    let details = json!({"cached_tokens": cached});
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, "prompt_tokens_details": details});
    json_answer(200, &json!({"choices": [], "usage": usage}))
}

fn stream(prompt: i64, completion: i64) -> Vec<Step> {
    let last = json!({
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    });
    vec![stream_head(), event(&last), piece("data: [DONE]\n\n"), end_of_body()]
}

/// A row of costs: the model and its upstream; then calls, prompt and completion tokens, list price and cost
/// in pico.
type Costs = (String, String);

async fn costs(scene: &Scene) -> Vec<Costs> {
    let mut tx = scene.world.app.db.read().await.unwrap();
    let text = "SELECT model || ' ' || upstream,
                    requests || ' ' || prompt_tokens || ' ' || completion_tokens || ' ' || amount_pico || ' ' || cost_pico
                FROM daily_costs WHERE amount_whole = 0 AND cost_whole = 0 ORDER BY upstream";
    sql(text).all(&mut tx).await.unwrap()
}

fn row(upstream: &str, [calls, prompt, completion]: [i64; 3], amount: i64, cost: i64) -> Costs {
    (format!("chat-1 {upstream}"), format!("{calls} {prompt} {completion} {amount} {cost}"))
}

#[on_each_database]
fn call_costs_what_the_route_costs_that_has_answered(database: Database) {
    with_catalog(database, two_costs, async |scene: &Scene| {
        scene.upstream.script([plain(10, 4, 5)]);
        scene.chat(&body(false)).bare().await;
        // 6 x 1,000,000 + 4 x 500,000 + 5 x 10,000,000 pico, at the cost of
        // 6 x 400,000 + 4 x 100,000 + 5 x 2,000,000 + 1 x 1,000,000,000.
        assert_eq!(costs(scene).await, [row("a", [1, 10, 5], 58_000_000, 1_012_800_000)]);
        // The first upstream is too busy, and costs nothing:
        // 1,000,000 + 10,000,000 at 2,000,000 + 20,000,000.
        scene.upstream.script([json_answer(503, &json!({})), plain(1, 0, 1)]);
        scene.chat(&body(false)).bare().await;
        // A stream: 9 x 1,000,000 + 3 x 10,000,000 at 9 x 400,000 + 3 x 2,000,000 + 1,000,000,000.
        scene.upstream.script([stream(9, 3)]);
        assert_eq!(scene.chat(&body(true)).send().await.status, 200);
        scene.assert_settled().await;
        let expected =
            [row("a", [2, 19, 8], 97_000_000, 2_022_400_000), row("b", [1, 1, 1], 11_000_000, 22_000_000)];
        assert_eq!(costs(scene).await, expected);
        // Calls that cost nothing: no upstream answers, or one refuses.
        for script in [vec![json_answer(503, &json!({})); 2], vec![json_answer(400, &json!({}))]] {
            scene.upstream.script(script);
            assert_ne!(scene.chat(&body(false)).send().await.status, 200);
        }
        assert_eq!((costs(scene).await, scene.used().await.len()), (expected.to_vec(), 3));
    });
}
