//! The password queue: one client network can't fill it, and a refusal by a full queue doesn't count as a
//! guess.

use serde_json::json;
use tollkeeper::kernel::networks::Network;

use super::{ATTACKER, HOME, login, ok, outcome};
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

const QUEUE: &str = "TOLLKEEPER_PASSWORDS__QUEUE";
const THREADS: (&str, &str) = ("TOLLKEEPER_PASSWORDS__HASH_THREADS", "1");

fn full() -> (u16, String) {
    (429, "password_queue_full".to_owned())
}

#[on_each_database(&[(QUEUE, "1"), THREADS])]
async fn full_queue_does_not_count_as_a_guess(world: World) {
    let ada = world.user("ada").await;
    let change = json!({"current_password": PASSWORD, "new_password": "Violet-Kettle-Orbit-9",
                        "new_password_confirmation": "Violet-Kettle-Orbit-9"});
    let change = || outcome(world.post("/v1/auth/change-password", &change).bearer(&ada.access_token));
    // Other callers hold both places.
    let others =
        [1, 2].map(|number| world.app.accounts.hasher.acquire_place(Network::V4([203, 0, number])).unwrap());
    for _ in 0..12 {
        assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, full());
        assert_eq!(change().await, full());
    }
    drop(others);
    assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
    assert_eq!(change().await, ok());
}

#[on_each_database]
fn network_gets_an_eighth_of_the_queue(database: Database) {
    // The queue and the running hash have 16 places together: two for each network.
    database.run(&[(QUEUE, "15"), THREADS], async |world| {
        let ada = world.user("ada").await;
        world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
        let token = world.mailed_token("ada@example.com").await;
        let change = json!({"current_password": "Wrong-Kettle-1", "new_password": "Violet-Kettle-Orbit-9",
                            "new_password_confirmation": "Violet-Kettle-Orbit-9"});
        let new = "Violet-Kettle-Orbit-9";
        let reset = json!({"token": token, "password": new, "password_confirmation": new});
        let form = [("token", token.as_str()), ("password", new), ("password_confirmation", new)];
        let register = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
        let from = async |address: &str| {
            let post = |path: &str, body| outcome(world.post(path, body).from(address));
            let change = world.post("/v1/auth/change-password", &change).bearer(&ada.access_token);
            [
                outcome(login(&world, "ada", PASSWORD, address)).await,
                outcome(change.from(address)).await,
                post("/v1/auth/register", &register).await,
                post("/v1/auth/reset-password", &reset).await,
            ]
        };
        let network = Network::of(Some(ATTACKER.parse().unwrap()));
        let held = [(); 2].map(|()| world.app.accounts.hasher.acquire_place(network).unwrap());
        assert_eq!(from("198.51.100.250").await, [(); 4].map(|()| full()));
        let page = world.call(http::Method::POST, "/reset-password").form(&form).from(ATTACKER).send().await;
        assert_eq!(page.status, 429, "{}", page.text);
        // Other networks aren't affected, and the refused attempts didn't use up the token or any guesses.
        let wrong_password = (401, "wrong_password".to_owned());
        assert_eq!(from(HOME).await, [ok(), wrong_password, ok(), ok()]);
        assert_eq!(world.app.accounts.hasher.load(), (2, 16));
        drop(held);
        assert_eq!(world.app.accounts.hasher.load(), (0, 16));
        assert_eq!(outcome(login(&world, "ada", new, ATTACKER)).await, ok());
    });
}
