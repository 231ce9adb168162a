//! Logins with the old password during a password change on another server with the same database.

use serde_json::json;
use tollkeeper::accounts::hasher::{Hasher, Verdict};
use tollkeeper::app::App;
use tollkeeper::db::sql;
use tollkeeper::error::Error;
use tollkeeper::kernel::networks::Network;
use tollkeeper::random::Random;

use super::NEW_PASSWORD;
use support::on_each_database;
use support::twin::{Twin, settle};
use support::world::{PASSWORD, TestUser, World};

/// Hashes run one at a time, so that a slow one delays those behind it.
const SETTINGS: [(&str, &str); 3] = [
    ("TOLLKEEPER_PASSWORDS__HASH_THREADS", "1"),
    ("TOLLKEEPER_PASSWORDS__QUEUE", "1000"),
    ("TOLLKEEPER_LIMITS__LOGINS_PER_MINUTE", "10000"),
];

/// A slow hash: 64 MiB, twelve passes.
const SLOW: &str = "$argon2id$v=19$m=65536,t=12,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

const LOGINS: usize = 3;
/// Slow hashes queued before the logins: more than can run while the new password is set.
const SLOW_HASHES: usize = 30;

/// A running slow hash.
type Slow = tokio::task::JoinHandle<Result<Verdict, Error>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PasswordOperation {
    Change,
    Reset,
}

/// Waits until this many hashes run or wait behind the slow ones.
async fn until_queued(app: &App, slow: &[Slow], behind: usize) {
    loop {
        let in_front = slow.iter().filter(|slow| !slow.is_finished()).count();
        assert!(in_front > 0, "the machine is too busy for this test to show anything");
        if app.accounts.hasher.load().0 >= in_front + behind {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

/// Gives the account a hash with older parameters, as after an upgrade.
async fn use_older_parameters(world: &World, user: &TestUser) {
    let cheap = argon2::Params::new(8, 1, 1, None).unwrap();
    let hasher = Hasher::with_parameters(1, 1, Random::system(), cheap);
    let older = hasher.acquire_place(Network::of(None)).unwrap().hash(PASSWORD).await.unwrap();
    let mut tx = world.app.db.write().await.unwrap();
    sql("UPDATE users SET password_hash = $2 WHERE id = $1")
        .bind(user.id)
        .bind(older)
        .execute(&mut tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Sets the new password on this server.
async fn set(world: &World, twin: &Twin, user: &TestUser, email: &str, how: PasswordOperation) {
    let call = match how {
        PasswordOperation::Change => {
            let body = json!({"current_password": PASSWORD, "new_password": NEW_PASSWORD,
                              "new_password_confirmation": NEW_PASSWORD});
            twin.post("/v1/auth/change-password", &body).bearer(&user.access_token)
        }
        PasswordOperation::Reset => {
            let body = json!({"token": world.mailed_token(email).await, "password": NEW_PASSWORD,
                              "password_confirmation": NEW_PASSWORD});
            twin.post("/v1/auth/reset-password", &body)
        }
    };
    call.data().await;
}

#[on_each_database(&SETTINGS)]
async fn login_with_the_old_password_does_not_survive_a_new_one(world: World) {
    let twins = Twin::both(&world).await;
    for (number, (how, older)) in [
        (PasswordOperation::Change, false),
        (PasswordOperation::Reset, false),
        (PasswordOperation::Change, true),
        (PasswordOperation::Reset, true),
    ]
    .into_iter()
    .enumerate()
    {
        let case = format!("{how:?}, older parameters: {older}");
        let name = format!("ada{number}");
        let email = format!("{name}@example.com");
        let ada = world.user(&name).await;
        if older {
            use_older_parameters(&world, &ada).await;
        }
        if how == PasswordOperation::Reset {
            twins[1].post("/v1/auth/forgot-password", &json!({ "email": email })).data().await;
        }
        // The logins read the old hash, then wait behind these slow hashes.
        let slow: Vec<Slow> = (0..SLOW_HASHES)
            .map(|_| {
                let app = twins[0].app.clone();
                tokio::spawn(async move {
                    app.accounts
                        .hasher
                        .acquire_place(Network::of(None))
                        .unwrap()
                        .verify("x", Some(SLOW))
                        .await
                })
            })
            .collect();
        until_queued(&twins[0].app, &slow, 0).await;
        let logins: Vec<_> = (0..LOGINS)
            .map(|_| {
                let call = twins[0].post("/v1/auth/login", &json!({"email": email, "password": PASSWORD}));
                tokio::spawn(call.send())
            })
            .collect();
        until_queued(&twins[0].app, &slow, LOGINS).await;
        set(&world, &twins[1], &ada, &email, how).await;
        // Removes the slow hashes that wait from the queue.
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        for login in logins {
            let answer = login.await.unwrap();
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "invalid_credentials"),
                "{case}: {}",
                answer.text
            );
        }
        let (live,): (i64,) = sql("SELECT COUNT(*) FROM sessions WHERE user_id = $1 AND ended_at IS NULL")
            .bind(ada.id)
            .one(&mut world.app.db.read().await.unwrap())
            .await
            .unwrap();
        assert_eq!(live, i64::from(how == PasswordOperation::Change), "{case}");
        for twin in &twins {
            settle(twin).await;
            let login =
                |password: &str| twin.post("/v1/auth/login", &json!({"email": email, "password": password}));
            assert_eq!(login(PASSWORD).refused().await.0, 401, "{case}: the old password is nothing");
            login(NEW_PASSWORD).data().await;
        }
    }
}

#[on_each_database(&SETTINGS)]
async fn older_hash_is_replaced_at_login(world: World) {
    let ada = world.user("ada").await;
    use_older_parameters(&world, &ada).await;
    let body = json!({"email": "ada@example.com", "password": PASSWORD});
    world.post("/v1/auth/login", &body).data().await;
    let (hash,): (String,) = sql("SELECT password_hash FROM users WHERE id = $1")
        .bind(ada.id)
        .one(&mut world.app.db.read().await.unwrap())
        .await
        .unwrap();
    assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
    world.post("/v1/auth/login", &body).data().await;
}
