//! Every end of a stream: the client's view, and the cost (docs/contract/gateway.md#what-a-call-costs).

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollkeeper::web::reply::Body;

use super::{Scene, with_upstream};
use support::upstream::{Step, end_of_body, event, piece, stream_head};
use support::{Database, on_each_database};

/// Returns a chunk with a word, and with the number of tokens generated so far.
fn word(text: &str, generated: i64) -> Value {
    json!({
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated, "total_tokens": 9 + generated},
    })
}

fn body() -> Value {
    json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

/// Checks that a stream ends with the event of a cut answer, and not with that of a complete answer.
fn assert_cut(text: &str) {
    let last = text.split_terminator("\n\n").last().unwrap();
    let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "upstream_cut", "{text}");
    assert_eq!(error["error"]["type"], "api_error");
    assert!(!text.contains("[DONE]"), "{text}");
}

/// Plays this script; returns the client's stream.
async fn play(scene: &Scene, steps: Vec<Step>) -> String {
    scene.upstream.script([steps]);
    let answer = scene.chat(&body()).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

#[on_each_database]
fn upstream_that_dies_is_a_cut(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let text =
            play(scene, vec![stream_head(), event(&word("a", 1)), event(&word(" b", 3)), Step::Close]).await;
        assert_cut(&text);
        assert_eq!(scene.used().await, [(9, 3)], "three tokens in two events");
    });
}

#[on_each_database]
fn end_of_the_body_alone_is_no_good_end(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let text = play(scene, vec![stream_head(), event(&word("a", 1)), end_of_body()]).await;
        assert_cut(&text);
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}

#[on_each_database]
fn done_without_a_finished_choice_is_a_cut(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let steps = vec![stream_head(), event(&word("a", 1)), piece("data: [DONE]\n\n"), end_of_body()];
        assert_cut(&play(scene, steps).await);
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}

#[on_each_database]
fn error_event_is_a_cut_and_its_text_stays_here(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let error = json!({"error": {"message": "CUDA out of memory at 10.1.2.3", "type": "x", "code": 500}});
        let steps = vec![
            stream_head(),
            event(&word("a", 1)),
            event(&error),
            piece("data: [DONE]\n\n"),
            end_of_body(),
        ];
        let text = play(scene, steps).await;
        assert_cut(&text);
        assert!(!text.contains("CUDA"), "{text}");
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}

#[on_each_database]
fn silence_between_events_is_a_cut(database: Database) {
    with_upstream(database, "vllm", "between_events_ms = 200", async |scene| {
        let steps = vec![stream_head(), event(&word("a", 1)), Step::AwaitClose];
        assert_cut(&play(scene, steps).await);
        scene.upstream.left(1).await;
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}

#[on_each_database]
fn total_time_is_a_limit(database: Database) {
    with_upstream(database, "vllm", "total_ms = 500", async |scene| {
        let mut steps = vec![stream_head()];
        for generated in 1..100 {
            steps.extend([event(&word("a", generated)), Step::Pause(Duration::from_millis(50))]);
        }
        let text = play(scene, steps).await;
        assert_cut(&text);
        let delivered = i64::try_from(text.matches("\"content\":\"a\"").count()).unwrap();
        assert_eq!(scene.used().await, [(9, delivered)]);
    });
}

#[on_each_database]
fn text_that_is_no_json_is_a_cut(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let steps = vec![
            stream_head(),
            event(&word("a", 1)),
            piece("data: <html>oops 10.1.2.3\n\n"),
            Step::AwaitClose,
        ];
        let text = play(scene, steps).await;
        assert_cut(&text);
        assert!(!text.contains("oops"), "{text}");
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}

/// Without counts from the upstream, the tokens are estimated from the text.
#[on_each_database]
fn cut_without_counts_is_estimated(database: Database) {
    with_upstream(database, "openai", "", async |scene| {
        let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        let steps =
            vec![stream_head(), event(&chunk("four")), event(&chunk("words of some length")), Step::Close];
        assert_cut(&play(scene, steps).await);
        // Three tokens for the message and one for its two letters; 21 letters of the answer.
        assert_eq!(scene.used().await, [(4, 5)]);
    });
}

/// Sends a stream's request, reads this many events, and disconnects.
async fn leave_after(scene: &Scene, events: usize) -> String {
    let request = http::Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {}", scene.key))
        .header("content-type", "application/json")
        .body(Body::from(body().to_string()))
        .unwrap();
    let response = scene.world.public.answer(request, IpAddr::from([127, 0, 0, 1])).await;
    assert_eq!(response.status(), 200);
    let (mut text, mut stream) = (String::new(), response.into_body());
    while text.matches("\n\n").count() < events {
        let bytes = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    text
}

#[on_each_database]
fn client_that_leaves_a_stream_cancels_it_and_pays_what_was_made(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        let steps = vec![stream_head(), event(&word("a", 1)), event(&word("b", 2)), Step::AwaitClose];
        scene.upstream.script([steps]);
        leave_after(scene, 2).await;
        scene.upstream.left(1).await;
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(9, 2)]);
    });
}

/// If a client stops reading, the gateway stops reading the upstream once a megabyte is buffered, and cuts
/// the client off at the end of the call's time. The client pays for everything that the gateway has read.
#[on_each_database]
fn client_that_takes_nothing_is_cut_off(database: Database) {
    with_upstream(database, "vllm", "total_ms = 1_000", async |scene| {
        let long = "a".repeat(64 << 10);
        let mut steps = vec![stream_head()];
        for generated in 1..=40 {
            steps.extend([event(&word(&long, generated)), Step::Pause(Duration::from_millis(10))]);
        }
        steps.push(Step::AwaitClose);
        scene.upstream.script([steps]);
        let mut stream = scene.chat(&body()).open().await.into_body();
        scene.upstream.left(1).await;
        while scene.used().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut text = String::new();
        while let Some(frame) = stream.frame().await {
            text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        assert_cut(&text);
        let delivered = i64::try_from(text.matches(&long).count()).unwrap();
        assert_eq!(scene.used().await, [(9, delivered)]);
        assert!((16..40).contains(&delivered), "{delivered}");
    });
}

#[on_each_database]
fn drained_stream_is_read_to_its_end(database: Database) {
    with_upstream(database, "vllm", "on_disconnect = \"drain\"", async |scene| {
        let mut steps = vec![stream_head(), event(&word("a", 1)), Step::Pause(Duration::from_millis(200))];
        steps.push(event(&word("b", 2)));
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}});
        steps.extend([event(&end), piece("data: [DONE]\n\n"), end_of_body()]);
        scene.upstream.script([steps]);
        leave_after(scene, 1).await;
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(9, 5)]);
    });
}

#[on_each_database]
fn server_that_stops_cuts_streams_and_settles_them(database: Database) {
    with_upstream(database, "vllm", "", async |scene| {
        scene.upstream.script([vec![stream_head(), event(&word("a", 1)), Step::AwaitClose]]);
        let gateway = scene.world.app.gateway.clone();
        let stopping = async {
            while scene.upstream.received().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            gateway.stop(tokio::time::Instant::now() + Duration::from_millis(300)).await
        };
        let (answer, cut) = tokio::join!(scene.chat(&body()).send(), stopping);
        assert_eq!(cut, 1);
        assert_cut(&answer.text);
        assert_eq!(scene.used().await, [(9, 1)]);
    });
}
