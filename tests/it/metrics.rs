//! GET /metrics.

use http::Method;
use serde_json::json;

use crate::support::http::{Answer, Call};
use crate::support::world::{PASSWORD, World, on_each_database};

async fn metrics(world: &World, token: &str) -> Answer {
    Call::new(&world.service, Method::GET, "/metrics").bearer(token).send().await
}

/// The value of one metric.
async fn value(world: &World, name: &str) -> u64 {
    let text = metrics(world, world.app.service_token.expose()).await.text;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = lines.next().unwrap_or_else(|| panic!("no {name} in {text}"));
    assert_eq!(lines.next(), None, "{name} stands twice in {text}");
    value.parse().unwrap()
}

#[test]
fn metrics_need_the_service_token_and_count_mails() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        for token in ["", "svc_wrong", &ada.access_token] {
            assert_eq!(metrics(&world, token).await.status, 401, "{token}");
        }
        let public =
            Call::new(&world.public, Method::GET, "/metrics").bearer(world.app.service_token.expose());
        assert_eq!(public.refused().await.0, 404);

        let answer = metrics(&world, world.app.service_token.expose()).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
        for (name, kind) in [
            ("tollkeeper_mails_sent_total", "counter"),
            ("tollkeeper_mails_failed_total", "counter"),
            ("tollkeeper_mails_given_up_total", "counter"),
            ("tollkeeper_mails_waiting", "gauge"),
            ("tollkeeper_changes_applied_total", "counter"),
            ("tollkeeper_changes_gaps_total", "counter"),
            ("tollkeeper_changes_position", "gauge"),
            ("tollkeeper_changes_lag", "gauge"),
            ("tollkeeper_memory_trusted", "gauge"),
            ("tollkeeper_catalog_reloads_total", "counter"),
            ("tollkeeper_catalog_refused", "gauge"),
            ("tollkeeper_keys_held", "gauge"),
            ("tollkeeper_keys_held_bytes", "gauge"),
        ] {
            let first = u8::from(name == "tollkeeper_memory_trusted");
            let lines = format!("# TYPE {name} {kind}\n{name} {first}\n");
            assert!(answer.text.contains(&lines), "{}", answer.text);
            assert!(answer.text.contains(&format!("# HELP {name} ")), "{}", answer.text);
        }

        let body = json!({"email": "bob@example.com", "password": PASSWORD, "username": "bob"});
        world.post("/v1/auth/register", &body).data().await;
        world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
        assert_eq!(value(&world, "tollkeeper_mails_waiting").await, 2);
        assert_eq!(value(&world, "tollkeeper_mails_sent_total").await, 0);
        tollkeeper::jobs::outbox::send_due(&world.app).await.unwrap();
        assert_eq!(value(&world, "tollkeeper_mails_waiting").await, 0);
        assert_eq!(value(&world, "tollkeeper_mails_sent_total").await, 2);
    });
}

#[test]
fn the_feed_and_what_is_held_are_measured() {
    on_each_database(async |world| {
        let ada = world.somebody("ada").await;
        let place = world.place(&ada, "Acme").await;
        let (_, key) = world.key(&ada, &place, &json!({"name": "k"})).await;
        world.get("/v1/models").bearer(&key).bare().await;
        assert_eq!(value(&world, "tollkeeper_keys_held").await, 1);
        let bytes = value(&world, "tollkeeper_keys_held_bytes").await;
        assert!((200..600).contains(&bytes), "{bytes}");
        world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
        let of = async |name: &str| value(&world, &format!("tollkeeper_{name}")).await;
        assert_eq!((of("changes_position").await, of("changes_lag").await), (0, 1));
        world.catch_up().await;
        assert_eq!((of("changes_position").await, of("changes_lag").await), (1, 0));
        assert_eq!((of("changes_applied_total").await, of("changes_gaps_total").await), (1, 0));
        world.clock.advance_ms(tollkeeper::live::feed::TRUST_MS);
        assert_eq!(of("memory_trusted").await, 0);
    });
}
