//! Periods: days, months and all time, with usage that is reported late, corrections, and calls across the
//! end of a period.

use support::on_each_database;
use support::world::World;
use tollkeeper::billing::expired_reservations::expire_due;

use super::*;

/// Sets the clock, and gives Ada a session that is valid at that time.
async fn set_time(scene: &mut Scene<'_>, time: &str) {
    let ms = Time::parse(time).unwrap().unix_ms() - scene.world.clock.now().unix_ms();
    scene.world.clock.advance_ms(ms);
    scene.ada = scene.world.session(scene.ada.id).await;
}

#[on_each_database]
async fn each_period_begins_with_nothing(world: World) {
    let mut scene = Scene::new(&world).await;
    let (day, made) = scene.budget("organization", "day", "0.001", true).await;
    assert_eq!(made["period_start"], "2026-03-10T00:00:00.000Z");
    assert_eq!(made["period_end"], "2026-03-11T00:00:00.000Z");
    let (month, made) = scene.budget("organization", "month", "0.002", true).await;
    assert_eq!(made["period_start"], "2026-03-01T00:00:00.000Z");
    assert_eq!(made["period_end"], "2026-04-01T00:00:00.000Z");
    let (total, made) = scene.budget("organization", "total", "1", true).await;
    assert_eq!((&made["period_start"], &made["period_end"]), (&Value::Null, &Value::Null));
    scene.report("1", 0, CALL, &[]).await;
    assert!(scene.refused(0).await.contains("\"organization day\" (2026-03-10)"));
    set_time(&mut scene, "2026-03-11T00:00:00Z").await;
    assert_eq!(scene.state(&day).await, ["0", "0", "0.001"]);
    assert_eq!(scene.state(&month).await, ["0.00062", "0", "0.00138"]);
    scene.report("2", 0, CALL, &[]).await;
    set_time(&mut scene, "2026-03-31T23:59:59Z").await;
    scene.report("3", 0, CALL, &[]).await;
    assert_eq!(scene.state(&month).await, ["0.00186", "0", "0.00014"]);
    assert!(scene.refused(0).await.contains("\"organization day\" (2026-03-31)"));
    set_time(&mut scene, "2026-04-01T00:00:00Z").await;
    assert_eq!(scene.state(&month).await, ["0", "0", "0.002"]);
    assert_eq!(scene.state(&total).await, ["0.00186", "0", "0.99814"]);
    scene.reserve(0).await;
    scene.check().await;
}

#[on_each_database]
async fn usage_counts_in_the_period_of_its_day(world: World) {
    let mut scene = Scene::new(&world).await;
    scene.report("old", 0, CALL, &[("time", json!("2026-03-09T23:59:59.999Z"))]).await;
    let (day, made) = scene.budget("api_key", "day", "0.01", true).await;
    assert_eq!(state(&made)[0], "0", "yesterday's usage belongs to another day");
    let (month, made) = scene.budget("api_key", "month", "0.01", true).await;
    assert_eq!(state(&made)[0], "0.00062");
    let (total, made) = scene.budget("api_key", "total", "0.01", true).await;
    assert_eq!(state(&made)[0], "0.00062");
    // Late events count in their own periods: yesterday and last month.
    scene.report("late", 0, CALL, &[("time", json!("2026-03-09T10:00:00Z"))]).await;
    scene.report("later", 0, CALL, &[("time", json!("2026-02-28T10:00:00Z"))]).await;
    assert_eq!(scene.state(&day).await[0], "0");
    assert_eq!(scene.state(&month).await[0], "0.00124");
    assert_eq!(scene.state(&total).await[0], "0.00186");
    // Corrections reduce the period of the corrected event: 5 x 0.000002 + 50 x 0.000006 each.
    scene.report("today", 0, CALL, &[]).await;
    let half = [-5, -50];
    scene.report("c1", 0, half, &[("corrects", json!("today"))]).await;
    scene.report("c2", 0, half, &[("corrects", json!("later"))]).await;
    assert_eq!(scene.state(&day).await[0], "0.00031");
    assert_eq!(scene.state(&month).await[0], "0.00155");
    assert_eq!(scene.state(&total).await[0], "0.00186");
    scene.check().await;
    // Late usage and corrections of yesterday don't change today's budget.
    set_time(&mut scene, "2026-03-11T12:00:00Z").await;
    scene.report("c3", 0, half, &[("corrects", json!("today"))]).await;
    scene.report("late again", 0, CALL, &[("time", json!("2026-03-10T13:00:00Z"))]).await;
    assert_eq!(scene.state(&day).await[0], "0");
    assert_eq!(scene.state(&month).await[0], "0.00186");
    scene.check().await;
    // A month later March is closed, and its corrections become credit notes. The total is still reduced.
    set_time(&mut scene, "2026-04-03T12:00:00Z").await;
    scene.report("c4", 0, half, &[("corrects", json!("late"))]).await;
    assert_eq!(scene.state(&month).await[0], "0");
    assert_eq!(scene.state(&total).await[0], "0.00186");
    scene.check().await;
}

#[on_each_database]
async fn call_over_the_end_of_a_period_passes_neither_limit(world: World) {
    let mut scene = Scene::new(&world).await;
    let (day, _) = scene.budget("organization", "day", "0.001", true).await;
    set_time(&mut scene, "2026-03-10T23:59:59Z").await;
    let over = scene.reserve(0).await;
    // Reservations also count in the next day, because their usage may be of either day.
    set_time(&mut scene, "2026-03-11T00:00:01Z").await;
    assert_eq!(scene.state(&day).await, ["0", "0.00062", "0.00038"]);
    scene.refused(0).await;
    scene.report("1", 0, CALL, &[("reservation_id", json!(over))]).await;
    assert_eq!(scene.state(&day).await, ["0.00062", "0", "0.00038"]);
    scene.refused(0).await;
    scene.check().await;
}

#[on_each_database]
async fn expired_reservation_is_free_again(world: World) {
    let mut scene = Scene::new(&world).await;
    let (day, _) = scene.budget("api_key", "day", "0.001", true).await;
    scene.reserve(0).await;
    scene.refused(0).await;
    world.clock.advance_ms(10 * 60_000 + 1);
    assert_eq!(expire_due(&world.app.billing).await.unwrap(), 1);
    assert_eq!(scene.state(&day).await, ["0", "0", "0.001"]);
    // A repeated request id finds its reservation. After the reservation has expired, the same id creates a
    // new one, even before the job has run.
    let question = json!({"credential": scene.keys[0].1, "operation": "chat", "model": "svc-1",
        "estimated_prompt_tokens": CALL[0], "max_tokens": CALL[1], "request_id": "again"});
    let asked = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!(asked["allowed"], true, "{asked}");
    let repeated = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!(repeated["reservation"], asked["reservation"]);
    assert_eq!(scene.state(&day).await, ["0", "0.00062", "0.00038"]);
    world.clock.advance_ms(10 * 60_000 + 1);
    let asked = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!(asked["allowed"], true, "{asked}");
    assert_eq!(scene.state(&day).await, ["0", "0.00062", "0.00038"]);
    scene.check().await;
    scene.ada = world.session(scene.ada.id).await;
}

#[on_each_database]
async fn usage_of_deleted_keys_and_projects_still_counts(world: World) {
    let scene = Scene::new(&world).await;
    let (organization, _) = scene.budget("organization", "month", "1", true).await;
    let (project, _) = scene.budget("project", "month", "1", true).await;
    let (key, _) = scene.budget("api_key", "month", "1", true).await;
    let reservation = scene.reserve(0).await;
    let path = format!("{}/api-keys/{}", scene.place.project_path(), scene.keys[0].0);
    world.call(Method::DELETE, &path).bearer(&scene.ada.access_token).data().await;
    let project_path = scene.place.project_path();
    world.call(Method::DELETE, &project_path).bearer(&scene.ada.access_token).data().await;
    scene.report("1", 0, CALL, &[("reservation_id", json!(reservation))]).await;
    for budget in [&organization, &project, &key] {
        assert_eq!(scene.state(budget).await, ["0.00062", "0", "0.99938"]);
    }
    scene.check().await;
    assert_eq!(world.clock.now().unix_ms() % DAY_MS, Time::parse(START).unwrap().unix_ms() % DAY_MS);
}
