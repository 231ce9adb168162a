//! One client network can't fill the queue of passwords, and being refused by it is no guess.

use serde_json::json;
use tollkeeper::rules::networks::Network;

use super::{ATTACKER, HOME, login, ok, outcome};
use crate::support::world::{PASSWORD, on_each_database_with};

const QUEUE: &str = "TOLLKEEPER_PASSWORDS__QUEUE";
const THREADS: (&str, &str) = ("TOLLKEEPER_PASSWORDS__HASH_THREADS", "1");

fn full() -> (u16, String) {
    (429, "password_queue_full".to_owned())
}

#[test]
fn a_refusal_by_the_full_queue_is_no_guess() {
    on_each_database_with(&[(QUEUE, "1"), THREADS], async |world| {
        let ada = world.somebody("ada").await;
        let change = json!({"current_password": PASSWORD, "new_password": "Violet-Kettle-Orbit-9",
                            "new_password_confirmation": "Violet-Kettle-Orbit-9"});
        let change = || outcome(world.post("/v1/auth/change-password", &change).bearer(&ada.access_token));
        // Others have both places.
        let others = [1, 2].map(|number| world.app.hasher.place(Network::V4([203, 0, number])).unwrap());
        for _ in 0..12 {
            assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, full());
            assert_eq!(change().await, full());
        }
        drop(others);
        assert_eq!(outcome(login(&world, "ada", PASSWORD, HOME)).await, ok());
        assert_eq!(change().await, ok());
    });
}

#[test]
fn a_network_has_an_eighth_of_the_queue() {
    // With the one that is hashed at a time, 16 places: two for each network.
    on_each_database_with(&[(QUEUE, "15"), THREADS], async |world| {
        let ada = world.somebody("ada").await;
        let mut attackers = Vec::new();
        for number in 0..8 {
            attackers.push(world.somebody(&format!("mallory{number}")).await.access_token);
        }
        let change = json!({"current_password": "Wrong-Kettle-1", "new_password": "Violet-Kettle-Orbit-9",
                            "new_password_confirmation": "Violet-Kettle-Orbit-9"});
        let reset = json!({"token": "x", "password": PASSWORD, "password_confirmation": PASSWORD});
        let floods = attackers.iter().enumerate().map(|(number, token)| {
            let from = format!("198.51.100.{number}");
            outcome(world.post("/v1/auth/change-password", &change).bearer(token).from(&from))
        });
        let (floods, owner, register) = tokio::join!(
            futures_util::future::join_all(floods),
            outcome(login(&world, "ada", PASSWORD, HOME)),
            async {
                let body = json!({"email": "eve@example.com", "password": PASSWORD, "username": "eve"});
                outcome(world.post("/v1/auth/register", &body).from(ATTACKER)).await
            }
        );
        let checked = floods.iter().filter(|found| **found == (401, "wrong_password".into())).count();
        let refused = floods.iter().filter(|found| **found == full()).count();
        assert_eq!(
            (checked + usize::from(register == ok()), refused + usize::from(register == full())),
            (2, 7)
        );
        assert_eq!(owner, ok());
        // All places are free again, and a refusal without a hash has taken none.
        for _ in 0..3 {
            world.post("/v1/auth/reset-password", &reset).from(ATTACKER).refused().await;
            world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
        }
        assert_eq!(world.app.hasher.load(), (0, 16));
    });
}
