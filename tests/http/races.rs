//! 64 concurrent requests of which only one can succeed, alternating between two servers with one database.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tollkeeper::db::sql;

use support::http::{Answer, Call};
use support::on_each_database;
use support::twin::Twin;
use support::world::{PASSWORD, World};

const RACERS: usize = 64;

/// With these settings, several hashes end at about the same time on each server, so that the writes after
/// them race in the database. No request is delayed by the rate of an address or its share of the queue.
const SETTINGS: [(&str, &str); 4] = [
    ("TOLLKEEPER_PASSWORDS__HASH_THREADS", "8"),
    ("TOLLKEEPER_PASSWORDS__QUEUE", "1000"),
    ("TOLLKEEPER_LIMITS__REGISTRATIONS_PER_MINUTE", "10000"),
    ("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "10000"),
];

/// Sends each request in its own task; no task starts before all are ready.
async fn race(twins: &[Twin; 2], call: impl Fn(&Twin, usize) -> Call) -> Vec<Answer> {
    let start = Arc::new(Barrier::new(RACERS));
    let tasks: Vec<_> = (0..RACERS)
        .map(|number| {
            let (start, call) = (Arc::clone(&start), call(&twins[number % 2], number));
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

/// Counts each status and code.
fn tally(answers: &[Answer]) -> BTreeMap<(u16, String), usize> {
    let mut tally = BTreeMap::new();
    for answer in answers {
        *tally.entry((answer.status, answer.code())).or_insert(0) += 1;
    }
    tally
}

fn expected<const N: usize>(counts: [(u16, &str, usize); N]) -> BTreeMap<(u16, String), usize> {
    counts.into_iter().map(|(status, code, count)| ((status, code.to_owned()), count)).collect()
}

fn winner(answers: &[Answer]) -> usize {
    answers.iter().position(|answer| answer.status == 200).unwrap()
}

fn account(email: &str, username: &str) -> Value {
    json!({"email": email, "password": PASSWORD, "username": username})
}

async fn login(twin: &Twin, email: &str, password: &str) -> Answer {
    twin.post("/v1/auth/login", &json!({"email": email, "password": password})).send().await
}

async fn mails_waiting(world: &World) -> i64 {
    tollkeeper::mail::store::outbox::count(&mut world.app.db.read().await.unwrap()).await.unwrap()
}

#[on_each_database(&SETTINGS)]
async fn one_of_many_registrations_gets_the_email_and_one_the_username(world: World) {
    let twins = Twin::both(&world).await;
    let answers = race(&twins, |twin, n| {
        // The same address in two spellings.
        let email = if n < RACERS / 2 { "ada@example.com" } else { "ADA@Example.com" };
        twin.post("/v1/auth/register", &account(email, &format!("ada{n}")))
    })
    .await;
    let lost = RACERS - 1;
    assert_eq!(tally(&answers), expected([(200, "", 1), (409, "email_taken", lost)]));
    assert_eq!(mails_waiting(&world).await, 1, "the refused requests sent no mail");

    let answers = race(&twins, |twin, n| {
        let name = if n < RACERS / 2 { "bob" } else { "BOB" };
        twin.post("/v1/auth/register", &account(&format!("bob{n}@example.com"), name))
    })
    .await;
    assert_eq!(tally(&answers), expected([(200, "", 1), (409, "username_taken", lost)]));
    assert_eq!(mails_waiting(&world).await, 2);
    for (n, answer) in answers.iter().enumerate().filter(|(n, _)| n % 16 == winner(&answers) % 16) {
        let status = login(&twins[0], &format!("bob{n}@example.com"), PASSWORD).await.status;
        assert_eq!(status, if answer.status == 200 { 200 } else { 401 }, "racer {n}");
    }
}

#[on_each_database(&SETTINGS)]
async fn one_of_many_requests_uses_a_verification_token(world: World) {
    let twins = Twin::both(&world).await;
    twins[0].post("/v1/auth/register", &account("ada@example.com", "ada")).data().await;
    let body = json!({"token": world.mailed_token("ada@example.com").await});
    let answers = race(&twins, |twin, _| twin.post("/v1/auth/verify-email", &body)).await;
    assert_eq!(tally(&answers), expected([(200, "", 1), (400, "invalid_token", RACERS - 1)]));
}

#[on_each_database(&SETTINGS)]
async fn one_of_many_requests_uses_a_reset_token(world: World) {
    let twins = Twin::both(&world).await;
    world.user("ada").await;
    let asked = twins[0].post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"}));
    asked.data().await;
    let token = world.mailed_token("ada@example.com").await;
    let password = |n: usize| format!("Violet-Kettle-Orbit-{n}");
    let answers = race(&twins, |twin, n| {
        let new = password(n);
        let body = json!({"token": token, "password": new, "password_confirmation": new});
        twin.post("/v1/auth/reset-password", &body)
    })
    .await;
    assert_eq!(tally(&answers), expected([(200, "", 1), (400, "invalid_token", RACERS - 1)]));
    // The password is that of the successful request.
    let won = winner(&answers);
    assert_eq!(login(&twins[1], "ada@example.com", &password(won)).await.status, 200);
    let lost = (won + 1) % RACERS;
    assert_eq!(login(&twins[1], "ada@example.com", &password(lost)).await.status, 401);
}

#[on_each_database(&SETTINGS)]
async fn one_of_many_requests_changes_a_password(world: World) {
    let twins = Twin::both(&world).await;
    let ada = world.user("ada").await;
    let password = |n: usize| format!("Violet-Kettle-Orbit-{n}");
    let answers = race(&twins, |twin, n| {
        let new = password(n);
        let body = json!({"current_password": PASSWORD, "new_password": new,
                          "new_password_confirmation": new});
        twin.post("/v1/auth/change-password", &body).bearer(&ada.access_token)
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{:?}", tally(&answers));
    assert!(answers.iter().all(|answer| [200, 401, 429].contains(&answer.status)), "{:?}", tally(&answers));
    world.clock.advance_ms(15 * tollkeeper::clock::MINUTE_MS);
    assert_eq!(login(&twins[1], "ada@example.com", &password(winner(&answers))).await.status, 200);
}

#[on_each_database(&SETTINGS)]
async fn concurrent_guesses_are_limited_to_ten(world: World) {
    let twins = Twin::both(&world).await;
    let ada = world.user("ada").await;
    // Guesses at the login and within a session are guesses at the same password.
    let answers = race(&twins, |twin, n| {
        let guess = format!("Wrong-Kettle-{n}");
        if n % 4 < 2 {
            twin.post("/v1/auth/login", &json!({"email": "ada@example.com", "password": guess}))
        } else {
            let new = "Violet-Kettle-Orbit-9";
            let body = json!({"current_password": guess, "new_password": new,
                              "new_password_confirmation": new});
            twin.post("/v1/auth/change-password", &body).bearer(&ada.access_token)
        }
    })
    .await;
    let mut tally = tally(&answers);
    let told_apart = ["invalid_credentials", "wrong_password"];
    let checked: usize = told_apart.iter().filter_map(|code| tally.remove(&(401, (*code).to_owned()))).sum();
    assert_eq!((checked, tally), (10, expected([(429, "too_many_attempts", RACERS - 10)])));
}

#[on_each_database(&SETTINGS)]
async fn refused_guess_computes_no_hash(world: World) {
    let twins = Twin::both(&world).await;
    world.user("ada").await;
    for email in ["ada@example.com", "nobody@example.com"] {
        let body = json!({"email": email, "password": "Wrong-Kettle-1"});
        let answers = race(&twins, |twin, _| twin.post("/v1/auth/login", &body)).await;
        let due = [(401, "invalid_credentials", 10), (429, "too_many_attempts", RACERS - 10)];
        assert_eq!(tally(&answers), expected(due));
    }
    // From now on, a request that reaches the hasher finds an unreadable hash.
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE users SET password_hash = 'damaged'").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let body = json!({"email": "ada@example.com", "password": "Wrong-Kettle-1"});
    let answers = race(&twins, |twin, _| twin.post("/v1/auth/login", &body)).await;
    assert_eq!(tally(&answers), expected([(429, "too_many_attempts", RACERS)]));
    world.clock.advance_ms(1_000);
    assert_eq!(login(&twins[0], "ada@example.com", "Wrong-Kettle-1").await.status, 500);
}
