//! The operator's own events, with all of their data. The event for a refused catalog is in
//! `tests/http/catalog/refusals.rs`.

use serde_json::{Value, json};
use tollkeeper::app::App;
use tollkeeper::billing::scheduled_audit;
use tollkeeper::billing::usage_refusals::{Timing, announce};
use tollkeeper::clock::{HOUR_MS, MINUTE_MS};
use tollkeeper::db::sql;
use tollkeeper::events::EventType;
use tollkeeper::metrics::Job;

use support::on_each_database;
use support::twin::Twin;
use support::webhooks::{operator_hook, take_operator_events};
use support::world::World;

const URL: &str = "https://example.com/in";

/// Sets the reserved amount that a wallet records, in billionths.
async fn spoil(world: &World, organization: &str, reserved_nano: i64) {
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE wallets SET reserved_nano = $2 WHERE organization_id = $1")
        .bind(organization)
        .bind(reserved_nano)
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

#[on_each_database(&[("TOLLKEEPER_AUDIT__EVERY_HOURS", "6")])]
async fn drift_is_told_once_while_it_lasts(world: World) {
    let ada = world.user("ada").await;
    let (one, two) =
        (world.place(&ada, "One").await.organization, world.place(&ada, "Two").await.organization);
    let lease = world.app.leases.lease(Job::Audit);
    let audit = async || {
        world.clock.advance_ms(6 * HOUR_MS);
        scheduled_audit::run_due(&world.app.billing, &lease).await.unwrap().unwrap();
        take_operator_events(&world).await
    };
    assert_eq!(scheduled_audit::run_due(&world.app.billing, &lease).await.unwrap(), None, "only planned");
    let event = |at: &str, drifts: u64, new_drifts: u64, checks: Value| {
        json!({"type": "audit.drift", "timestamp": at, "data": {"organizations": 2, "drifts": drifts,
            "new_drifts": new_drifts, "checks": checks}})
    };
    let reserved = |drifts: u64, new_drifts: u64| json!([{"check": "wallet_reserved", "drifts": drifts, "new_drifts": new_drifts}]);
    let none: [Value; 0] = [];

    // No webhook exists yet; a webhook that is added later gets the event.
    spoil(&world, &one, 5).await;
    assert_eq!(audit().await, none);
    operator_hook(&world, URL, &[EventType::AuditDrift]).await;
    operator_hook(&world, URL, &[EventType::InvoicePaid]).await;
    assert_eq!(audit().await, [event("2026-03-11T00:00:00.000Z", 1, 1, reserved(1, 1))]);
    assert_eq!(audit().await, none, "the problem is the same");
    spoil(&world, &one, 7).await;
    assert_eq!(audit().await, none, "only its figures differ");

    // The wallet of another organization is wrong too.
    spoil(&world, &two, 5).await;
    assert_eq!(audit().await, [event("2026-03-11T18:00:00.000Z", 2, 1, reserved(2, 1))]);
    // A wallet is right again, and wrong again later.
    spoil(&world, &one, 0).await;
    assert_eq!(audit().await, none);
    spoil(&world, &one, 5).await;
    assert_eq!(audit().await, [event("2026-03-12T06:00:00.000Z", 2, 1, reserved(2, 1))]);
    spoil(&world, &one, 0).await;
    spoil(&world, &two, 0).await;
    assert_eq!(audit().await, none);
}

/// Returns an event of an API key that never existed.
fn unknown(id: &str, source: &str) -> Value {
    json!({"id": id, "source": source, "time": "2026-03-10T11:00:00Z", "api_key_id": "key_01kfz3v9xee8tb2m6h0q5w7r4n",
        "model": "svc-1", "kind": "chat", "prompt_tokens": 1})
}

async fn report(world: &World, events: &[Value]) {
    let answer = world.ask("/service/v1/usage", &json!({ "events": events })).bare().await;
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["status"], "refused", "{result}");
    }
}

fn refused(at: &str, code: &str, source: Option<&str>, events: u64, times: [&str; 2]) -> Value {
    json!({"type": "usage.refused", "timestamp": at, "data": {"code": code, "retryable": false, "source": source,
        "events": events, "first_at": times[0], "last_at": times[1]}})
}

async fn told(world: &World, app: &App, timing: Timing) -> Vec<Value> {
    let count = announce(&app.billing, timing).await.unwrap();
    let events = take_operator_events(world).await;
    assert_eq!(u64::try_from(events.len()).unwrap(), count);
    events
}

#[on_each_database]
async fn refused_usage_is_told_once_an_hour_by_code_and_source(world: World) {
    let none: [Value; 0] = [];
    // Without a webhook the event is sent to no one, not even later.
    report(&world, &[unknown("a", "vllm-1")]).await;
    assert_eq!(told(&world, &world.app, Timing::OnceAnHour).await, none);
    operator_hook(&world, URL, &[EventType::UsageRefused]).await;
    assert_eq!(told(&world, &world.app, Timing::OnceAnHour).await, none);

    report(&world, &[unknown("a", "vllm-1"), json!({"id": "b"}), unknown("c", "vllm-2")]).await;
    world.clock.advance_ms(MINUTE_MS / 2);
    report(&world, &[unknown("d", "vllm-1")]).await;
    world.clock.advance_ms(MINUTE_MS / 2);
    let (start, half, at) =
        ("2026-03-10T12:00:00.000Z", "2026-03-10T12:00:30.000Z", "2026-03-10T12:01:00.000Z");
    assert_eq!(
        told(&world, &world.app, Timing::OnceAnHour).await,
        [
            refused(at, "invalid_event", None, 1, [start, start]),
            refused(at, "unknown_api_key", Some("vllm-1"), 2, [start, half]),
            refused(at, "unknown_api_key", Some("vllm-2"), 1, [start, start]),
        ]
    );
    assert_eq!(told(&world, &world.app, Timing::OnceAnHour).await, none);

    // Within the hour only new refusals are sent, regardless of the server that refused them.
    let [_, other] = Twin::both(&world).await;
    report(&world, &[unknown("e", "vllm-1"), unknown("f", "vllm-3")]).await;
    assert_eq!(
        told(&world, &world.app, Timing::OnceAnHour).await,
        [refused(at, "unknown_api_key", Some("vllm-3"), 1, [at, at])]
    );
    let source = "vllm-3".into();
    other.app.billing.refusals.note(
        tollkeeper::billing::rules::events::Reason::UnknownApiKey,
        Some(&source),
        world.clock.now(),
    );
    assert_eq!(told(&world, &other.app, Timing::OnceAnHour).await, none);
    world.clock.advance_ms(HOUR_MS);
    report(&world, &[unknown("g", "vllm-1")]).await;
    let later = "2026-03-10T13:01:00.000Z";
    assert_eq!(
        told(&world, &world.app, Timing::OnceAnHour).await,
        [refused(later, "unknown_api_key", Some("vllm-1"), 2, [at, later])]
    );
    assert_eq!(
        told(&world, &other.app, Timing::OnceAnHour).await,
        [refused(later, "unknown_api_key", Some("vllm-3"), 1, [at, at])]
    );

    // A server that stops doesn't wait for the end of the hour.
    report(&world, &[unknown("h", "vllm-1")]).await;
    assert_eq!(told(&world, &world.app, Timing::OnceAnHour).await, none);
    assert_eq!(
        told(&world, &world.app, Timing::Now).await,
        [refused(later, "unknown_api_key", Some("vllm-1"), 1, [later, later])]
    );
    assert_eq!(told(&world, &world.app, Timing::Now).await, none);
}
