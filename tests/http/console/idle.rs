//! Sessions end when they aren't used, unless the user asked to stay signed in.

use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS};

use support::console::Browser;
use support::twin::Twin;
use support::world::World;
use support::{Database, on_each_database};

const PAGE: &str = "/console/organizations";

async fn status(world: &World, browser: &Browser) -> u16 {
    // Without a recent read of the feed, the session would be read from the database.
    world.catch_up().await;
    browser.get(world, PAGE).send().await.status
}

#[on_each_database]
async fn session_ends_after_twelve_hours_without_use(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    for _ in 0..4 {
        world.clock.advance_ms(12 * HOUR_MS - 1);
        assert_eq!(status(&world, &browser).await, 200, "each use counts");
    }
    world.clock.advance_ms(12 * HOUR_MS);
    assert_eq!(status(&world, &browser).await, 303);
    assert_eq!(status(&world, &browser).await, 303, "the session doesn't become valid again");
    let answer = browser.post(&world, "/console/organizations/new", &[("name", "x")]).send().await;
    assert_eq!(answer.status, 401);
}

#[on_each_database]
async fn remembered_session_lives_for_thirty_days(world: World) {
    let user = world.user("ada").await;
    let (browser, _) = world.browser_session(user.id, true).await;
    world.clock.advance_ms(30 * DAY_MS - 1_000);
    assert_eq!(status(&world, &browser).await, 200);
    world.clock.advance_ms(1_000);
    assert_eq!(status(&world, &browser).await, 303);
}

#[on_each_database]
fn idle_hours_can_be_changed(database: Database) {
    for (hours, after_a_day) in [("1", 303), ("25", 200), ("0", 200)] {
        database.run(&[("TOLLKEEPER_CONSOLE__IDLE_HOURS", hours)], async |world| {
            let user = world.user("ada").await;
            let browser = world.browser(user.id).await;
            world.clock.advance_ms(HOUR_MS - 1);
            assert_eq!(status(&world, &browser).await, 200);
            world.clock.advance_ms(24 * HOUR_MS);
            assert_eq!(status(&world, &browser).await, after_a_day, "{hours}");
        });
    }
}

#[on_each_database]
async fn session_that_ended_without_use_is_listed_no_more(world: World) {
    let user = world.user("ada").await;
    let (kept, _) = world.browser_session(user.id, true).await;
    let (_, left) = world.browser_session(user.id, false).await;
    let sessions = async || {
        let call = kept.get(&world, "/console/account/sessions");
        let page = call.send().await.text;
        (page.matches("<tr>").count(), page.contains(&left.to_string()))
    };
    let (before, is_listed) = sessions().await;
    assert!(is_listed);
    world.clock.advance_ms(12 * HOUR_MS - 1);
    assert_eq!(sessions().await, (before, true));
    world.clock.advance_ms(1);
    assert_eq!(sessions().await, (before - 1, false));
}

#[on_each_database]
async fn use_at_another_replica_counts(world: World) {
    let [one, other] = Twin::both(&world).await;
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    let at = async |twin: &Twin| {
        let call = browser.sends(twin.get(PAGE)).header("sec-fetch-site", "same-origin");
        support::twin::settle(twin).await;
        call.send().await.status
    };
    assert_eq!((at(&one).await, at(&other).await), (200, 200), "both replicas cache the session");
    for _ in 0..3 {
        world.clock.advance_ms(11 * HOUR_MS);
        assert_eq!(at(&one).await, 200);
    }
    assert_eq!(
        at(&other).await,
        200,
        "the other replica hasn't seen the session for 33 hours, but it was used"
    );
    world.clock.advance_ms(12 * HOUR_MS);
    assert_eq!((at(&other).await, at(&one).await), (303, 303));
}

#[on_each_database]
async fn last_use_is_stored_once_a_minute_and_costs_no_read(world: World) {
    let user = world.user("ada").await;
    let browser = world.browser(user.id).await;
    let statements = async || {
        world.catch_up().await;
        let before = world.app.db.statement_count();
        assert_eq!(browser.get(&world, "/console/sign-in").send().await.status, 303);
        assert_eq!(browser.get(&world, PAGE).send().await.status, 200);
        world.app.db.statement_count() - before
    };
    statements().await;
    let within_the_minute = statements().await;
    assert_eq!(statements().await, within_the_minute);
    world.clock.advance_ms(MINUTE_MS);
    let with_the_write = statements().await;
    assert!(with_the_write > within_the_minute, "{with_the_write} > {within_the_minute}");
    assert_eq!(statements().await, within_the_minute);
}
