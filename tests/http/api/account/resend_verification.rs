//! Another e-mail with a link that verifies the address.

use serde_json::json;
use tollkeeper::clock::HOUR_MS;

use super::{mails, register, text};
use support::http::Call;
use support::world::World;
use support::{Database, on_each_database};

const ADA: &str = "ada@example.com";
const SUBJECT: &str = "Confirm your e-mail address";

fn resend(world: &World, access_token: &str) -> Call {
    world.post("/v1/auth/resend-verification", &json!({})).bearer(access_token)
}

#[on_each_database]
async fn latest_link_works_and_earlier_ones_do_not(world: World) {
    let access = text(&register(&world, "ada").await, "access_token");
    let first = world.mailed_token(ADA).await;
    world.clock.advance_ms(1);
    let answer = resend(&world, &access).data().await;
    assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), ["message"]);
    let second = world.mailed_token(ADA).await;
    assert_ne!(first, second);
    assert_eq!(mails(&world, ADA, SUBJECT).await.len(), 2);
    let verify = |token: &str| world.post("/v1/auth/verify-email", &json!({ "token": token }));
    assert_eq!(verify(&first).refused().await, (400, "invalid_token".into()));
    verify(&second).data().await;
    // No further e-mail is sent.
    let answer = resend(&world, &access).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "email_already_verified"));
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(mails(&world, ADA, SUBJECT).await.len(), 2);
}

#[on_each_database]
async fn mails_are_bounded_together_with_that_of_the_registration(world: World) {
    let access = text(&register(&world, "ada").await, "access_token");
    for _ in 0..4 {
        resend(&world, &access).data().await;
    }
    let answer = resend(&world, &access).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"));
    assert_eq!(answer.header("retry-after"), (HOUR_MS / 1000).to_string());
    world.clock.advance_ms(HOUR_MS - 1);
    world.catch_up().await;
    assert_eq!(resend(&world, &access).send().await.status, 429);
    assert_eq!(mails(&world, ADA, SUBJECT).await.len(), 5);
}

/// A session that was opened before the setting still works. Without a session, a new password verifies the
/// address too.
#[on_each_database]
fn session_of_an_unverified_person_is_needed(database: Database) {
    database.run(&[], async |world| {
        for bearer in ["", "nonsense"] {
            assert_eq!(resend(&world, bearer).send().await.status, 401);
        }
    });
    database.run(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")], async |world| {
        let ada = world.unverified_user("ada").await;
        resend(&world, &ada.access_token).data().await;
        world.mailed_token(ADA).await;
    });
}
