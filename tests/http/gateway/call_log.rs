//! The call log (docs/operations.md#call-log): the rows that calls leave.

use serde_json::{Value, json};
use tollkeeper::clock::DAY_MS;
use tollkeeper::db::sql;
use tollkeeper::jobs::cleanup::{Progress, step_with_size};

use super::{Scene, with_settings, with_upstream};
use support::upstream::{Step, Upstream, end_of_body, event, json_answer, piece, stream_head};
use support::{Database, on_each_database};

fn body(more: Value) -> Value {
    let mut body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn plain(prompt: i64, completion: i64) -> Vec<Step> {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}});
    json_answer(200, &json!({"choices": [], "usage": usage}))
}

fn stream(is_cut: bool) -> Vec<Step> {
    let reason = if is_cut { Value::Null } else { json!("stop") };
    let last = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3}});
    let done = if is_cut { Vec::new() } else { vec![piece("data: [DONE]\n\n")] };
    [vec![stream_head(), event(&last)], done, vec![end_of_body()]].concat()
}

/// Returns the rows, the oldest first: names, then numbers.
async fn rows(scene: &Scene) -> Vec<(String, String)> {
    let name = |column: &str| {
        format!("COALESCE((SELECT name FROM call_names WHERE number = c.{column}), '-') || ' '")
    };
    let numbers = [
        "ended",
        "status",
        "attempts",
        "operation",
        "flags",
        "events",
        "prompt_tokens",
        "cached_prompt_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "amount_pico",
        "user_agent",
        "repeated",
    ];
    let numbers = numbers.map(|column| format!("CAST({column} AS TEXT)")).join(" || ' ' || ");
    let names = ["model", "upstream", "upstream_model", "code"].map(name).join(" || ");
    let mut tx = scene.world.app.db.read().await.unwrap();
    let text = format!(
        "SELECT {names} || end_user AS names, {numbers} AS numbers FROM calls c ORDER BY second, part, low"
    );
    sql(text).all(&mut tx).await.unwrap()
}

fn row(names: &str, numbers: &str) -> (String, String) {
    (names.to_owned(), numbers.to_owned())
}

#[on_each_database]
fn calls_are_logged_by_their_charge(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        scene.upstream.script([plain(10, 5)]);
        let named = json!({"metadata": {"user_id": "m"}, "user": " grace "});
        scene.chat(&body(named)).header("user-agent", "OpenAI/Python 1.99").bare().await;
        scene.upstream.script([stream(false)]);
        assert_eq!(scene.chat(&body(json!({"stream": true}))).send().await.status, 200);
        scene.upstream.script([stream(true)]);
        assert_eq!(scene.chat(&body(json!({"stream": true}))).send().await.status, 200);
        scene.upstream.script([json_answer(400, &json!({"error": {"message": "no"}}))]);
        assert_eq!(scene.chat(&body(json!({}))).send().await.status, 400);
        scene.assert_settled().await;
        let ours = "chat-1 engine org/engine-model";
        // 6 x 1,000,000 + 4 x 500,000 + 5 x 10,000,000 pico; 9 x 1,000,000 + 3 x 10,000,000.
        let failed = rows(scene).await.pop().unwrap();
        let expected = [
            row(&format!("{ours} - grace"), "0 200 1 0 0 1 10 4 5 2 58000000 2 0"),
            row(&format!("{ours} - "), "0 200 1 0 1 1 9 -1 3 -1 39000000 0 0"),
            // Flag 2: an estimate, because cached tokens may be reported only at the end.
            row(&format!("{ours} upstream_cut "), "1 200 1 0 3 1 9 -1 3 -1 39000000 0 0"),
        ];
        assert_eq!(rows(scene).await[..3], expected);
        // A call that failed cost nothing.
        assert!(failed.0.starts_with(ours) && failed.1 == "3 400 1 0 0 0 0 -1 0 -1 0 0 0", "{failed:?}");
        let mut tx = scene.world.app.db.read().await.unwrap();
        let text = "SELECT COUNT(*) AS n FROM calls WHERE duration_ms < 0 OR request_second <= 0
                        OR (flags = 1 AND first_event_ms < 0) OR (flags = 0 AND first_event_ms >= 0)";
        let (wrong,): (i64,) = sql(text).one(&mut tx).await.unwrap();
        assert_eq!(wrong, 0);
    });
}

#[on_each_database]
fn refused_calls_are_counted_beyond_sixty_a_minute(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        for _ in 0..70 {
            let (status, code) = scene.chat(&body(json!({"model": "chat-9"}))).refused().await;
            assert_eq!((status, code.as_str()), (404, "model_not_found"));
        }
        // No server takes this call.
        scene.upstream.script([json_answer(503, &json!({}))]);
        assert_eq!(scene.chat(&body(json!({}))).refused().await, (503, "model_overloaded".to_owned()));
        // Strangers leave no row.
        let stranger = scene.world.post("/v1/chat/completions", &body(json!({}))).bearer("tk_nonsense");
        assert_eq!(stranger.refused().await.0, 401);
        scene.assert_settled().await;
        assert_eq!(rows(scene).await, []);
        let log = &scene.world.app.billing.call_log;
        // 61 rows, and one with a count.
        assert_eq!(log.flush().await.unwrap(), 62 + 2);
        assert_eq!(log.flush().await.unwrap(), 0);
        let rows = rows(scene).await;
        assert_eq!(rows.len(), 61);
        let refused = "- - - model_not_found ";
        assert!(rows[..59].iter().all(|found| *found == row(refused, "4 404 0 0 0 0 0 -1 0 -1 0 0 0")));
        assert_eq!(rows[59], row(refused, "4 404 0 0 0 0 0 -1 0 -1 0 0 10"));
        assert_eq!(
            rows[60],
            row("chat-1 engine org/engine-model model_overloaded ", "4 503 1 0 0 0 0 -1 0 -1 0 0 0")
        );
    });
}

#[on_each_database]
fn hours_have_sums_and_histograms(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        for _ in 0..2 {
            scene.upstream.script([plain(10, 5)]);
            scene.chat(&body(json!({}))).bare().await;
            assert_eq!(scene.chat(&body(json!({"model": "chat-9"}))).refused().await.0, 404);
            scene.assert_settled().await;
            scene.world.app.billing.call_log.flush().await.unwrap();
        }
        let buckets: Vec<_> = (0..32).map(|bucket| format!("duration_{bucket}")).collect();
        let text = format!(
            "SELECT (SELECT name FROM call_names WHERE number = h.code) AS code,
                 CAST(calls AS TEXT) || ' ' || CAST(prompt_tokens AS TEXT) || ' ' || CAST(cached_prompt_tokens AS TEXT)
                     || ' ' || CAST(completion_tokens AS TEXT) || ' ' || CAST(amount_pico AS TEXT) || ' '
                     || CAST(timed_tokens AS TEXT) || ' ' || CAST({} AS TEXT) AS sums
             FROM call_hours h",
            buckets.join(" + ")
        );
        let mut tx = scene.world.app.db.read().await.unwrap();
        let mut rows: Vec<(Option<String>, String)> = sql(text).all(&mut tx).await.unwrap();
        rows.sort();
        let refused = (Some("model_not_found".to_owned()), "2 0 0 0 0 0 0".to_owned());
        assert_eq!(rows, [(None, "2 20 8 10 116000000 10 2".to_owned()), refused]);
    });
}

#[on_each_database]
fn corrections_change_the_row_of_their_call(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        let world = &scene.world;
        let (key, _) = world.old_key(&scene.ada, &scene.place, &json!({"name": "old"})).await;
        let time = world.clock.now().to_string();
        let report = async |more: Value| {
            let mut event = json!({"source": "vllm-1", "time": time, "model": "chat-1", "kind": "chat",
                "api_key_id": key});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = world.ask("/service/v1/usage", &json!({"events": [event]})).bare().await;
            answer["results"][0]["status"].as_str().unwrap().to_owned()
        };
        let whole =
            json!({"id": "e-1", "prompt_tokens": 10, "cached_prompt_tokens": 4, "completion_tokens": 5});
        let less = json!({"id": "e-2", "corrects": "e-1", "prompt_tokens": -3, "cached_prompt_tokens": -1,
            "completion_tokens": -2});
        for (event, status) in
            [(&whole, "accepted"), (&whole, "duplicate"), (&less, "accepted"), (&less, "duplicate")]
        {
            assert_eq!(report(event.clone()).await, status, "{event}");
        }
        scene.assert_settled().await;
        // 4 x 1,000,000 + 3 x 500,000 + 3 x 10,000,000 pico.
        assert_eq!(rows(scene).await, [row("chat-1 - - - ", "0 0 0 5 0 1 7 3 3 -1 35500000 0 0")]);
        let mut tx = world.app.db.read().await.unwrap();
        let text =
            "SELECT event_id, (SELECT name FROM call_names WHERE number = c.source) AS source FROM calls c";
        let found: Vec<(String, String)> = sql(text).all(&mut tx).await.unwrap();
        assert_eq!(found, [("e-1".to_owned(), "vllm-1".to_owned())]);
    });
}

#[on_each_database]
fn nothing_is_logged_when_the_log_is_off(database: Database) {
    let routes = |upstream: &Upstream| {
        let table =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        ("routes = [{ upstream = \"engine\", model = \"m\" }]".to_owned(), table)
    };
    with_settings(database, &[("TOLLKEEPER_CALLS__DAYS", "0")], routes, async |scene: &Scene| {
        scene.upstream.script([plain(10, 5)]);
        scene.chat(&body(json!({}))).bare().await;
        assert_eq!(scene.chat(&body(json!({"model": "chat-9"}))).refused().await.0, 404);
        assert_eq!(scene.world.app.billing.call_log.flush().await.unwrap(), 0);
        assert_eq!(rows(scene).await, []);
    });
}

#[on_each_database]
fn old_calls_are_removed_in_slices(database: Database) {
    with_upstream(database, "vllm", "", async |scene: &Scene| {
        let world = &scene.world;
        for _ in 0..5 {
            scene.upstream.script([plain(10, 5)]);
            scene.chat(&body(json!({}))).bare().await;
            world.clock.advance_ms(1_000);
        }
        scene.assert_settled().await;
        let walk = async || {
            let mut progress = Progress::default();
            loop {
                let step = step_with_size(&world.app, &mut progress, 1).await.unwrap();
                if !step.has_more {
                    return step.removed.calls;
                }
            }
        };
        world.app.billing.call_log.flush().await.unwrap();
        world.clock.advance_ms(30 * DAY_MS - 60_000);
        assert_eq!(walk().await, 0);
        world.clock.advance_ms(60_000);
        assert_eq!(walk().await, 5);
        assert_eq!(rows(scene).await, []);
        let count = "SELECT COUNT(*) AS n FROM call_hours";
        assert_eq!(support::books::number(world, count).await, 1);
        world.clock.advance_ms(371 * DAY_MS);
        assert_eq!(walk().await, 1);
        assert_eq!(support::books::number(world, count).await, 0);
    });
}
