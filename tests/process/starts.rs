//! The server as a process: its data after a stop and after a crash, and two servers with one database.

use serde_json::json;
use tollkeeper::accounts::jwt::{SigningKey, TokenKind};
use tollkeeper::app::App;

use support::process::Start;
use support::world::{Folder, World, config};
use support::{Database, on_each_database};

#[on_each_database]
fn data_survives_a_restart(database: Database) {
    database.run_empty(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        assert_eq!(server.report(&place, "e1"), "accepted");
        assert_eq!(server.requests(&place, &ada), 1);

        let late = server.post("/v1/organizations", &json!({"name": "Late"})).bearer(&ada.access_token);
        let late = late.begin();
        server.terminate();
        server.wait_for_log("stopping");
        assert_eq!(late.finish().status, 200, "a request in flight is finished");
        let ended = server.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.log);
        assert!(ended.log.contains(" stopped") && !ended.log.contains("cut off"), "{}", ended.log);

        let server = start.run();
        for token in [&ada.access_token, &server.log_in("ada").access_token] {
            let me = server.get("/v1/auth/me").bearer(token).data();
            assert_eq!(
                (&me["user"]["username"], &me["user"]["email_verified"]),
                (&json!("ada"), &json!(true))
            );
        }
        server.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token).data();
        let organizations = server.get("/v1/organizations").bearer(&ada.access_token).data();
        let names: Vec<_> = organizations["organizations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].clone())
            .collect();
        assert_eq!(names, ["Late", "Acme"]);
        assert_eq!(server.get("/v1/models").bearer(&place.key).bare()["object"], "list");
        let asked = json!({"credential": place.key, "operation": "chat", "reserve": false, "model": "svc-1"});
        assert_eq!(server.ask("/service/v1/authorize", &asked).bare()["allowed"], true);
        assert_eq!(server.requests(&place, &ada), 1);
        assert_eq!(server.report(&place, "e1"), "duplicate");
        assert_eq!(server.requests(&place, &ada), 1);
        assert_eq!(server.stop().code, Some(0));
    });
}

#[on_each_database]
fn answered_event_survives_a_crash(database: Database) {
    database.run_empty(|url, folder| {
        let start = Start::new(&folder.0).database(url);
        let mut server = start.run();
        let ada = server.sign_up("ada");
        let place = server.settle(&ada);
        for count in 1..=3 {
            let event = format!("e{count}");
            assert_eq!(server.report(&place, &event), "accepted");
            assert_eq!(server.kill().code, None);
            server = start.run();
            assert_eq!(server.requests(&place, &ada), count);
            assert_eq!(server.report(&place, &event), "duplicate");
            assert_eq!(server.requests(&place, &ada), count);
        }
    });
}

#[test]
fn endless_request_is_cut_off_by_the_stop() {
    let folder = Folder::new();
    let server = Start::new(&folder.0).set("TOLLKEEPER_SHUTDOWN_GRACE_MS", "100").run();
    let endless = server.post("/v1/auth/login", &json!({"email": "a", "password": "b"})).begin();
    let ended = server.stop();
    assert_eq!(ended.code, Some(0));
    assert!(ended.log.contains("cut off"), "{}", ended.log);
    drop(endless);
}

/// Another process has the migration lock. The server waits for it on a thread that can't be canceled.
#[test]
fn waiting_start_can_be_stopped() {
    let folder = Folder::new();
    let start = Start::new(&folder.0);
    assert_eq!(start.command(&["migrate"]).code, Some(0));
    let lock =
        std::fs::File::options().append(true).open(start.data_dir().join("tollkeeper.db.migrate-lock"));
    let lock = lock.unwrap();
    lock.lock().unwrap();
    let server = start.listening();
    assert_eq!(server.get("/readyz").send().status, 503);
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    drop(lock);
}

#[on_each_database]
fn two_servers_start_at_once_on_a_fresh_database(database: Database) {
    const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    database.run_empty(|url, folder| {
        let other_folder = Folder::new();
        // Replicas on PostgreSQL share only the key, and replicas on SQLite share the data folder.
        let starts = match url {
            None => [Start::new(&folder.0), Start::new(&folder.0)],
            Some(_) => [&folder.0, &other_folder.0]
                .map(|folder| Start::new(folder).database(url).set("TOLLKEEPER_MASTER_KEY", KEY)),
        };
        let servers = std::thread::scope(|scope| {
            let servers = starts.each_ref().map(|start| scope.spawn(|| start.run()));
            servers.map(|server| server.join().unwrap())
        });
        for (number, one) in servers.iter().enumerate() {
            let other = &servers[1 - number];
            let name = format!("ada{number}");
            let ada = one.sign_up(&name);
            for server in [one, other] {
                let me = server.get("/v1/auth/me").bearer(&ada.access_token).data();
                assert_eq!(me["user"]["username"], *name);
            }
            let place = one.settle(&ada);
            assert_eq!(other.get("/v1/models").bearer(&place.key).send().status, 200);
            assert_eq!(one.report(&place, &name), "accepted");
            assert_eq!(other.report(&place, &name), "duplicate");
            assert_eq!(other.requests(&place, &ada), 1);
        }
        for server in servers {
            assert_eq!(server.stop().code, Some(0));
        }
    });
}

/// Two replicas that start at the same time may each create a signing key, and one of them has read the table
/// too early.
#[on_each_database]
async fn signing_key_of_another_replica_is_found_at_once(world: World) {
    let ada = world.user("ada").await;
    let later = world.clock.now().plus_ms(1);
    let (key, private) = SigningKey::generate(&world.app.random).unwrap();
    let place = format!("signing-key:{}", key.kid());
    let sealed = world.app.sealer.seal(private.expose(), &place, &world.app.random).unwrap();
    let mut tx = world.app.db.write().await.unwrap();
    tollkeeper::accounts::store::signing_keys::insert(&mut tx, key.kid(), &key.public_key(), &sealed, later)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let url = world.app.config.database_url.as_ref().map(|url| match url {
        tollkeeper::config::DatabaseUrl::Postgres(url) => url.clone(),
        tollkeeper::config::DatabaseUrl::Sqlite(path) => format!("sqlite://{}", path.display()),
    });
    let other = App::new(config(&world.data_dir, url, &[]), world.clock.clone()).unwrap();
    other.boot().await.unwrap();
    let claims = world.app.accounts.signing_keys.verify(
        &world.app.accounts,
        &ada.access_token,
        TokenKind::Access,
        world.clock.now(),
    );
    let claims = claims.await.unwrap().unwrap();
    let token = other.accounts.keyset().await.unwrap().sign(TokenKind::Access, &claims);
    assert!(token.split('.').next() != ada.access_token.split('.').next(), "signed by the new key");
    world.get("/v1/auth/me").bearer(&token).data().await;
}
