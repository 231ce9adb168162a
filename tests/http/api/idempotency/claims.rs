//! Simultaneous requests with one key, and claims whose request was lost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tollkeeper::db::{Tx, sql};
use tollkeeper::idempotency::{self, Begun, LEASE_MS};

use super::{Request, assert_repeats, change, is_reused, number, scene};
use support::http::Answer;
use support::on_each_database;
use support::twin::Twin;
use support::world::World;

const RACERS: usize = 64;

fn is_in_progress(answer: &Answer) -> bool {
    answer.code() == "idempotency_in_progress"
        && (answer.status, answer.details().len()) == (409, 0)
        && (answer.header("x-should-retry"), answer.header("retry-after")) == ("true", "1")
        && answer.header("idempotency-replayed").is_empty()
}

/// Sends the requests on both servers at the same time.
async fn race(twins: &[Twin; 2], requests: &[Request], token: &str) -> Vec<Answer> {
    let start = Arc::new(Barrier::new(requests.len()));
    let tasks: Vec<_> = requests
        .iter()
        .zip(twins.iter().cycle())
        .map(|(request, twin)| {
            let call = twin.post(&request.path, &request.body).bearer(token).header("idempotency-key", "key");
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                call.send().await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[on_each_database]
async fn one_of_many_requests_is_done(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let twins = Twin::both(&world).await;
    for (round, operation) in
        ["create_organization", "create_api_key", "rotate_api_key"].into_iter().enumerate()
    {
        let request = scene.request(operation);
        let entries = number(&world, "SELECT COUNT(*) FROM audit_log").await;
        let answers = race(&twins, &vec![request.clone(); RACERS], token).await;
        let (done, waiting): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        assert!(waiting.iter().all(|answer| is_in_progress(answer)), "{answers:?}");
        let first: Vec<_> =
            done.iter().filter(|answer| answer.header("idempotency-replayed").is_empty()).collect();
        assert_eq!(first.len(), 1, "{answers:?}");
        assert!(done.iter().all(|answer| answer.text == first[0].text), "{answers:?}");
        assert_eq!(number(&world, "SELECT COUNT(*) FROM audit_log").await, entries + 1);
        let rows = i64::try_from(round).unwrap() + 1;
        assert_eq!(number(&world, "SELECT COUNT(*) FROM idempotency_keys").await, rows);
        assert_repeats(&request.send(&world, token, "key").await, first[0], "afterwards");
    }
}

#[on_each_database]
async fn one_of_many_bodies_is_done(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let twins = Twin::both(&world).await;
    let create = scene.request("create_project");
    let requests: Vec<_> = (0..RACERS)
        .map(|racer| Request { body: json!({"name": format!("Racer {racer}")}), ..create.clone() })
        .collect();
    let projects = number(&world, "SELECT COUNT(*) FROM projects").await;
    let answers = race(&twins, &requests, token).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        // Even while the first request runs, a request with another body is recognized as a different one.
        assert!(is_reused(answer) || is_in_progress(answer), "{}", answer.text);
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM projects").await, projects + 1);
}

#[on_each_database]
async fn running_request_is_waited_for_until_its_lease_ends(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    for request in &scene.requests {
        let first = request.send(&world, token, "key").await;
        assert_eq!(first.status, 200, "{}", first.text);
    }
    // As if their processes had died before the commit.
    change(&world, "UPDATE idempotency_keys SET answer = NULL").await;
    for request in &scene.requests {
        let waiting = request.send(&world, token, "key").await;
        assert!(is_in_progress(&waiting), "{}", waiting.text);
        let mut other = request.clone();
        other.path += "?a=b";
        let other = other.send(&world, token, "key").await;
        assert!(is_reused(&other), "{}", other.text);
    }
    let entries = number(&world, "SELECT COUNT(*) FROM audit_log").await;
    world.clock.advance_ms(LEASE_MS - 1);
    let rotate = scene.request("rotate_api_key");
    assert!(is_in_progress(&rotate.send(&world, token, "key").await));
    world.clock.advance_ms(1);
    let first = rotate.send(&world, token, "key").await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, ""), "{}", first.text);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM audit_log").await, entries + 1);
    assert_repeats(&rotate.send(&world, token, "key").await, &first, "the next attempt's answer");

    // Requests don't wait for a lease that was set by a clock that was ahead.
    change(&world, "UPDATE idempotency_keys SET answer = NULL, leased_until = leased_until + 86400000").await;
    assert_eq!(rotate.send(&world, token, "key").await.status, 200);
}

#[on_each_database]
async fn overtaken_attempt_can_not_finish(world: World) {
    let handle = &world.app.api.idempotency;
    let request = idempotency::Request::new("user_x", ["POST", "/v1/x"], "key", [b"", b"{}"]);
    let begin = async || match idempotency::begin(handle, &request).await {
        Ok(Begun::First(attempt)) => Ok(Ok(attempt)),
        Ok(Begun::Answered(answer)) => Ok(Err(answer)),
        Err(error) => Err(error.code.as_str()),
    };
    let slow = begin().await.unwrap().unwrap();
    assert_eq!(begin().await.unwrap_err(), "idempotency_in_progress");
    world.clock.advance_ms(LEASE_MS);
    let next = begin().await.unwrap().unwrap();
    assert_eq!(begin().await.unwrap_err(), "idempotency_in_progress");

    let finish = async |attempt, answer| {
        let mut tx = world.app.db.write().await.unwrap();
        idempotency::finish(handle, attempt, &mut tx, answer).await.map_err(|error| error.code.as_str())?;
        tx.commit().await.unwrap();
        Ok(())
    };
    assert_eq!(finish(&slow, b"slow").await, Err("idempotency_in_progress"));
    assert!(idempotency::keep(handle, &slow, b"slow").await.is_err());
    idempotency::release(handle, &slow).await.unwrap();
    assert_eq!(begin().await.unwrap_err(), "idempotency_in_progress");
    assert_eq!(finish(&next, b"next").await, Ok(()));
    // A stored answer is never replaced or released.
    assert_eq!(finish(&next, b"again").await, Err("idempotency_in_progress"));
    idempotency::release(handle, &next).await.unwrap();
    world.clock.advance_ms(LEASE_MS);
    assert_eq!(begin().await.unwrap().unwrap_err(), b"next");
}

/// Blocks operations on organizations until the transaction ends.
async fn hold(world: &World) -> Tx {
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE organizations SET updated_at = updated_at").execute(&mut tx).await.unwrap();
    tx
}

#[on_each_database]
async fn request_goes_on_when_its_client_hangs_up(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let create = scene.request("create_api_key");
    let keys = number(&world, "SELECT COUNT(*) FROM api_keys").await;
    let held = hold(&world).await;
    let client = tokio::spawn(create.keyed(&world, token, "key").send());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!client.is_finished());
    client.abort();
    assert!(client.await.unwrap_err().is_cancelled());
    assert_eq!(number(&world, "SELECT COUNT(*) FROM api_keys").await, keys);
    drop(held);
    let mut again = create.send(&world, token, "key").await;
    for _ in 0..200 {
        if again.status == 200 {
            break;
        }
        assert!(is_in_progress(&again), "{}", again.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
        again = create.send(&world, token, "key").await;
    }
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM api_keys").await, keys + 1);
    assert_repeats(&create.send(&world, token, "key").await, &again_as_first(again), "the next one");
}

#[on_each_database]
async fn overtaken_request_is_refused_and_undone(world: World) {
    let scene = scene(&world, "a").await;
    let token = &scene.owner.access_token;
    let create = scene.request("create_api_key");
    let keys = number(&world, "SELECT COUNT(*) FROM api_keys").await;
    let entries = number(&world, "SELECT COUNT(*) FROM audit_log").await;
    let held = hold(&world).await;
    // On SQLite both requests wait for the transaction before they claim the key.
    let slow = tokio::spawn(create.keyed(&world, token, "key").send());
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.clock.advance_ms(LEASE_MS);
    let next = tokio::spawn(create.keyed(&world, token, "key").send());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!slow.is_finished() && !next.is_finished());
    drop(held);
    let (slow, next) = (slow.await.unwrap(), next.await.unwrap());
    if world.app.db.is_postgres() {
        assert!(is_in_progress(&slow), "{}", slow.text);
        assert_eq!((next.status, next.header("idempotency-replayed")), (200, ""), "{}", next.text);
    } else {
        let both = [&slow, &next];
        assert!(both.iter().any(|answer| answer.status == 200), "{} {}", slow.text, next.text);
        assert!(both.iter().all(|answer| answer.status == 200 || is_in_progress(answer)), "{}", slow.text);
    }
    assert_eq!(number(&world, "SELECT COUNT(*) FROM api_keys").await, keys + 1);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM audit_log").await, entries + 1);
}

#[on_each_database(&[("TOLLKEEPER_CORS_ORIGINS", "https://app.example")])]
async fn pages_of_an_allowed_origin_see_that_an_answer_was_kept(world: World) {
    let scene = scene(&world, "a").await;
    let create = scene.request("create_organization");
    let call = create.keyed(&world, &scene.owner.access_token, "key").header("origin", "https://app.example");
    let exposed = call.send().await.header("access-control-expose-headers").to_owned();
    assert!(exposed.split(',').any(|name| name.trim() == "idempotency-replayed"), "{exposed}");
}

/// Returns an answer without the header that marks a replay.
fn again_as_first(mut answer: Answer) -> Answer {
    answer.headers.remove("idempotency-replayed");
    answer
}
