//! Revocations take effect immediately at their replica, and at the others when they next read the feed.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::{REPLICAS, run_on, trials};
use support::process::{Account, Server, Wire, until};
use support::replicas::{Fleet, text};
use support::world::PASSWORD;
use support::{Database, on_each_database};

/// The documented bound. A machine that also runs other tests may be slower, so exceeding the bound is
/// counted but doesn't fail.
const BOUND: Duration = Duration::from_secs(1);

/// The counts of a test run.
#[derive(Default)]
struct Tally {
    revocations: usize,
    asked: usize,
    /// The number of calls that were allowed although they were made later than [`BOUND`] after the
    /// revocation was answered.
    late: usize,
    longest: Duration,
}

impl Tally {
    /// Revokes something at one replica, and calls each replica until it refuses, and for a while after that.
    fn revoke(
        &mut self,
        fleet: &Fleet,
        at: usize,
        allowed: impl Fn(&Server) -> bool + Sync,
        take: impl FnOnce(&Server),
    ) {
        for server in &fleet.servers {
            assert!(allowed(server), "not there before");
        }
        take(&fleet.servers[at]);
        let taken = Instant::now();
        assert!(!allowed(&fleet.servers[at]), "allowed by the replica that revoked it");
        self.revocations += 1;
        let found = std::thread::scope(|scope| {
            let allowed = &allowed;
            let asking =
                fleet.servers.iter().map(|server| scope.spawn(move || follow(server, allowed, taken)));
            asking.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        for (asked, late, took) in found {
            self.asked += asked;
            self.late += late;
            self.longest = self.longest.max(took);
        }
    }
}

/// Returns the number of calls to this replica, the number of those allowed after the bound, and the time of
/// the last allowed call.
fn follow(server: &Server, allowed: impl Fn(&Server) -> bool, taken: Instant) -> (usize, usize, Duration) {
    let (mut asked, mut late, mut longest) = (0, 0, Duration::ZERO);
    let gone = until(|| {
        let begun = taken.elapsed();
        let through = allowed(server);
        asked += 1;
        if through {
            late += usize::from(begun > BOUND);
            longest = begun;
        }
        !through
    });
    assert!(gone, "still let through");
    for _ in 0..20 {
        asked += 1;
        assert!(!allowed(server), "let through again");
    }
    (asked, late, longest)
}

/// Returns `true` if a key may call a model, according to the endpoint for inference servers.
fn key_holds(server: &Server, key: &str) -> bool {
    let body = json!({"credential": key, "operation": "chat", "model": "svc-1", "reserve": false});
    let decision = server.ask("/service/v1/authorize", &body).bare();
    decision["allowed"].as_bool().unwrap()
}

fn session_holds(server: &Server, account: &Account) -> bool {
    let status = server.get("/v1/auth/me").bearer(&account.access_token).send().status;
    assert!(status == 200 || status == 401, "{status}");
    status == 200
}

fn send(server: &Server, method: Method, path: &str, user: &Account, body: &Value) -> Value {
    Wire::new(server.public, method.as_str(), path).bearer(&user.access_token).json(body).data()
}

#[on_each_database]
fn revocations_reach_every_replica(database: Database) {
    run_on(database, |backend, replicas, _| {
        let fleet = replicas.set("TOLLKEEPER_API_KEYS__ROTATION_GRACE_HOURS", "0").run();
        let ada = fleet.sign_up("ada");
        let mut tally = Tally::default();
        for trial in 0..usize::try_from(trials()).unwrap() {
            let at = trial % REPLICAS;
            let place = fleet.settle(&ada, &format!("Acme {trial}"));
            let keys = format!("{}/api-keys", place.project_path);
            let key_path = format!("{keys}/{}", place.key_id);

            let old = place.key.clone();
            let mut new = String::new();
            tally.revoke(
                &fleet,
                at,
                |server| key_holds(server, &old),
                |server| {
                    let rotated = send(server, Method::POST, &format!("{key_path}/rotate"), &ada, &json!({}));
                    new = text(&rotated, "key");
                },
            );
            let holds = |server: &Server| key_holds(server, &new);
            tally.revoke(&fleet, (at + 1) % REPLICAS, holds, |server| {
                send(server, Method::DELETE, &key_path, &ada, &json!({}));
            });

            let key = text(&fleet.post(&keys, &json!({"name": "b"})).bearer(&ada.access_token).data(), "key");
            let holds = |server: &Server| key_holds(server, &key);
            tally.revoke(&fleet, (at + 2) % REPLICAS, holds, |server| {
                send(server, Method::DELETE, &place.project_path, &ada, &json!({}));
            });

            let session = fleet.next().log_in("ada");
            tally.revoke(
                &fleet,
                at,
                |server| session_holds(server, &session),
                |server| {
                    send(server, Method::POST, "/v1/auth/logout", &session, &json!({}));
                },
            );

            // The session that changes the password stays valid, and the other session ends.
            let name = format!("bob{trial}");
            let (bob, other) = (fleet.sign_up(&name), fleet.next().log_in(&name));
            let new = "Violet-Kettle-9-Harbour";
            let change =
                json!({"current_password": PASSWORD, "new_password": new, "new_password_confirmation": new});
            tally.revoke(
                &fleet,
                at,
                |server| session_holds(server, &other),
                |server| {
                    send(server, Method::POST, "/v1/auth/change-password", &bob, &change);
                },
            );
            assert!(fleet.servers.iter().all(|server| session_holds(server, &bob)));
        }
        let Tally { revocations, asked, late, longest } = tally;
        println!(
            "{backend}: {revocations} revocations, {asked} calls: {late} let through more than {BOUND:?} after, the last one after {longest:?}"
        );
        fleet.stop();
    });
}

/// Roles are read on each request, so a change applies immediately.
#[on_each_database]
fn removed_member_loses_access_everywhere_at_once(database: Database) {
    run_on(database, |_, replicas, _| {
        let fleet = replicas.run();
        let (ada, bob) = (fleet.sign_up("ada"), fleet.sign_up("bob"));
        let bob_id = fleet.get("/v1/auth/me").bearer(&bob.access_token).data();
        let bob_id = text(&bob_id["user"], "id");
        for trial in 0..usize::try_from(trials()).unwrap() {
            let place = fleet.settle(&ada, &format!("Acme {trial}"));
            let members = format!("{}/members", place.project_path);
            let body = json!({"user_id": bob_id, "role": "developer"});
            fleet.post(&members, &body).bearer(&ada.access_token).data();
            let reads = |server: &Server| {
                server.get(&place.project_path).bearer(&bob.access_token).send().status == 200
            };
            assert!(fleet.servers.iter().all(reads));
            let member = format!("/v1/organizations/{}/members/{bob_id}", place.organization());
            send(&fleet.servers[trial % REPLICAS], Method::DELETE, &member, &ada, &json!({}));
            assert!(!fleet.servers.iter().any(reads));
        }
        fleet.stop();
    });
}

#[on_each_database]
fn new_signing_key_and_catalog_reach_every_replica_and_keep_sessions(database: Database) {
    run_on(database, |_, replicas, folder| {
        let fleet = replicas.run();
        let ada = fleet.sign_up("ada");
        // The header of a token contains the id of its signing key.
        let head = |account: &Account| account.access_token.split('.').next().unwrap().to_owned();
        let mut before = head(&ada);
        for trial in 0..usize::try_from(trials()).unwrap() {
            let rotated = replicas.starts[trial % REPLICAS].command(&["signing-key", "rotate"]);
            assert_eq!(rotated.code, Some(0), "{}", rotated.log);
            let mut seen = vec![ada.clone()];
            let all_new = until(|| {
                let accounts: Vec<_> = fleet.servers.iter().map(|server| server.log_in("ada")).collect();
                // A token that one replica signs is immediately valid at the others, with either key.
                for account in &accounts {
                    assert!(fleet.servers.iter().all(|server| session_holds(server, account)));
                }
                let all_new = accounts.iter().all(|account| head(account) != before);
                seen.extend(accounts);
                all_new
            });
            assert!(all_new, "some still sign with the old key");
            let holds = |account: &Account| session_holds(fleet.next(), account);
            assert!(seen.iter().all(holds), "a rotation ends no session");
            before = head(seen.last().unwrap());
        }
        let file = folder.0.join("catalog.toml");
        let catalog = std::fs::read_to_string(&file).unwrap();
        let place = fleet.settle(&ada, "Acme");
        let models = |server: &Server| {
            let list = server.get("/v1/models").bearer(&place.key).bare();
            list["data"].as_array().unwrap().iter().any(|model| model["id"] == "svc-1")
        };
        for retired in [true, false].into_iter().cycle().take(2 * usize::try_from(trials()).unwrap()) {
            let text = match retired {
                true => catalog.replacen("id = \"svc-1\"\n", "id = \"svc-1\"\nretired = true\n", 1),
                false => catalog.clone(),
            };
            std::fs::write(folder.0.join("new.toml"), text).unwrap();
            std::fs::rename(folder.0.join("new.toml"), &file).unwrap();
            let ordered = replicas.starts[1].command(&["catalog", "reload"]);
            assert_eq!(ordered.code, Some(0), "{}", ordered.log);
            assert!(until(|| fleet.servers.iter().all(|server| models(server) != retired)));
        }
        fleet.stop();
    });
}
