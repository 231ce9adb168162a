//! Emergency commands after a leak. They end sessions, revoke signing keys, and change the master key.

use std::path::Path;

use serde_json::{Value, json};
use tollkeeper::accounts::jwt::{Claims, TokenKind};
use tollkeeper::accounts::memory::signing_keys::SigningKeys;
use tollkeeper::clock::{DAY_MS, HOUR_MS, MINUTE_MS};

use support::process::{Account, ProcessResult, Server, Start, until};
use support::replicas::{Fleet, Replicas};
use support::world::{Folder, TestUser, World};
use support::{Database, on_each_database};

const NEW_KEY: &str = "bmV3IG1hc3RlciBrZXkgb2YgMzIgYnl0ZXMgaGVyZSE=";

/// Signs a token for this session with these two times, using the newest key.
async fn token(world: &World, user: &TestUser, kind: TokenKind, iat: i64, exp: i64) -> String {
    let claims = Claims {
        iss: world.app.api.public_url.clone(),
        aud: world.app.api.public_url.clone(),
        sub: user.id,
        sid: user.session_id,
        jti: "jti_test".into(),
        iat,
        exp,
    };
    world.app.accounts.keyset().await.unwrap().sign(kind, &claims)
}

async fn me(world: &World, token: &str) -> u16 {
    world.get("/v1/auth/me").bearer(token).send().await.status
}

#[on_each_database]
async fn token_lifetime_is_bounded_by_its_kind(world: World) {
    let ada = world.user("ada").await;
    let now = world.clock.now().unix_seconds();
    let hour = HOUR_MS / 1_000;
    for (lives_s, status) in [(hour, 200), (hour + 1, 401), (20 * 24 * hour, 401)] {
        let token = token(&world, &ada, TokenKind::Access, now, now + lives_s).await;
        assert_eq!(me(&world, &token).await, status, "{lives_s} s");
    }
    for (lives_s, status) in [(30 * 24 * hour, 200), (30 * 24 * hour + 1, 401)] {
        let token = token(&world, &ada, TokenKind::Refresh, now, now + lives_s).await;
        let answer = world.post("/v1/auth/refresh-token", &json!({})).bearer(&token).send().await;
        assert_eq!(answer.status, status, "{lives_s} s");
    }
}

#[on_each_database]
async fn signing_key_verifies_tokens_of_its_time_only(world: World) {
    let ada = world.user("ada").await;
    let made = world.clock.now().unix_seconds();
    world.clock.advance_ms(30 * MINUTE_MS);
    let now = world.clock.now().unix_seconds();
    for (iat, status) in [(made, 200), (made - 60, 200), (made - 61, 401)] {
        let token = token(&world, &ada, TokenKind::Access, iat, now + 60).await;
        assert_eq!(me(&world, &token).await, status, "{}", iat - made);
    }
    // A thief still uses the old key.
    let stolen = world.app.accounts.keyset().await.unwrap();
    let mut tx = world.app.db.write().await.unwrap();
    SigningKeys::rotate(&world.app.accounts, &mut tx).await.unwrap();
    tx.commit().await.unwrap();
    world.clock.advance_ms(2 * MINUTE_MS);
    let now = world.clock.now().unix_seconds();
    for (ago_s, status) in [(120, 200), (60, 200), (59, 401), (0, 401)] {
        let iat = now - ago_s;
        let claims = Claims {
            iss: world.app.api.public_url.clone(),
            aud: world.app.api.public_url.clone(),
            sub: ada.id,
            sid: ada.session_id,
            jti: format!("jti_{ago_s}"),
            iat,
            exp: iat + 600,
        };
        assert_eq!(me(&world, &stolen.sign(TokenKind::Access, &claims)).await, status, "{ago_s} s ago");
    }
}

/// A key that was created while the clock ran ahead must not lock out all users after the clock is corrected.
#[on_each_database]
async fn key_made_while_the_clock_ran_ahead_still_signs(world: World) {
    world.clock.advance_ms(365 * DAY_MS);
    let mut tx = world.app.db.write().await.unwrap();
    SigningKeys::rotate(&world.app.accounts, &mut tx).await.unwrap();
    tx.commit().await.unwrap();
    world.clock.advance_ms(-365 * DAY_MS + MINUTE_MS);
    let ada = world.user("ada").await;
    assert_eq!(me(&world, &ada.access_token).await, 200);
}

fn json_of(ended: &ProcessResult) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn me_at(server: &Server, token: &str) -> u16 {
    server.get("/v1/auth/me").bearer(token).send().status
}

/// Returns `true` if every replica refuses this token within the time that a change may take to arrive.
fn refused_everywhere(fleet: &Fleet, token: &str) -> bool {
    until(|| fleet.servers.iter().all(|server| me_at(server, token) == 401))
}

#[on_each_database]
fn end_sessions_command_reaches_every_replica(database: Database) {
    database.run_processes(|url, folder| {
        let replicas = Replicas::new(2, url, folder).generous(folder);
        let fleet = replicas.run();
        let [ada, bob] = ["ada", "bob"].map(|name| fleet.sign_up(name));
        let second = fleet.next().log_in("ada");
        for server in &fleet.servers {
            for token in [&ada.access_token, &second.access_token, &bob.access_token] {
                assert_eq!(me_at(server, token), 200);
            }
        }
        let command = |arguments: &[&str]| replicas.starts[0].command(arguments);
        let ended = json_of(&command(&["session", "end", "--user", "Ada@Example.com", "--json"]));
        assert_eq!(ended["sessions"], 2);
        assert!(ended["user_id"].as_str().unwrap().starts_with("user_"), "{ended}");
        assert!(refused_everywhere(&fleet, &ada.access_token));
        assert!(refused_everywhere(&fleet, &second.access_token));
        for server in &fleet.servers {
            assert_eq!(me_at(server, &bob.access_token), 200);
            let refresh = server.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token).send();
            assert_eq!(refresh.status, 401);
        }
        // The command also takes the user's id. No session is open now.
        let id = ended["user_id"].as_str().unwrap();
        let again = command(&["session", "end", "--user", id]);
        assert_eq!(again.code, Some(0), "{}", again.log);
        assert!(again.stdout.starts_with("No session was open."), "{}", again.stdout);

        let ada = fleet.next().log_in("ada");
        let all = json_of(&command(&["session", "end", "--all", "--json"]));
        assert_eq!(all, json!({"sessions": 2, "user_id": null}));
        for token in [&ada.access_token, &bob.access_token] {
            assert!(refused_everywhere(&fleet, token));
        }
        assert_eq!(me_at(fleet.next(), &fleet.next().log_in("bob").access_token), 200);

        let trail = command(&["audit-log", "--action", "sessions.ended", "--json"]);
        let entries: Vec<Value> =
            trail.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let targets: Vec<_> = entries.iter().map(|entry| (&entry["target"], &entry["actor"])).collect();
        let operator = json!("operator");
        assert_eq!(targets, [(&json!("all"), &operator), (&json!(id), &operator), (&json!(id), &operator)]);

        let unknown = command(&["session", "end", "--user", "nobody@example.com"]);
        assert_eq!(unknown.code, Some(1));
        assert!(
            unknown.log.contains("no account has the address or id nobody@example.com"),
            "{}",
            unknown.log
        );
        for wrong in [&["session", "end"][..], &["session", "end", "--all", "--user", "ada@example.com"]] {
            assert_eq!(command(wrong).code, Some(2), "{wrong:?}");
        }
        fleet.stop();
    });
}

#[on_each_database]
fn revoked_signing_keys_stop_verifying_on_every_replica(database: Database) {
    database.run_processes(|url, folder| {
        let replicas = Replicas::new(2, url, folder).generous(folder);
        let fleet = replicas.run();
        let accounts = ["ada", "bob"].map(|name| fleet.sign_up(name));
        for server in &fleet.servers {
            assert!(accounts.iter().all(|account| me_at(server, &account.access_token) == 200));
        }
        let rotated = json_of(&replicas.starts[0].command(&["signing-key", "rotate", "--revoke", "--json"]));
        assert_eq!((&rotated["revoked"], &rotated["sessions"]), (&json!(1), &json!(2)));
        for account in &accounts {
            assert!(refused_everywhere(&fleet, &account.access_token));
        }
        for server in &fleet.servers {
            let one = |account: &Account| {
                server.post("/v1/auth/refresh-token", &json!({})).bearer(&account.refresh_token).send().status
            };
            assert!(accounts.iter().all(|account| one(account) == 401));
            let keys = server.get("/.well-known/jwks.json").bare();
            let kids: Vec<_> = keys["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
            assert_eq!(kids, [&rotated["kid"]]);
        }
        let ada = fleet.next().log_in("ada");
        assert!(fleet.servers.iter().all(|server| me_at(server, &ada.access_token) == 200));
        // A rotation without `--revoke` ends no session.
        let plain = json_of(&replicas.starts[0].command(&["signing-key", "rotate", "--json"]));
        assert!(plain["kid"] != rotated["kid"]);
        assert!(fleet.servers.iter().all(|server| me_at(server, &ada.access_token) == 200));
        fleet.stop();
    });
}

fn write_key(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[on_each_database]
fn master_key_rotation_needs_no_downtime(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url).set("TOLLKEEPER_LIMITS__ENABLED", "false");
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        assert_eq!(server.stop().code, Some(0));
        let old = start.data_dir().join("master.key");
        let new = write_key(&folder.0, "new.key", NEW_KEY);

        // Without the older key, the new key opens nothing. The error at the start explains what to do.
        let only_new = start.clone().set("TOLLKEEPER_MASTER_KEY_FILE", &new);
        let refused = only_new.refused();
        assert_eq!(refused.code, Some(1));
        assert!(refused.log.contains("`master_key_previous_file`"), "{}", refused.log);
        let early = start.command(&["master-key", "rotate"]);
        assert_eq!(early.code, Some(1));
        assert!(early.log.contains("`master_key_previous_file`"), "{}", early.log);

        // Servers with both keys can open secrets that were sealed with either key.
        let both = only_new.clone().set("TOLLKEEPER_MASTER_KEY_PREVIOUS_FILE", old.to_str().unwrap());
        let server = both.run();
        assert_eq!(me_at(&server, &ada.access_token), 200);
        let made = json!({"name": "Made meanwhile"});
        let path = format!("{}/api-keys", place.project_path);
        let keyed = |server: &Server| {
            let made = server.post(&path, &made).bearer(&ada.access_token);
            made.header("idempotency-key", "made-meanwhile").data()
        };
        let second = keyed(&server);

        let changed = json_of(&both.command(&["master-key", "rotate", "--json"]));
        assert_eq!(
            changed,
            json!({"signing_keys": 1, "api_keys": 1, "seeds": 0, "answers": 0, "already": 2})
        );
        let again = json_of(&both.command(&["master-key", "rotate", "--json"]));
        assert_eq!(again, json!({"signing_keys": 0, "api_keys": 0, "seeds": 0, "answers": 0, "already": 4}));
        let trail = both.command(&["audit-log", "--action", "master_key.rotated"]);
        assert_eq!(trail.stdout.matches("  operator  master_key.rotated  ").count(), 2, "{}", trail.stdout);
        assert_eq!(server.stop().code, Some(0));

        // After the older key is removed, everything can still be opened: sessions continue, and previous
        // secrets are shown.
        let server = only_new.run();
        assert_eq!(me_at(&server, &ada.access_token), 200);
        assert_eq!(keyed(&server), second);
        for (id, secret) in [
            (place.key_id.as_str(), place.key.as_str()),
            (second["id"].as_str().unwrap(), second["key"].as_str().unwrap()),
        ] {
            let path = format!("{}/api-keys/{id}/rotate", place.project_path);
            let rotated = server.post(&path, &json!({})).bearer(&ada.access_token).data();
            assert_eq!(rotated["previous_key"], secret);
        }
        assert_eq!(server.stop().code, Some(0));
        let refused = start.refused();
        assert_eq!(refused.code, Some(1), "the older key no longer opens anything");
    });
}

#[on_each_database]
fn master_key_rotation_is_atomic(database: Database) {
    database.run_processes(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let ada = server.sign_up("ada");
        server.settle(&ada);
        assert_eq!(server.stop().code, Some(0));
        let old = start.data_dir().join("master.key");
        let new = write_key(&folder.0, "new.key", NEW_KEY);
        let both = start
            .clone()
            .set("TOLLKEEPER_MASTER_KEY_FILE", &new)
            .set("TOLLKEEPER_MASTER_KEY_PREVIOUS_FILE", old.to_str().unwrap());
        damage_sealed_api_keys(&start);
        let ended = both.command(&["master-key", "rotate"]);
        assert_eq!(ended.code, Some(1));
        assert!(
            ended.log.contains("API key key_") && ended.log.contains("nothing was changed"),
            "{}",
            ended.log
        );
        // Secrets that were readable weren't resealed either: the older key alone still opens them.
        assert_eq!(start.run().stop().code, Some(0));
        // Using the same key twice is an error, and changes nothing.
        let same = write_key(&folder.0, "same.key", &{
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(std::fs::read(&old).unwrap())
        });
        let same = start
            .clone()
            .set("TOLLKEEPER_MASTER_KEY_PREVIOUS_FILE", &same)
            .command(&["master-key", "rotate"]);
        assert_eq!(same.code, Some(1));
        assert!(same.log.contains("the same key"), "{}", same.log);
        // The older key must exist. A missing file is never created.
        let missing = folder.0.join("missing.key");
        let refused =
            start.clone().set("TOLLKEEPER_MASTER_KEY_PREVIOUS_FILE", missing.to_str().unwrap()).refused();
        assert_eq!(refused.code, Some(1));
        assert!(refused.log.contains("missing.key") && !missing.exists(), "{}", refused.log);
    });
}

/// Overwrites the sealed secrets of API keys with invalid bytes.
fn damage_sealed_api_keys(start: &Start) {
    use tollkeeper::db::{Db, sql};
    support::world::runtime().block_on(async {
        let db = Db::open(&start.database_settings()).unwrap();
        let mut tx = db.write().await.unwrap();
        let sealed = vec![1_u8; 80];
        sql("UPDATE api_key_secrets SET sealed_secret = $1").bind(sealed).execute(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    });
}

#[test]
fn emergency_commands_have_help() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    for (arguments, words) in [
        (&["session", "end", "--help"][..], &["--all", "--user <ID_OR_EMAIL>", "--json"][..]),
        (&["signing-key", "rotate", "--help"], &["--revoke", "--json", "All users are logged out"]),
        (&["master-key", "rotate", "--help"], &["--json", "master_key_previous_file"]),
    ] {
        let ended = start.command(arguments);
        assert_eq!((ended.code, ended.log.as_str()), (Some(0), ""));
        for word in words {
            let flat = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(word), "{arguments:?} without {word}:\n{}", ended.stdout);
        }
    }
}

/// Each new sealed column must be added to `master-key rotate`. Otherwise its secrets would be lost with the
/// older master key.
#[test]
fn master_key_rotation_covers_every_sealed_column() {
    let known = ["sealed_private_key", "sealed_secret", "sealed_seed"];
    for backend in ["sqlite", "postgres"] {
        let mut found = std::collections::BTreeSet::new();
        for folder in [backend, "both"] {
            for file in std::fs::read_dir(format!("crates/db/migrations/{folder}")).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned);
                found.extend(words.filter(|word| word.starts_with("sealed_")));
            }
        }
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), known, "{backend}");
    }
}
