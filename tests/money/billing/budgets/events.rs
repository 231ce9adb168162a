//! Webhook events about budgets that reach a threshold or their limit.

use super::*;
use crate::billing::webhook_events::{subscribe, take_events};
use support::on_each_database;
use support::world::World;

/// Takes the queued events. Returns their threshold or null, limit and amount spent.
async fn take(scene: &Scene<'_>, budget: &str) -> Vec<[String; 3]> {
    let events = take_events(scene.world).await.into_iter().map(|event| {
        let data = &event["data"];
        assert_eq!(data["organization_id"], json!(scene.place.organization));
        assert_eq!((&data["budget_id"], &data["currency"]), (&json!(budget), &json!("USD")));
        assert_eq!(data["period_start"], "2026-03-10T00:00:00.000Z");
        let has_threshold = data.get("threshold").is_some();
        let of = if has_threshold { "budget.threshold_reached" } else { "budget.exceeded" };
        assert_eq!(
            (&event["type"], data.as_object().unwrap().len()),
            (&json!(of), 6 + usize::from(has_threshold))
        );
        ["threshold", "limit", "spent"].map(|name| data[name].to_string())
    });
    events.collect()
}

async fn set_limit(scene: &Scene<'_>, budget: &str, limit: &str) {
    let path = format!("{}/{budget}", scene.path());
    let call = scene.world.call(Method::PUT, &path).json(&json!({ "limit": limit }));
    call.bearer(&scene.ada.access_token).data().await;
}

#[on_each_database]
async fn each_threshold_is_told_once_and_the_limit_when_it_is_used_up(world: World) {
    let scene = Scene::new(&world).await;
    subscribe(&world, &scene.ada, &scene.place, &["budget.threshold_reached", "budget.exceeded"]).await;
    let (budget, _) = scene.budget("organization", "day", "0.001", false).await;
    let event = |threshold: &str, limit: &str, spent: &str| [threshold, limit, spent].map(str::to_owned);
    scene.report("1", 0, [249, 0], &[]).await;
    assert_eq!(take(&scene, &budget).await, Vec::<[String; 3]>::new());
    // 410 x 0.000002 = 0.00082.
    scene.report("2", 0, [161, 0], &[]).await;
    assert_eq!(
        take(&scene, &budget).await,
        [event("50", "0.001", "0.00082"), event("80", "0.001", "0.00082")]
    );
    scene.report("3", 0, [90, 0], &[]).await;
    assert_eq!(
        take(&scene, &budget).await,
        [event("null", "0.001", "0.001"), event("100", "0.001", "0.001")]
    );
    scene.report("4", 1, [10, 0], &[]).await;
    // The same event, reported again, doesn't count.
    let again = json!({"id": "3", "source": "tests", "time": world.clock.now().to_string(),
        "api_key_id": scene.keys[0].0, "model": "svc-1", "kind": "chat", "prompt_tokens": 90, "completion_tokens": 0});
    world.ask("/service/v1/usage", &json!({"events": [again]})).bare().await;
    scene.report("5", 0, [-90, 0], &[("corrects", json!("3"))]).await;
    assert_eq!(take(&scene, &budget).await, Vec::<[String; 3]>::new(), "the budget has money left again");
    // (410 + 10 + 90) x 0.000002 are spent. A threshold is announced once per period, but a used-up limit
    // each time.
    scene.report("6", 0, [90, 0], &[]).await;
    assert_eq!(take(&scene, &budget).await, [event("null", "0.001", "0.00102")]);
    set_limit(&scene, &budget, "0.01").await;
    assert_eq!(take(&scene, &budget).await, Vec::<[String; 3]>::new());
    set_limit(&scene, &budget, "0.001").await;
    assert_eq!(take(&scene, &budget).await, [event("null", "0.001", "0.00102")]);
    scene.check().await;
}

#[on_each_database]
async fn new_budget_tells_what_was_used_before(world: World) {
    let scene = Scene::new(&world).await;
    subscribe(&world, &scene.ada, &scene.place, &["budget.threshold_reached", "budget.exceeded"]).await;
    scene.report("1", 0, [500, 0], &[]).await;
    let (budget, _) = scene.budget("api_key", "day", "0.001", true).await;
    let reached: Vec<_> = take(&scene, &budget).await.into_iter().map(|[threshold, ..]| threshold).collect();
    assert_eq!(reached, ["null", "50", "80", "100"]);
}
