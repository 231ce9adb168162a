//! Accounts over HTTP (docs/contract/accounts.md).

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, HOUR_MS};

use support::world::{PASSWORD, START, World};
use support::{Database, on_each_database};

fn ada() -> Value {
    json!({"email": "Ada@Example.com", "password": PASSWORD, "username": "Ada", "full_name": "Ada Lovelace",
           "phone": "+44 1632 960961"})
}

async fn login(world: &World, password: &str) -> Value {
    let body = json!({"email": "ada@example.COM", "password": password, "remember_me": true});
    world.post("/v1/auth/login", &body).data().await
}

#[on_each_database]
async fn from_registration_to_logout(world: World) {
    let registered = world.post("/v1/auth/register", &ada()).data().await;
    assert_eq!(registered["verification_email_sent"], true);
    let user = &registered["user"];
    assert_eq!(user["email"], "Ada@Example.com");
    assert_eq!(user["username"], "Ada");
    assert_eq!(user["full_name"], "Ada Lovelace");
    assert_eq!(user["created_at"], START);
    assert!(user["id"].as_str().unwrap().starts_with("user_"));

    let token = world.mailed_token("Ada@Example.com").await;
    let verified = world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
    assert_eq!(verified, json!({"email": "Ada@Example.com", "verified": true, "verified_at": START}));

    let tokens = login(&world, PASSWORD).await;
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["expires_in"], 3600);
    assert_eq!(tokens["user"]["id"], user["id"]);
    let access = tokens["access_token"].as_str().unwrap();

    let me = world.get("/v1/auth/me").bearer(access).data().await;
    let expected = json!({"user": {"id": user["id"], "email": "Ada@Example.com", "username": "Ada",
        "full_name": "Ada Lovelace", "phone": "+441632960961", "created_at": START, "email_verified": true,
        "phone_verified": false, "last_login_at": START}});
    assert_eq!(me, expected);

    let out = world.post("/v1/auth/logout", &json!({})).bearer(access).data().await;
    assert!(out["message"].is_string());
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let refused = world.get("/v1/auth/me").bearer(access).refused().await;
    assert_eq!(refused, (401, "invalid_access_token".into()));
    let refused = world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).refused().await;
    assert_eq!(refused, (401, "invalid_refresh_token".into()));
}

#[on_each_database]
async fn refresh_token_gives_access_tokens_for_thirty_days(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let tokens = login(&world, PASSWORD).await;
    let (access, refresh) =
        (tokens["access_token"].as_str().unwrap(), tokens["refresh_token"].as_str().unwrap());
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(world.get("/v1/auth/me").bearer(access).refused().await.0, 401);
    let refreshed = world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).data().await;
    assert_eq!(refreshed["token_type"], "Bearer");
    assert_eq!(refreshed["expires_in"], 3600);
    assert_eq!(refreshed.as_object().unwrap().len(), 3);
    world.get("/v1/auth/me").bearer(refreshed["access_token"].as_str().unwrap()).data().await;
    world.clock.advance_ms(30 * DAY_MS - HOUR_MS);
    assert_eq!(world.post("/v1/auth/refresh-token", &json!({})).bearer(refresh).refused().await.0, 401);
}

#[on_each_database]
async fn access_and_refresh_tokens_are_not_interchangeable(world: World) {
    let ada = world.user("ada").await;
    let (access, refresh) = (&ada.access_token, &ada.refresh_token);
    assert_eq!(
        world.get("/v1/auth/me").bearer(refresh).refused().await,
        (401, "invalid_access_token".into())
    );
    let refused = world.post("/v1/auth/refresh-token", &json!({})).bearer(access).refused().await;
    assert_eq!(refused, (401, "invalid_refresh_token".into()));
    assert_eq!(world.get("/v1/models").bearer(refresh).refused().await, (401, "invalid_access_token".into()));
}

#[on_each_database]
async fn verification_token_works_once_and_for_a_day(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let body = json!({"token": world.mailed_token("Ada@Example.com").await});
    world.clock.advance_ms(DAY_MS);
    let refused = world.post("/v1/auth/verify-email", &body).refused().await;
    assert_eq!(refused, (400, "invalid_token".into()));
    world.clock.advance_ms(-1);
    world.post("/v1/auth/verify-email", &body).data().await;
    let answer = world.post("/v1/auth/verify-email", &body).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_token"));
    assert_eq!(answer.json()["error"]["param"], "token");
    for token in ["", "x", &"A".repeat(43)] {
        let refused = world.post("/v1/auth/verify-email", &json!({ "token": token })).refused().await;
        assert_eq!(refused, (400, "invalid_token".into()));
    }
}

#[on_each_database]
async fn all_invalid_fields_are_reported_together(world: World) {
    let body = json!({"email": "nobody", "password": "short", "username": "a b", "full_name": 5, "phone": "123",
                      "pasword": "x"});
    let answer = world.post("/v1/auth/register", &body).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    let details = answer.details();
    for due in [
        "email",
        "password password_too_short",
        "password password_needs_uppercase",
        "password password_needs_digit",
        "username",
        "full_name wrong_type",
        "phone",
        "pasword unknown_field",
    ] {
        assert!(details.iter().any(|detail| detail.starts_with(due)), "{due} is not in {details:?}");
    }
    assert!(answer.text.contains("did you mean `password`?"));
    assert_eq!(answer.json()["status_message"], "INVALID_REQUEST");
    assert_eq!(answer.json()["error"]["param"], "email");
}

#[on_each_database]
async fn email_and_username_are_unique(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let mut other = ada();
    other["username"] = json!("someone");
    let answer = world.post("/v1/auth/register", &other).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "email_taken"));
    assert_eq!(answer.json()["error"]["param"], "email");
    assert_eq!(answer.header("x-should-retry"), "false");
    other = ada();
    other["email"] = json!("other@example.com");
    other["username"] = json!("\u{ff21}da"); // A full-width A folds to the same name.
    let answer = world.post("/v1/auth/register", &other).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "username_taken"));
}

#[on_each_database]
async fn failed_login_answer_does_not_reveal_accounts(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let wrong =
        world.post("/v1/auth/login", &json!({"email": "ada@example.com", "password": "x"})).send().await;
    let unknown_email =
        world.post("/v1/auth/login", &json!({"email": "bob@example.com", "password": "x"})).send().await;
    assert_eq!((wrong.status, wrong.code().as_str()), (401, "invalid_credentials"));
    assert_eq!(wrong.text, unknown_email.text);
}

#[on_each_database(&[("TOLLKEEPER_REQUIRE_VERIFIED_EMAIL", "true")])]
async fn unverified_users_are_refused_when_so_configured(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let body = json!({"email": "ada@example.com", "password": PASSWORD});
    // A right password is never counted as a guess.
    for _ in 0..12 {
        let refused = world.post("/v1/auth/login", &body).refused().await;
        assert_eq!(refused, (403, "email_not_verified".into()));
    }
    let token = world.mailed_token("Ada@Example.com").await;
    world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
    world.post("/v1/auth/login", &body).data().await;
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__REGISTRATIONS_PER_MINUTE", "2")])]
async fn registrations_are_limited_by_address(world: World) {
    for _ in 0..2 {
        assert_eq!(world.post("/v1/auth/register", &json!({})).send().await.status, 400);
    }
    let answer = world.post("/v1/auth/register", &json!({})).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
    assert_eq!(answer.header("retry-after"), "30");
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "2");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0");
    let elsewhere = world.post("/v1/auth/register", &json!({})).from("192.0.2.9").send().await;
    assert_eq!(elsewhere.status, 400);
    world.clock.advance_ms(30_000);
    assert_eq!(world.post("/v1/auth/register", &json!({})).send().await.status, 400);
}

/// Returns the texts of the e-mails to this address, newest last.
async fn mails(world: &World, address: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts.filter(|text| text.contains(&format!("To: {address}"))).collect()
}

const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";

#[on_each_database]
async fn forgotten_password_is_reset_by_mail_once(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let before = login(&world, PASSWORD).await;
    mails(&world, "Ada@Example.com").await;
    world.clock.advance_ms(1);
    let answer = world.post("/v1/auth/forgot-password", &json!({"email": "ADA@example.com"})).data().await;
    assert_eq!(answer["email"], "ADA@example.com");
    let token = world.mailed_token("Ada@Example.com").await;
    let reset =
        |password: &str| json!({"token": token, "password": password, "password_confirmation": password});
    // A password that breaks a rule leaves the token valid.
    let weak = world.post("/v1/auth/reset-password", &reset("short")).send().await;
    assert_eq!((weak.status, weak.code().as_str()), (400, "invalid_request"));
    assert!(weak.details().contains(&"password password_too_short".to_owned()));
    let mut twice = reset(NEW_PASSWORD);
    twice["password_confirmation"] = json!("Another-Kettle-9");
    let twice = world.post("/v1/auth/reset-password", &twice).send().await;
    assert_eq!(twice.details(), ["password_confirmation does_not_match"]);
    let done = world.post("/v1/auth/reset-password", &reset(NEW_PASSWORD)).data().await;
    assert_eq!(done["email"], "Ada@Example.com");
    let again = world.post("/v1/auth/reset-password", &reset(NEW_PASSWORD)).refused().await;
    assert_eq!(again, (400, "invalid_token".into()));
    // Every session has ended, and only the new password works.
    for (method, token) in [("me", "access_token"), ("refresh-token", "refresh_token")] {
        let path = format!("/v1/auth/{method}");
        let call = if method == "me" { world.get(&path) } else { world.post(&path, &json!({})) };
        assert_eq!(call.bearer(before[token].as_str().unwrap()).refused().await.0, 401);
    }
    let old = json!({"email": "ada@example.com", "password": PASSWORD});
    assert_eq!(world.post("/v1/auth/login", &old).refused().await.0, 401);
    let tokens = login(&world, NEW_PASSWORD).await;
    let me = world.get("/v1/auth/me").bearer(tokens["access_token"].as_str().unwrap()).data().await;
    assert_eq!(me["user"]["email_verified"], true, "the link proves access to the mailbox");
    let is_notice = |mail: &String| mail.contains("Subject: Your password was changed");
    assert!(mails(&world, "Ada@Example.com").await.iter().any(is_notice));
}

#[on_each_database]
async fn reset_token_lives_an_hour_and_a_new_one_voids_it(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let ask = json!({"email": "ada@example.com"});
    let reset = async |token: &str| {
        let body = json!({"token": token, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
        world.post("/v1/auth/reset-password", &body).send().await.status
    };
    world.post("/v1/auth/forgot-password", &ask).data().await;
    let first = world.mailed_token("Ada@Example.com").await;
    world.clock.advance_ms(1);
    world.post("/v1/auth/forgot-password", &ask).data().await;
    let second = world.mailed_token("Ada@Example.com").await;
    assert_ne!(first, second);
    assert_eq!(reset(&first).await, 400);
    world.clock.advance_ms(HOUR_MS);
    assert_eq!(reset(&second).await, 400);
    world.clock.advance_ms(-1);
    assert_eq!(reset(&second).await, 200);
}

#[on_each_database]
async fn forgot_password_does_not_reveal_accounts(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let mut answers = Vec::new();
    for email in ["ada@example.com", "bob@example.com"] {
        let before = world.app.db.statement_count();
        let answer = world.post("/v1/auth/forgot-password", &json!({ "email": email })).send().await;
        answers.push((
            answer.status,
            answer.text.replace(email, ""),
            world.app.db.statement_count() - before,
        ));
    }
    assert_eq!(answers[0], answers[1], "the same words by the same statements");
    assert_eq!(mails(&world, "bob@example.com").await, Vec::<String>::new());
    assert_eq!(mails(&world, "Ada@Example.com").await.len(), 2);
}

#[on_each_database]
async fn failed_login_runs_the_same_statements_with_and_without_account(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let mut counts = Vec::new();
    for email in ["ada@example.com", "bob@example.com"] {
        let before = world.app.db.statement_count();
        let body = json!({"email": email, "password": "Wrong-Password-1"});
        assert_eq!(world.post("/v1/auth/login", &body).refused().await.0, 401);
        counts.push(world.app.db.statement_count() - before);
    }
    assert_eq!(counts[0], counts[1]);
}

#[on_each_database]
async fn password_resets_are_limited_to_five_an_hour_for_an_address(world: World) {
    for email in
        ["ada@example.com", "ADA@example.com", "Ada@Example.com", "aDa@example.com", "ada@EXAMPLE.com"]
    {
        world.post("/v1/auth/forgot-password", &json!({ "email": email })).data().await;
        world.clock.advance_ms(60_000);
    }
    let answer = world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).send().await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "too_many_attempts"));
    assert_eq!(answer.header("retry-after"), (55 * 60).to_string());
    world.post("/v1/auth/forgot-password", &json!({"email": "bob@example.com"})).data().await;
    world.clock.advance_ms(55 * 60_000);
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
}

#[on_each_database]
async fn changed_password_ends_the_other_sessions(world: World) {
    world.post("/v1/auth/register", &ada()).data().await;
    let token = world.mailed_token("Ada@Example.com").await;
    world.post("/v1/auth/verify-email", &json!({ "token": token })).data().await;
    let (one, other) = (login(&world, PASSWORD).await, login(&world, PASSWORD).await);
    let token = |tokens: &Value| tokens["access_token"].as_str().unwrap().to_owned();
    let change = |current: &str, new: &str, again: &str| {
        let body =
            json!({"current_password": current, "new_password": new, "new_password_confirmation": again});
        world.post("/v1/auth/change-password", &body).bearer(&token(&one))
    };
    let refused = change("Wrong-1-Wrong", NEW_PASSWORD, NEW_PASSWORD).refused().await;
    assert_eq!(refused, (401, "wrong_password".into()));
    let answer = change(PASSWORD, "ada", "bda").send().await;
    assert!(
        answer.details().contains(&"new_password_confirmation does_not_match".to_owned()),
        "{}",
        answer.text
    );
    let answer = change(PASSWORD, "ada", "ada").send().await;
    assert!(answer.details().contains(&"new_password password_needs_digit".to_owned()), "{}", answer.text);
    let changed = change(PASSWORD, NEW_PASSWORD, NEW_PASSWORD).data().await;
    assert_eq!(changed["updated_at"], START);
    world.get("/v1/auth/me").bearer(&token(&one)).data().await;
    assert_eq!(world.get("/v1/auth/me").bearer(&token(&other)).refused().await.0, 401);
    login(&world, NEW_PASSWORD).await;
    let is_notice = |mail: &String| mail.contains("Subject: Your password was changed");
    assert!(mails(&world, "Ada@Example.com").await.iter().any(is_notice));
}

#[on_each_database]
fn guesses_wait_after_ten_and_parallel_guesses_gain_nothing(database: Database) {
    // The queue is so long that one network's share of it holds all these guesses.
    database.run(&[("TOLLKEEPER_PASSWORDS__QUEUE", "1000")], async |world| {
        world.post("/v1/auth/register", &ada()).data().await;
        let guess = || {
            world
                .post("/v1/auth/login", &json!({"email": "ada@example.com", "password": "Wrong-1-Wrong"}))
                .send()
        };
        let answers = futures_util::future::join_all((0..64).map(|_| guess())).await;
        let guessed = answers.iter().filter(|answer| answer.status == 401).count();
        assert_eq!(guessed, 10);
        let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
        assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("too_many_attempts", "1"));
        // The owner waits as well, but not forever; after that the account works as before.
        let right = json!({"email": "ada@example.com", "password": PASSWORD});
        assert_eq!(world.post("/v1/auth/login", &right).refused().await.0, 429);
        world.clock.advance_ms(1_000);
        world.post("/v1/auth/login", &right).data().await;
        for _ in 0..9 {
            assert_eq!(guess().await.status, 401);
        }
        world.post("/v1/auth/login", &right).data().await;
    });
}
