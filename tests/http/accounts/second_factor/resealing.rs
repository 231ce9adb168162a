//! Secrets of authenticator apps remain usable after a change of the master key.

use http::Method;
use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::keys::seals;
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use super::{ADA, post, text};
use support::authenticator::{Authenticator, STEP_MS};
use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, World};

#[on_each_database]
async fn seeds_are_resealed_under_a_new_master_key(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let started = post(&world, &bob.access_token, "/v1/auth/totp", &json!({})).data().await;
    let waiting = Authenticator::new(&text(&started, "secret"));

    let (old, new) = (world.data_dir.join("master.key"), world.data_dir.join("new.key"));
    std::fs::write(&new, "n".repeat(32)).unwrap();
    for step in ["both", "reseal", "new"] {
        let mut config = world.app.config.clone();
        config.master_key_file = Some(new.clone());
        config.master_key_previous_file = (step != "new").then(|| old.clone());
        let server = App::new(config, world.clock.clone()).unwrap();
        server.boot().await.unwrap();
        if step == "reseal" {
            let resealed = seals::reseal_all(&server.keys, &Trail::operator()).await.unwrap();
            assert_eq!(resealed.seeds, 2);
            let again = seals::reseal_all(&server.keys, &Trail::operator()).await.unwrap();
            assert_eq!((again.seeds, again.unchanged), (0, resealed.seeds + resealed.signing_keys));
        }
        let public = server.dispatcher(Listener::Public);
        let code = app.code(world.clock.now());
        let body = json!({"email": ADA, "password": PASSWORD, "one_time_code": code});
        Call::new(&public, Method::POST, "/v1/auth/login").json(&body).data().await;
        if step == "new" {
            let body = json!({"code": waiting.code(world.clock.now())});
            let confirm = Call::new(&public, Method::POST, "/v1/auth/totp/confirm").json(&body);
            confirm.bearer(&bob.access_token).data().await;
        }
        world.clock.advance_ms(STEP_MS);
    }
}
