//! Retention of usage events: old events are removed; daily rows and events that could be repeated are kept.

use serde_json::json;
use tollkeeper::billing::retention::{Progress, Step, step, step_with_size};
use tollkeeper::clock::{DAY_MS, Time};
use tollkeeper::db::sql;

use support::on_each_database;
use support::world::World;

/// 13 months of 31 days.
const MONTHS_MS: i64 = 13 * 31 * DAY_MS;

async fn insert(world: &World, organization: &str, id: &str, occurred_at: Time) {
    let mut tx = world.app.db.write().await.unwrap();
    sql("INSERT INTO usage_events (organization_id, source, event_id, payload_hash, project_id, api_key_id, model, kind,
             occurred_at, received_at, prompt_tokens, completion_tokens, price_version, amount_pico)
         VALUES ($1, 's', $2, $3, 'p', 'k', 'm', 'chat', $4, $4, 1, 0, 0, 1000)")
    .bind(organization)
    .bind(id)
    .bind([0_u8; 32])
    .bind(occurred_at)
    .execute(&mut tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
}

async fn events(world: &World) -> Vec<String> {
    let mut tx = world.app.db.read().await.unwrap();
    let rows: Vec<(String,)> =
        sql("SELECT event_id FROM usage_events ORDER BY event_id").all(&mut tx).await.unwrap();
    rows.into_iter().map(|(id,)| id).collect()
}

async fn before(world: &World) -> i64 {
    let mut tx = world.app.db.read().await.unwrap();
    let (before,): (i64,) = sql("SELECT usage_events_before FROM retention").one(&mut tx).await.unwrap();
    before
}

#[on_each_database]
async fn events_are_removed_once_they_cannot_be_repeated(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.old_key(&ada, &place, &json!({"name": "a"})).await;
    let start = world.clock.now();
    let event = json!({"events": [{"id": "e", "source": "vllm-1", "time": start.to_string(), "api_key_id": key,
        "model": "svc-1", "kind": "chat", "prompt_tokens": 1, "completion_tokens": 1}]});
    let report = async || world.ask("/service/v1/usage", &event).bare().await["results"][0].clone();
    assert_eq!(report().await["status"], "accepted");
    // The event's id is kept as long as the event is recent enough to count.
    world.clock.advance_ms(MONTHS_MS);
    let mut progress = Progress::default();
    assert_eq!(step(&world.app.billing, &mut progress).await.unwrap(), Step { removed: 0, has_more: false });
    assert_eq!(report().await["status"], "duplicate");
    // The id is kept for another day and a half, because the test starts at noon.
    world.clock.advance_ms(DAY_MS + DAY_MS / 2 - 1);
    assert_eq!(step(&world.app.billing, &mut progress).await.unwrap().removed, 0);
    assert_eq!(before(&world).await, 0, "nothing was removed");
    world.clock.advance_ms(1);
    assert_eq!(step(&world.app.billing, &mut progress).await.unwrap(), Step { removed: 1, has_more: false });
    assert_eq!(before(&world).await, start.day().plus(1).start().unix_ms());
    assert_eq!(report().await["code"], "event_too_old", "the event doesn't count again");
    let mut tx = world.app.db.read().await.unwrap();
    let (requests,): (i64,) = sql("SELECT requests FROM usage_daily").one(&mut tx).await.unwrap();
    assert_eq!(requests, 1, "daily rows stay");
}

/// A client's counter of ids restarts after all its events were removed.
#[on_each_database]
async fn removed_event_id_can_be_used_again(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.key(&ada, &place, &json!({"name": "a"})).await;
    let report = async |ids: &[&str]| {
        let now = world.clock.now().to_string();
        let events = ids.iter().map(|id| {
            json!({"id": id, "source": "vllm-1", "time": now, "api_key_id": key, "model": "svc-1", "kind": "chat",
                   "prompt_tokens": 1_000, "completion_tokens": 1})
        });
        let body = json!({"events": events.collect::<Vec<_>>()});
        let results = world.ask("/service/v1/usage", &body).bare().await["results"].clone();
        let statuses = results.as_array().unwrap().iter().map(|result| result["status"].clone());
        statuses.collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(report(&["1"]).await, ["accepted"]);
        assert_eq!(report(&["1"]).await, ["duplicate"]);
        assert_eq!(report(&["2", "3"]).await, ["accepted", "accepted"]);
        assert_eq!(report(&["3", "4", "1"]).await, ["duplicate", "accepted", "duplicate"]);
        world.clock.advance_ms(MONTHS_MS + 2 * DAY_MS);
        assert_eq!(step(&world.app.billing, &mut Progress::default()).await.unwrap().removed, 4);
    }
    let report = tollkeeper::billing::audit::check(&world.app.billing, None).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.drifts);
}

#[on_each_database]
async fn walk_runs_in_slices_once_a_day(world: World) {
    let now = world.clock.now();
    let old = now.plus_ms(-MONTHS_MS - 3 * DAY_MS);
    for (organization, id, at) in [
        ("org_a", "a1", old),
        ("org_a", "a2", now),
        ("org_a", "a3", old),
        ("org_b", "b1", old),
        ("org_b", "b2", now),
        ("org_b", "b3", now),
        ("org_c", "c1", old),
    ] {
        insert(&world, organization, id, at).await;
    }
    let mut progress = Progress::default();
    let step = async |progress: &mut Progress| {
        let turn = step_with_size(&world.app.billing, progress, 2).await.unwrap();
        (turn.removed, turn.has_more)
    };
    assert_eq!(step(&mut progress).await, (1, true));
    assert_eq!(events(&world).await, ["a2", "a3", "b1", "b2", "b3", "c1"]);
    // Another replica starts from the beginning and finds the rest.
    let mut other = Progress::default();
    assert_eq!(step(&mut other).await, (1, true));
    assert_eq!(step(&mut progress).await, (1, true), "b1: another replica removed a3");
    assert_eq!(step(&mut progress).await, (1, true), "c1");
    assert_eq!(step(&mut progress).await, (0, false), "no row follows it");
    assert_eq!(events(&world).await, ["a2", "b2", "b3"]);
    let statements = world.app.db.statement_count();
    assert_eq!(step(&mut progress).await, (0, false));
    assert_eq!(world.app.db.statement_count(), statements, "enough for today");
    insert(&world, "org_a", "a0", old).await;
    world.clock.advance_ms(DAY_MS);
    assert_eq!(step(&mut progress).await.0, 1, "the next day, it starts from the beginning");
}

#[on_each_database]
async fn recent_events_cannot_be_removed(world: World) {
    let now = world.clock.now();
    insert(&world, "org_a", "young", now).await;
    insert(&world, "org_a", "old", now.plus_ms(-2 * MONTHS_MS)).await;
    step(&world.app.billing, &mut Progress::default()).await.unwrap();
    assert_eq!(events(&world).await, ["young"]);
    let mut tx = world.app.db.write().await.unwrap();
    let refused = sql("DELETE FROM usage_events").execute(&mut tx).await.unwrap_err();
    assert!(refused.to_string().contains("append-only"), "{refused}");
}
