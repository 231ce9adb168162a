//! Guesses at passwords and credentials: their cost for an attacker, without a cost for other users.

mod audited;
mod credentials;
mod queue;

use serde_json::{Value, json};
use tollkeeper::clock::{DAY_MS, MINUTE_MS, SECOND_MS};

use support::http::{Answer, Call};
use support::twin::Twin;
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const WRONG: &str = "Wrong-Kettle-8-Paperclip";
const NEW_PASSWORD: &str = "Violet-Kettle-Orbit-9";
/// An address of the owner, and another one in the same network.
const HOME: &str = "192.0.2.10";
const HOME_NEIGHBOUR: &str = "192.0.2.200";
/// The number of free guesses of all unknown networks together: low, because hashing a hundred passwords
/// takes long.
const ALL_NETWORKS: &[(&str, &str)] = &[("TOLLKEEPER_LIMITS__LOGIN_FAILURES_ALL_NETWORKS", "20")];
/// An address of another network.
const ATTACKER: &str = "198.51.100.7";

fn login(world: &World, name: &str, password: &str, from: &str) -> Call {
    let body = json!({"email": format!("{name}@example.com"), "password": password});
    world.post("/v1/auth/login", &body).from(from)
}

async fn outcome(call: Call) -> (u16, String) {
    let answer: Answer = call.send().await;
    (answer.status, if answer.status == 200 { String::new() } else { answer.code() })
}

fn ok() -> (u16, String) {
    (200, String::new())
}

fn wrong() -> (u16, String) {
    (401, "invalid_credentials".to_owned())
}

fn waits() -> (u16, String) {
    (429, "too_many_attempts".to_owned())
}

/// Makes guesses from each of these addresses until a wait is required; returns the number of checked
/// guesses.
async fn guess_until_waiting(
    world: &World,
    name: &str,
    addresses: impl IntoIterator<Item = String>,
) -> usize {
    let mut checked = 0;
    for address in addresses {
        loop {
            match outcome(login(world, name, WRONG, &address)).await {
                found if found == wrong() => checked += 1,
                found => {
                    assert_eq!(found, waits());
                    break;
                }
            }
            assert!(checked < 1_000, "the guesses are never throttled");
        }
    }
    checked
}

/// Returns addresses of this many networks.
fn networks(count: u8) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("203.0.{number}.7"))
}

#[on_each_database]
async fn guesses_from_other_networks_do_not_lock_the_owner_out(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    // The attacker waits as required, until the waits have reached their maximum.
    let mut longest_s = 0;
    for _ in 0..25 {
        let answer = login(&world, "ada", WRONG, ATTACKER).send().await;
        if answer.status == 429 {
            let wait_s: i64 = answer.header("retry-after").parse().unwrap();
            longest_s = longest_s.max(wait_s);
            world.clock.advance_ms(wait_s * SECOND_MS);
        }
    }
    assert!(longest_s > 60, "{longest_s}");
    login(&world, "ada", WRONG, ATTACKER).send().await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, ATTACKER)).await, waits());
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME_NEIGHBOUR)).await, ok());
    // The owner's mistakes count only for the owner's network.
    for _ in 0..10 {
        assert_eq!(outcome(login(&world, "ada", WRONG, HOME)).await, wrong());
    }
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, waits());
}

#[on_each_database]
async fn successful_login_resets_its_own_network_only(world: World) {
    world.user("ada").await;
    for _ in 0..9 {
        assert_eq!(outcome(login(&world, "ada", WRONG, HOME)).await, wrong());
        assert_eq!(outcome(login(&world, "ada", WRONG, ATTACKER)).await, wrong());
    }
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    assert_eq!(guess_until_waiting(&world, "ada", [ATTACKER.to_owned()]).await, 1);
    assert_eq!(guess_until_waiting(&world, "ada", [HOME.to_owned()]).await, 10);
}

#[on_each_database]
async fn addresses_of_a_network_count_together(world: World) {
    world.user("ada").await;
    world.user("bob").await;
    let v4 = (1..=11).map(|host| format!("198.51.100.{host}"));
    assert_eq!(guess_until_waiting(&world, "ada", v4).await, 10);
    let v6 = (1..=11).map(|host| format!("2001:db8:7:7:{host}::1"));
    assert_eq!(guess_until_waiting(&world, "ada", v6).await, 10);
    // An IPv4-mapped IPv6 address is the same client.
    let mapped = (1..=11).map(|host| format!("::ffff:198.51.100.{host}"));
    assert_eq!(guess_until_waiting(&world, "ada", mapped).await, 0);
    assert_eq!(guess_until_waiting(&world, "bob", ["2001:db8:7:8::1".to_owned()]).await, 10);
}

#[on_each_database(ALL_NETWORKS)]
async fn many_networks_wait_together_but_not_the_owners(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    // All networks together have twenty free guesses; each further guess makes all of them wait.
    assert_eq!(guess_until_waiting(&world, "ada", networks(4)).await, 20);
    let refused = login(&world, "ada", PASSWORD, "203.0.113.9").send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{}", refused.text);
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    // A login after the required wait succeeds and doesn't count as a guess, so other callers don't wait
    // longer.
    world.clock.advance_ms(SECOND_MS);
    assert_eq!(outcome(login(&world, "ada", PASSWORD, "203.0.113.9")).await, ok());
    assert_eq!(outcome(login(&world, "ada", WRONG, "203.0.114.9")).await, wrong());
    assert_eq!(outcome(login(&world, "ada", WRONG, "203.0.115.9")).await, waits());
}

#[on_each_database(ALL_NETWORKS)]
async fn network_is_unknown_again_after_thirty_days(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    world.clock.advance_ms(29 * DAY_MS);
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    // The thirty days start again with the second login.
    world.clock.advance_ms(30 * DAY_MS - 1);
    guess_until_waiting(&world, "ada", networks(3)).await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, "203.0.113.9")).await, waits());
    assert_eq!(outcome(login(&world, "ada", WRONG, HOME)).await, wrong());
    world.clock.advance_ms(1);
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, waits());
    tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, waits());
}

#[on_each_database(ALL_NETWORKS)]
async fn reset_ends_every_wait(world: World) {
    world.user("ada").await;
    guess_until_waiting(&world, "ada", networks(3)).await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, waits());
    // Sends the e-mail about the guesses before the one with the link.
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    world.clock.advance_ms(1);
    let ask = json!({"email": "ada@example.com"});
    world.post("/v1/auth/forgot-password", &ask).from(HOME).data().await;
    let token = world.mailed_token("ada@example.com").await;
    let body = json!({"token": token, "password": NEW_PASSWORD, "password_confirmation": NEW_PASSWORD});
    world.post("/v1/auth/reset-password", &body).from(HOME).data().await;
    // The attacker continues immediately, and uses up all guesses before the owner logs in.
    assert_eq!(guess_until_waiting(&world, "ada", networks(3)).await, 20);
    assert_eq!(outcome(login(&world, "ada", NEW_PASSWORD, HOME_NEIGHBOUR)).await, ok());
}

#[on_each_database]
fn parallel_guesses_at_two_replicas_gain_nothing(database: Database) {
    let settings = [ALL_NETWORKS[0], ("TOLLKEEPER_PASSWORDS__QUEUE", "1000")];
    database.run(&settings, async |world| {
        world.user("ada").await;
        let twins = Twin::both(&world).await;
        let body = json!({"email": "ada@example.com", "password": WRONG});
        let of_one_network = (0..64).map(|number| {
            let from = format!("198.51.100.{number}");
            twins[number % 2].post("/v1/auth/login", &body).from(&from).send()
        });
        let answers = futures_util::future::join_all(of_one_network).await;
        let statuses = |status| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((statuses(401), statuses(429)), (10, 54));
        // Ten guesses are left for all other networks.
        let of_many = (0..150).map(|number| {
            let from = format!("203.0.{number}.7");
            twins[number % 2].post("/v1/auth/login", &body).from(&from).send()
        });
        let answers = futures_util::future::join_all(of_many).await;
        let statuses = |status| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((statuses(401), statuses(429)), (10, 140));
    });
}

#[on_each_database]
async fn attempt_runs_the_same_statements_with_and_without_account(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    let cost = async |name: &str, from: &str| {
        let before = world.app.db.statement_count();
        let found = outcome(login(&world, name, WRONG, from)).await;
        (found, world.app.db.statement_count() - before)
    };
    for round in 0..12 {
        let unknown = cost("nobody", HOME).await;
        assert_eq!(cost("ada", HOME).await, unknown, "a network that the account knows, round {round}");
        let elsewhere = cost("nobody", ATTACKER).await;
        assert_eq!(cost("ada", ATTACKER).await, elsewhere, "a network that it doesn't know, round {round}");
    }
    assert_eq!(cost("ada", HOME).await.0, waits());
}

#[on_each_database]
async fn guesses_at_the_current_password_count_by_network_too(world: World) {
    let ada = world.user("ada").await;
    let change = |current: &str, from: &str| {
        let body = json!({"current_password": current, "new_password": NEW_PASSWORD,
                          "new_password_confirmation": NEW_PASSWORD});
        world.post("/v1/auth/change-password", &body).bearer(&ada.access_token).from(from)
    };
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    for _ in 0..10 {
        assert_eq!(change(WRONG, ATTACKER).refused().await, (401, "wrong_password".into()));
    }
    assert_eq!(change(PASSWORD, ATTACKER).refused().await, waits());
    assert_eq!(outcome(login(&world, "ada", PASSWORD, ATTACKER)).await, waits());
    change(PASSWORD, HOME).data().await;
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn without_limits_nothing_is_counted(world: World) {
    world.user("ada").await;
    for _ in 0..12 {
        assert_eq!(outcome(login(&world, "ada", WRONG, HOME)).await, wrong());
    }
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
}

#[on_each_database]
async fn expired_counters_are_swept(world: World) {
    world.user("ada").await;
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    assert_eq!(outcome(login(&world, "ada", WRONG, ATTACKER)).await, wrong());
    let rows = async |table: &str| {
        let text = format!("SELECT COUNT(*) FROM {table}");
        let count: (i64,) =
            tollkeeper::db::sql(text).one(&mut world.app.db.read().await.unwrap()).await.unwrap();
        count.0
    };
    let all = async || {
        tollkeeper::jobs::sweep::sweep(&world.app).await.unwrap();
        [rows("login_guesses").await, rows("login_failures").await, rows("login_networks").await]
    };
    assert_eq!(all().await, [2, 1, 1], "the attacker's network and all networks");
    world.clock.advance_ms(DAY_MS + MINUTE_MS);
    assert_eq!(all().await, [0, 0, 1]);
    world.clock.advance_ms(29 * DAY_MS);
    assert_eq!(all().await, [0, 0, 0]);
}

/// Returns a string without quotes, and any other value as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
