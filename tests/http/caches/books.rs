//! The queue of the books: its limit, and callers that disconnect.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tollkeeper::billing::books::{Lifetime, Release, Reserve, Timeouts, submit, submit_with_timeouts};
use tollkeeper::billing::store::reservations::NewReservation;
use tollkeeper::db::{Tx, sql};
use tollkeeper::error::Code;
use tollkeeper::ids::{CallerId, OrganizationId, ProjectId, ReservationId, UserId};
use tollkeeper::money::Nano;

use support::books::{assert_books, number, wallet};
use support::on_each_database;
use support::world::{Place, START, World};

/// Locks the wallets until the transaction is dropped.
async fn lock_wallets(world: &World) -> Tx {
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE wallets SET updated_at = updated_at").execute(&mut tx).await.unwrap();
    tx
}

/// Waits until this many entries have been queued and a transaction has taken all of them.
async fn until_taken(world: &World, pieces: u64) {
    for _ in 0..10_000 {
        if world.app.billing.books.submitted() >= pieces && world.app.billing.books.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("no leader");
}

fn reserve(world: &World, place: &Place) -> Reserve {
    let new = NewReservation {
        id: ReservationId::new(world.clock.now(), &world.app.random),
        organization_id: OrganizationId::parse(&place.organization).unwrap(),
        project_id: ProjectId::parse(&place.project).unwrap(),
        caller: CallerId::User(UserId::new(world.clock.now(), &world.app.random)),
        model: "svc-1".to_owned(),
        amount: Nano::from_units(1),
        request_id: None,
        began_at: world.clock.now(),
    };
    Reserve { new, max_concurrent: 100, lifetime: Lifetime::Reported }
}

#[on_each_database]
async fn queue_is_bounded_and_loses_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let held = lock_wallets(&world).await;
    let (app, work) = (world.app.clone(), reserve(&world, &place));
    let first = tokio::spawn(async move { submit(&app.billing, work).await });
    until_taken(&world, 1).await;
    let unknown_id = ReservationId::parse("res_01h2xcejqtf2nbrexx3vqjhp41").unwrap();
    let calls = (0..10_003).map(|_| submit(&world.app.billing, Release { id: unknown_id, call: None }));
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(world.app.billing.books.len(), 10_000);
        drop(held);
    };
    let (answers, ()) = tokio::join!(join_all(calls), let_go);
    let full =
        answers.iter().filter(|answer| matches!(answer, Err(error) if error.code == Code::BooksQueueFull));
    assert_eq!(full.count(), 3);
    let released = answers.iter().filter(|answer| matches!(answer, Ok(false)));
    assert_eq!(released.count(), 10_000);
    assert!(matches!(first.await.unwrap(), Ok(Ok(_))));
    assert!(world.app.billing.books.is_empty());
    assert_books(&world).await;
}

#[on_each_database]
async fn canceled_caller_changes_nothing(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let (key, _) = world.key(&ada, &place, &json!({"name": "k"})).await;
    let event = |id: &str| {
        json!({"events": [{"id": id, "source": "s", "time": START, "api_key_id": key, "model": "svc-1", "kind": "chat",
            "prompt_tokens": 1}]})
    };
    let held = lock_wallets(&world).await;
    tokio::select! {
        answer = world.ask("/service/v1/usage", &event("a")).send() => panic!("it was answered early: {}", answer.text),
        () = until_taken(&world, 1) => {}
    }
    let stays = world.ask("/service/v1/usage", &event("b")).send();
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(held);
    };
    let (answer, ()) = tokio::join!(stays, let_go);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(number(&world, "SELECT COUNT(*) FROM usage_events").await, 2);
    assert_eq!(wallet(&world, &place.organization).await, (-4_000, 0));
    assert_books(&world).await;
}

#[on_each_database]
async fn queued_work_shares_one_transaction(world: World) {
    let ada = world.user("ada").await;
    let place = Arc::new(world.place(&ada, "Acme").await);
    let held = lock_wallets(&world).await;
    let (app, work) = (world.app.clone(), reserve(&world, &place));
    let first = tokio::spawn(async move { submit(&app.billing, work).await });
    until_taken(&world, 1).await;
    let before = world.app.db.statement_count();
    let calls = (0..64).map(|_| submit(&world.app.billing, reserve(&world, &place)));
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(held);
    };
    let (answers, ()) = tokio::join!(join_all(calls), let_go);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Ok(_)))));
    assert!(matches!(first.await.unwrap(), Ok(Ok(_))));
    // Lock, count, insert and write, and the remaining statements of the first transaction.
    assert!(world.app.db.statement_count() - before <= 8, "{}", world.app.db.statement_count() - before);
    assert_eq!(wallet(&world, &place.organization).await, (0, 65));
    assert_books(&world).await;
}

#[on_each_database]
async fn work_not_taken_in_time_is_refused_and_not_done(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let held = lock_wallets(&world).await;
    let (app, work) = (world.app.clone(), reserve(&world, &place));
    // The first entry gets enough time for a transaction to take it, and then no longer waits in the queue.
    let patience = Timeouts { queued: Duration::from_millis(100), answer: Duration::from_mins(1) };
    let long = Timeouts { queued: Duration::from_secs(2), ..patience };
    let first = tokio::spawn(async move { submit_with_timeouts(&app.billing, work, long).await });
    until_taken(&world, 1).await;
    let calls = (0..64).map(|_| submit_with_timeouts(&world.app.billing, reserve(&world, &place), patience));
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap_err().code, Code::BooksQueueFull);
    }
    assert!(world.app.billing.books.is_empty());
    assert_eq!(world.app.billing.books.load()[1].0, 0, "nothing is queued");
    drop(held);
    assert!(matches!(first.await.unwrap(), Ok(Ok(_))));
    let answer = submit(&world.app.billing, reserve(&world, &place)).await;
    assert!(matches!(answer, Ok(Ok(_))), "the queue continues");
    assert_eq!(wallet(&world, &place.organization).await, (0, 2));
    assert_books(&world).await;
}

#[on_each_database]
async fn caller_of_a_slow_transaction_is_answered_and_it_goes_on(world: World) {
    let ada = world.user("ada").await;
    let place = world.place(&ada, "Acme").await;
    let held = lock_wallets(&world).await;
    let patience = Timeouts { queued: Duration::from_millis(500), answer: Duration::from_millis(50) };
    let (app, work) = (world.app.clone(), reserve(&world, &place));
    let first = tokio::spawn(async move { submit_with_timeouts(&app.billing, work, patience).await });
    until_taken(&world, 1).await;
    let refused = first.await.unwrap().unwrap_err();
    assert_eq!(refused.code, Code::DatabaseUnavailable);
    assert!(refused.public_message().contains("may still be booked"), "{refused}");
    drop(held);
    // The next transaction succeeds.
    let answer = submit(&world.app.billing, reserve(&world, &place)).await;
    assert!(matches!(answer, Ok(Ok(_))));
    assert_eq!(wallet(&world, &place.organization).await, (0, 2));
    assert_books(&world).await;
}
