//! The database stops while a stream ends: the last event waits until the call is settled.

use std::net::IpAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;
use tollkeeper::web::reply::Body;

use super::{MODEL, Scene};
use support::postgres::Cluster;
use support::upstream::{Step, Upstream, end_of_body, event, piece, stream_head};
use support::world::{ALLOW_FSYNC_OFF, Folder, World, runtime};
use support::{Database, on_postgres};

#[on_postgres]
fn end_of_a_stream_waits_for_the_database(_: Database) {
    let Some(cluster) = Cluster::private() else { return };
    let folder = Folder::new();
    let file = folder.0.join("catalog.toml");
    runtime().block_on(async {
        let upstream = Upstream::start().await;
        let routes = "routes = [{ upstream = \"engine\" }]";
        let table =
            format!("[[upstreams]]\nid = \"engine\"\nkind = \"vllm\"\nurl = \"{}\"\n", upstream.url());
        std::fs::write(&file, MODEL.replace("ROUTES", routes).replace("VECTORS", "") + &table).unwrap();
        let settings = [("TOLLKEEPER_CATALOG_FILE", file.to_str().unwrap()), (ALLOW_FSYNC_OFF, "true")];
        let world = World::new("postgres", Some(cluster.new_database().await), &settings).await;
        let ada = world.user("ada").await;
        let place = world.place(&ada, "acme").await;
        let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
        let scene = Scene { world, upstream, ada, place, key };

        let word = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
        scene.upstream.script([vec![
            stream_head(),
            event(&word),
            Step::Pause(Duration::from_millis(2_000)),
            piece("data: [DONE]\n\n"),
            end_of_body(),
        ]]);
        let body =
            json!({"model": "chat-1", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let request = http::Request::post("/v1/chat/completions")
            .header("authorization", format!("Bearer {}", scene.key))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = scene.world.public.answer(request, IpAddr::from([127, 0, 0, 1])).await;
        assert_eq!(response.status(), 200);
        let mut stream = response.into_body();
        let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!first.ends_with(b"[DONE]\n\n"));
        cluster.stop();
        // Meanwhile the upstream ends its stream, but the client doesn't get the end.
        let silence = tokio::time::timeout(Duration::from_millis(3_500), stream.frame()).await;
        assert!(silence.is_err(), "{silence:?}");
        cluster.start();
        let last = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(last, "data: [DONE]\n\n");
        assert!(stream.frame().await.is_none());
        scene.assert_settled().await;
        assert_eq!(scene.used().await, [(3, 1)]);
    });
}
