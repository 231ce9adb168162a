//! The progress of calls, which is written while they run
//! (docs/contract/gateway.md#what-a-killed-server-costs).

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;
use tollkeeper::billing::expired_reservations::expire_due;
use tollkeeper::db::sql;
use tollkeeper::web::reply::Body;

use super::{MODEL, Scene, with_settings};
use support::books::{number, wallet};
use support::postgres::Cluster;
use support::upstream::{Step, Upstream, end_of_body, event, piece, stream_head};
use support::world::{ALLOW_FSYNC_OFF, Folder, World, runtime};
use support::{Database, on_each_database, on_postgres};

/// The reservations of calls last four seconds, so each is extended every second.
pub const LIFETIME: (&str, &str) = ("TOLLKEEPER_BILLING__GATEWAY_RESERVATION_SECONDS", "4");

fn with_short_lifetime(database: Database, kind: &str, test: impl AsyncFn(&Scene)) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let table = format!("[[upstreams]]\nid = \"engine\"\nkind = \"{kind}\"\nurl = \"{url}\"\n");
        ("routes = [{ upstream = \"engine\" }]".to_owned(), table)
    };
    with_settings(database, &[LIFETIME], describe, test);
}

fn word(generated: i64) -> Step {
    event(&json!({
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated},
    }))
}

fn end(generated: i64) -> [Step; 3] {
    let last = json!({
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": generated},
    });
    [event(&last), piece("data: [DONE]\n\n"), end_of_body()]
}

/// Begins a stream.
async fn begin(scene: &Scene) -> Body {
    let body = json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
    let request = http::Request::post("/v1/chat/completions")
        .header("authorization", format!("Bearer {}", scene.key))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = scene.world.public.answer(request, IpAddr::from([127, 0, 0, 1])).await;
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// Reads a stream to its end.
pub async fn rest(mut stream: Body) -> String {
    let mut text = String::new();
    while let Some(frame) = stream.frame().await {
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
    }
    text
}

/// Waits until a query returns this number.
pub async fn until(scene: &Scene, text: &str, due: i64) {
    for _ in 0..400 {
        if number(&scene.world, text).await == due {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{text}: {}", number(&scene.world, text).await);
}

pub const WRITTEN: &str = "SELECT COALESCE(MAX(completion_tokens), -1) FROM reservations";
const LIVES_MS: &str = "SELECT COALESCE(MAX(expires_at - created_at), 0) FROM reservations";

pub async fn events(scene: &Scene) -> Vec<(i64, i64, i64)> {
    let text =
        "SELECT LENGTH(event_id), prompt_tokens, completion_tokens FROM usage_events ORDER BY event_id";
    let rows: Vec<(i64, i64, i64)> =
        sql(text).all(&mut scene.world.app.db.read().await.unwrap()).await.unwrap();
    // An id has 31 characters. The id of the rest of a call has `.2` in addition.
    rows.into_iter().map(|(length, prompt, completion)| (length - 31, prompt, completion)).collect()
}

#[on_each_database]
fn progress_is_written_while_a_stream_goes_on(database: Database) {
    with_short_lifetime(database, "vllm", async |scene| {
        let mut steps =
            vec![stream_head(), word(1), word(2), Step::Pause(Duration::from_millis(2_500)), word(7)];
        steps.extend([Step::Pause(Duration::from_millis(1_500))]);
        steps.extend(end(9));
        scene.upstream.script([steps]);
        let stream = begin(scene).await;
        assert_eq!(number(&scene.world, LIVES_MS).await, 4_000);
        assert_eq!(number(&scene.world, WRITTEN).await, -1);
        until(scene, WRITTEN, 2).await;
        // The reservation is also extended without more text.
        scene.world.clock.advance_ms(3_000);
        until(scene, LIVES_MS, 7_000).await;
        until(scene, WRITTEN, 7).await;
        assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
        assert_eq!(events(scene).await, [(0, 9, 9)]);
    });
}

#[on_each_database]
fn call_without_an_event_yet_is_extended_and_costs_nothing(database: Database) {
    with_short_lifetime(database, "vllm", async |scene| {
        let mut steps = vec![Step::Pause(Duration::from_millis(2_500)), stream_head(), word(1)];
        steps.extend(end(2));
        scene.upstream.script([steps]);
        let advance = async {
            until(scene, "SELECT COUNT(*) FROM reservations", 1).await;
            scene.world.clock.advance_ms(3_000);
            until(scene, LIVES_MS, 7_000).await;
            assert_eq!(number(&scene.world, WRITTEN).await, -1);
            // The server stalls until the reservation has expired.
            scene.world.clock.advance_ms(4_000);
            assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 1);
            assert_eq!(wallet(&scene.world, &scene.place.organization).await, (0, 0));
        };
        let (stream, ()) = tokio::join!(begin(scene), advance);
        assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
        assert_eq!(events(scene).await, [(0, 9, 2)]);
    });
}

/// A gateway stalls: its call is treated as interrupted, but continues.
#[on_each_database]
fn rest_is_charged_after_the_progress_was(database: Database) {
    with_short_lifetime(database, "vllm", async |scene| {
        let mut steps =
            vec![stream_head(), word(1), word(2), Step::Pause(Duration::from_millis(3_500)), word(7)];
        steps.extend(end(9));
        scene.upstream.script([steps]);
        let stream = begin(scene).await;
        until(scene, WRITTEN, 2).await;
        scene.world.clock.advance_ms(4_000);
        assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 1);
        // 9 x 1,000 and 2 x 10,000 nano; the rest costs 7 x 10,000.
        assert_eq!(wallet(&scene.world, &scene.place.organization).await, (-29_000, 0));
        assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
        assert_eq!(events(scene).await, [(0, 9, 2), (2, 0, 7)]);
        assert_eq!(wallet(&scene.world, &scene.place.organization).await, (-99_000, 0));
    });
}

#[on_each_database]
fn drained_stream_writes_its_progress(database: Database) {
    let describe = |upstream: &Upstream| {
        let url = upstream.url();
        let table = format!(
            "[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{url}\"\non_disconnect = \"drain\"\n"
        );
        ("routes = [{ upstream = \"engine\" }]".to_owned(), table)
    };
    with_settings(database, &[LIFETIME], describe, async |scene| {
        let mut steps = vec![stream_head(), word(1), Step::Pause(Duration::from_millis(200)), word(5)];
        steps.push(Step::Pause(Duration::from_millis(1_500)));
        steps.extend(end(9));
        scene.upstream.script([steps]);
        drop(begin(scene).await);
        until(scene, WRITTEN, 5).await;
        scene.assert_settled().await;
        assert_eq!(events(scene).await, [(0, 9, 9)]);
    });
}

#[on_each_database]
fn estimated_progress_is_charged_and_corrected(database: Database) {
    with_short_lifetime(database, "openai", async |scene| {
        let text = |text: &str| event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
        let long = "abcd ".repeat(100);
        let mut steps = vec![stream_head(), text(&long), Step::Pause(Duration::from_millis(3_000))];
        let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 60}});
        steps.extend([event(&finish), event(&usage), piece("data: [DONE]\n\n"), end_of_body()]);
        scene.upstream.script([steps]);
        let stream = begin(scene).await;
        // 400 letters are 92 tokens.
        until(scene, WRITTEN, 92).await;
        scene.world.clock.advance_ms(4_000);
        assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 1);
        assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
        // The message was estimated at 4 tokens: 6 tokens are added, and 32 tokens of the answer are taken
        // back.
        assert_eq!(events(scene).await, [(0, 4, 92), (2, 6, 0), (2, 0, -32)]);
        // 10 x 1,000 and 60 x 10,000 nano.
        assert_eq!(wallet(&scene.world, &scene.place.organization).await, (-610_000, 0));
    });
}

#[on_postgres]
fn extension_is_tried_until_the_database_is_back(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    runtime().block_on(async {
        let upstream = Upstream::start().await;
        let table =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        std::fs::write(
            &file,
            MODEL.replace("ROUTES", "routes = [{ upstream = \"engine\" }]").replace("VECTORS", "") + &table,
        )
        .unwrap();
        let settings =
            [("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap()), (ALLOW_FSYNC_OFF, "true"), LIFETIME];
        let world = World::new("postgres", Some(cluster.new_database().await), &settings).await;
        let ada = world.user("ada").await;
        let place = world.place(&ada, "acme").await;
        let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
        let scene = Scene { world, upstream, ada, place, key };
        let mut steps = vec![stream_head(), word(1), Step::Pause(Duration::from_millis(1_500)), word(5)];
        steps.push(Step::Pause(Duration::from_millis(7_000)));
        steps.extend(end(9));
        scene.upstream.script([steps]);
        let mut stream = begin(&scene).await;
        until(&scene, WRITTEN, 1).await;
        cluster.stop();
        // Meanwhile, the stream continues.
        let mut text = String::new();
        while text.matches("\n\n").count() < 2 {
            let frame = tokio::time::timeout(Duration::from_secs(3), stream.frame()).await.unwrap();
            text.push_str(std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap());
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        cluster.start();
        until(&scene, WRITTEN, 5).await;
        assert!(rest(stream).await.ends_with("data: [DONE]\n\n"));
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(9, 9)]);
        assert_eq!(expire_due(&scene.world.app.billing).await.unwrap(), 0);
    });
}
