//! Second factors that an operator removes: authenticator apps, passkeys and recovery codes.

use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::ids::UserId;

use super::{TOP, entries, notices, operator};
use crate::console::passkeys::{self, SIGN_IN, signed};
use support::console::Browser;
use support::http::Answer;
use support::identity_provider::{IdentityProvider, ProvidersFile};
use support::security_key::SecurityKey;
use support::world::{PASSWORD, World};
use support::{Database, on_each_database};

/// Removes the second factor of a user on the operator's page.
async fn reset(world: &World, operator: &Browser, id: UserId, name: &str) {
    let page = format!("{TOP}/users/{id}/reset-second-factor");
    let to = operator.done(world, &page, &[("name", name)]).await;
    assert_eq!(to, format!("{TOP}/users/{id}?done=user_second_factor_reset"));
}

async fn sign_in(world: &World, key: &mut SecurityKey) -> Answer {
    let page = Browser::signed_out().page(world, SIGN_IN).await;
    let fields = signed(&page, key);
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Browser::signed_out().post(world, "/console/sign-in/passkey", &fields).send().await
}

async fn state(world: &World, id: UserId) -> Value {
    let session = world.session(id).await;
    world.get("/v1/auth/second-factor").bearer(&session.access_token).data().await
}

/// Returns the state of a user's factors after a reset.
fn nothing() -> Value {
    json!({"totp": null, "passkeys": 0, "recovery_codes_left": 0, "asked_after_password": false})
}

fn log_in(world: &World, code: Option<&str>) -> support::http::Call {
    let body = json!({"email": "ada@example.com", "password": PASSWORD, "one_time_code": code});
    world.post("/v1/auth/login", &body)
}

/// Returns the only notice to Ada, as one line.
async fn notice(world: &World) -> String {
    let told = notices(world, "ada@example.com").await;
    let [mail] = told.as_slice() else { panic!("{told:?}") };
    mail.replace("=\n", "").replace('\n', " ")
}

async fn remove_password(world: &World, id: UserId) {
    let mut tx = world.app.db.write().await.unwrap();
    let text = "UPDATE users SET password_hash = NULL WHERE id = $1";
    assert_eq!(sql(text).bind(id).execute(&mut tx).await.unwrap(), 1);
    tx.commit().await.unwrap();
}

#[on_each_database]
async fn app_passkeys_and_recovery_codes_are_removed(world: World) {
    let (opal, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let (app, codes) = world.add_authenticator_now(&ada.access_token).await;
    let of_ada = world.browser(ada.id).await;
    let (mut key, added) = passkeys::add(&world, &of_ada, &[("name", "Laptop")]).await;
    assert_eq!(added.status, 303, "{}", added.text);
    assert_eq!(sign_in(&world, &mut key).await.status, 303);
    let before = world.session(ada.id).await;
    let shown = browser.page(&world, &format!("{TOP}/users/{}", ada.id)).await;
    assert!(shown.contains("Remove the second factor"), "{shown}");

    reset(&world, &browser, ada.id, "ada").await;
    assert_eq!(world.get("/v1/auth/me").bearer(&before.access_token).refused().await.0, 401);
    assert_eq!(of_ada.get(&world, "/console/account").send().await.status, 303, "signed out");
    assert_eq!(sign_in(&world, &mut key).await.status, 401, "the passkey no longer works");
    assert_eq!(state(&world, ada.id).await, nothing());
    log_in(&world, None).data().await;
    let mail = notice(&world).await;
    assert!(mail.contains("Its authenticator app, passkeys and recovery codes are removed"), "{mail}");
    assert!(mail.contains("You can sign in with only the password."), "{mail}");
    let entry = (opal.id.to_string(), ada.id.to_string());
    assert_eq!(entries(&world, "user.second_factor_reset").await, [entry]);
    // With a new app, the old codes are no longer valid.
    let (_, new_codes) = world.add_authenticator(&world.session(ada.id).await.access_token).await;
    for code in [app.code(world.clock.now()), codes[0].clone()] {
        assert_eq!(log_in(&world, Some(&code)).refused().await.1, "invalid_one_time_code");
    }
    log_in(&world, Some(&new_codes[0])).data().await;
}

#[on_each_database]
async fn passkeys_that_arent_asked_for_are_removed_too(world: World) {
    let (_, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let (mut key, _) = passkeys::add(&world, &world.browser(ada.id).await, &[("name", "Laptop")]).await;
    assert_eq!(state(&world, ada.id).await["asked_after_password"], false);
    let shown = browser.page(&world, &format!("{TOP}/users/{}", ada.id)).await;
    assert!(shown.contains("Remove the second factor"), "{shown}");
    reset(&world, &browser, ada.id, "ada").await;
    assert_eq!(state(&world, ada.id).await, nothing());
    assert_eq!(sign_in(&world, &mut key).await.status, 401);
    let shown = browser.page(&world, &format!("{TOP}/users/{}", ada.id)).await;
    assert!(!shown.contains("Remove the second factor"), "the user has no second factor left: {shown}");
    // A repeated reset sends no notice and adds no entry.
    reset(&world, &browser, ada.id, "ada").await;
    notice(&world).await;
    assert_eq!(entries(&world, "user.second_factor_reset").await.len(), 1);
}

#[on_each_database]
async fn a_person_without_a_password_is_told_how_to_get_in(world: World) {
    let (_, browser) = operator(&world).await;
    let ada = world.user("ada").await;
    let (_, added) = passkeys::add(&world, &world.browser(ada.id).await, &[("name", "Laptop")]).await;
    assert_eq!(added.status, 303, "{}", added.text);
    remove_password(&world, ada.id).await;
    reset(&world, &browser, ada.id, "ada").await;
    let mail = notice(&world).await;
    assert!(!mail.contains("with only the password"), "{mail}");
    assert!(mail.contains("It has no password: choose one"), "{mail}");
    // The instructions in the e-mail work.
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    let token = world.mailed_token("ada@example.com").await;
    let body = json!({"token": token, "password": PASSWORD, "password_confirmation": PASSWORD});
    world.post("/v1/auth/reset-password", &body).data().await;
    log_in(&world, None).data().await;
}

#[on_each_database]
fn a_person_with_a_connection_is_told_to_sign_in_with_it(database: Database) {
    let file = ProvidersFile::new();
    let settings = [("TOLLKEEPER_SIGN_IN__PROVIDERS_FILE", file.path())];
    let settings = settings.each_ref().map(|(name, path)| (*name, path.as_str()));
    database.run(&settings, async |world| {
        let provider = IdentityProvider::start().await;
        file.write(&world, &[("acme", &provider.issuer, "")]);
        let (_, browser) = operator(&world).await;
        let ada = world.user("ada").await;
        world.add_authenticator_now(&ada.access_token).await;
        world.connection(ada.id, &provider.issuer, "1").await;
        remove_password(&world, ada.id).await;
        reset(&world, &browser, ada.id, "ada").await;
        let mail = notice(&world).await;
        assert!(mail.contains("It has no password: sign in with acme, or choose a new password"), "{mail}");
    });
}
