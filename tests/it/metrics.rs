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
        ] {
            assert!(answer.text.contains(&format!("# TYPE {name} {kind}\n{name} 0\n")), "{}", answer.text);
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
