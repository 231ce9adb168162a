//! Validity of codes, and how often each can be used.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::json;
use tollkeeper::clock::SECOND_MS;

use super::{entries, logged_in, login, mails, post, refusals, state};
use support::authenticator::{STEP_MS, texts};
use support::on_each_database;
use support::twin::Twin;
use support::world::{PASSWORD, World};

const REFUSED: (u16, &str) = (401, "invalid_one_time_code");
const NO_LIMITS: &[(&str, &str)] =
    &[("TOLLKEEPER_LIMITS__ENABLED", "false"), ("TOLLKEEPER_PASSWORDS__QUEUE", "2000")];

#[on_each_database(NO_LIMITS)]
async fn code_is_good_one_step_early_and_late_and_once(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    world.clock.advance_ms(10 * STEP_MS);
    let step = world.clock.now().unix_seconds() / 30;
    let refused = async |step: i64| {
        let (status, code) = login(&world, PASSWORD, &app.code_of(step)).refused().await;
        assert_eq!((status, code.as_str()), REFUSED, "{step}");
    };
    refused(step - 2).await;
    refused(step + 2).await;
    logged_in(&world, &app.code_of(step - 1)).await;
    refused(step - 1).await;
    logged_in(&world, &app.code_of(step)).await;
    refused(step).await;
    // Once the next code has been used, no earlier code is valid.
    logged_in(&world, &app.code_of(step + 1)).await;
    for step in [step - 1, step, step + 1] {
        refused(step).await;
    }
    world.clock.advance_ms(STEP_MS - 1);
    refused(step + 1).await;
    world.clock.advance_ms(1);
    logged_in(&world, &app.code_of(step + 2)).await;
}

#[on_each_database]
async fn person_may_type_spaces(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    let code = app.code(world.clock.now());
    logged_in(&world, &format!(" {} {}", &code[..3], &code[3..])).await;
    logged_in(&world, &codes[0].to_lowercase().replace('-', " ")).await;
    let (status, code) = login(&world, PASSWORD, &codes[0]).refused().await;
    assert_eq!((status, code.as_str()), REFUSED);
}

#[on_each_database(NO_LIMITS)]
async fn of_64_uses_of_one_code_at_once_one_wins(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    for code in [app.code(world.clock.now()), codes[3].clone()] {
        let answers = join_all((0..64).map(|number| {
            // A network can use only an eighth of the password queue, so each login comes from another
            // network.
            login(&world, PASSWORD, &code).from(&format!("10.0.{number}.1")).send()
        }));
        let mut won = 0;
        for answer in answers.await {
            match answer.status {
                200 => won += 1,
                status => assert_eq!((status, answer.code().as_str()), REFUSED),
            }
        }
        assert_eq!(won, 1, "{}", world.backend);
    }
}

#[on_each_database]
async fn recovery_code_works_once_and_is_told(world: World) {
    let ada = world.user("ada").await;
    let (_, codes) = world.add_authenticator(&ada.access_token).await;
    let token = logged_in(&world, &codes[0]).await;
    assert_eq!(state(&world, &token).await["recovery_codes_left"], 9);
    let (status, code) = login(&world, PASSWORD, &codes[0]).refused().await;
    assert_eq!((status, code.as_str()), REFUSED);
    let [mail] = mails(&world, "A recovery code was used on your account").await.try_into().unwrap();
    assert!(mail.contains("9 recovery codes are left.") && mail.contains("127.0.0.1"), "{mail}");
    assert!(!codes.iter().any(|code| mail.contains(code)));
    let id = ada.id.to_string();
    assert_eq!(entries(&world, "user.recovery_code_used").await, [[id.clone(), id.clone()]]);

    // A new set of codes invalidates the earlier set.
    let renewed = post(&world, &token, "/v1/auth/recovery-codes", &json!({})).data().await;
    let new = texts(&renewed["recovery_codes"]);
    assert_eq!((new.len(), new.iter().filter(|code| codes.contains(code)).count()), (10, 0));
    assert_eq!(state(&world, &token).await["recovery_codes_left"], 10);
    let (status, code) = login(&world, PASSWORD, &codes[1]).refused().await;
    assert_eq!((status, code.as_str()), REFUSED);
    logged_in(&world, &new[9]).await;
    assert_eq!(entries(&world, "user.recovery_codes_renewed").await, [[id.clone(), id]]);
}

#[on_each_database]
async fn codes_are_of_their_own_account(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    world.add_authenticator(&ada.access_token).await;
    let (app, codes) = world.add_authenticator(&bob.access_token).await;
    for code in [app.code(world.clock.now()), codes[0].clone()] {
        let (status, code) = login(&world, PASSWORD, &code).refused().await;
        assert_eq!((status, code.as_str()), REFUSED);
    }
    let without = world.user("eve").await;
    let refused = post(&world, &without.access_token, "/v1/auth/recovery-codes", &json!({}));
    assert_eq!(refused.refused().await, (404, "second_factor_not_found".into()));
}

#[on_each_database]
async fn wrong_password_tells_nothing_of_the_factor(world: World) {
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator(&ada.access_token).await;
    let code = app.code(world.clock.now());
    for sent in ["", "000000", &code, &codes[0]] {
        let refused = login(&world, "Wrong-Kettle-1", sent).refused().await;
        assert_eq!(refused, (401, "invalid_credentials".into()), "{sent}");
    }
    // The refused logins used up no code.
    logged_in(&world, &code).await;
    logged_in(&world, &codes[0]).await;
}

#[on_each_database]
async fn missing_and_wrong_codes_count_as_guesses(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    for number in 0..10 {
        let sent = if number % 2 == 0 { "" } else { "000000" };
        let expected = if number % 2 == 0 { "second_factor_required" } else { "invalid_one_time_code" };
        assert_eq!(login(&world, PASSWORD, sent).refused().await, (401, expected.into()), "{number}");
        world.clock.advance_ms(1);
    }
    // During the wait, even the right code is refused without being checked.
    let code = app.code(world.clock.now());
    let answer = login(&world, PASSWORD, &code).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"));
    assert_eq!(answer.header("retry-after"), "1");
    world.clock.advance_ms(SECOND_MS);
    logged_in(&world, &code).await;
    // A successful login resets the count.
    for _ in 0..9 {
        assert_eq!(login(&world, PASSWORD, "000000").refused().await.0, 401);
    }
    let reasons = refusals(&world).await;
    for reason in ["second_factor_required", "invalid_one_time_code", "too_many_attempts"] {
        assert!(reasons.iter().any(|found| found == reason), "{reason}: {reasons:?}");
    }
    // Five wrong codes came before the successful login and nine after it: the tenth triggered an e-mail.
    let [mail] = mails(&world, "Failed sign-in attempts on your account").await.try_into().unwrap();
    assert!(mail.contains("wrong password or code"), "{mail}");
}

/// Counted by hand: of 40 guesses, ten are checked and 30 have to wait, regardless of the server that gets
/// them.
#[on_each_database(&[("TOLLKEEPER_PASSWORDS__QUEUE", "1000")])]
async fn parallel_guesses_at_two_replicas_gain_nothing(world: World) {
    let ada = world.user("ada").await;
    world.add_authenticator(&ada.access_token).await;
    let twins = Twin::both(&world).await;
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "one_time_code": "000000"});
    let guesses = (0..40).map(|number| twins[number % 2].post("/v1/auth/login", &body).refused());
    let mut outcomes = BTreeMap::new();
    for outcome in join_all(guesses).await {
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    let expected =
        [((401, "invalid_one_time_code".to_owned()), 10), ((429, "too_many_attempts".to_owned()), 30)];
    assert_eq!(outcomes, BTreeMap::from(expected));
}
