//! No sign-in method opens a disabled account.

use serde_json::{Value, json};
use tollkeeper::operators::users;
use tollkeeper::trail::{self, Filter, Trail};

use crate::console::passkeys;
use support::authenticator::STEP_MS;
use support::console::Browser;
use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, TestUser, World};

async fn disable(world: &World, user: &TestUser) {
    let change = users::disable(&world.app.operators, user.id, &Trail::operator()).await.unwrap();
    assert!(!change.was_unchanged && change.user.disabled_at == Some(world.clock.now()));
}

async fn enable(world: &World, user: &TestUser) {
    users::enable(&world.app.operators, user.id, &Trail::operator()).await.unwrap();
}

fn login(world: &World, password: &str) -> Call {
    world.post("/v1/auth/login", &json!({"email": "ada@example.com", "password": password}))
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[on_each_database]
async fn no_way_leads_into_a_disabled_account(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    world.get("/v1/auth/me").bearer(&ada.access_token).data().await;
    browser.page(&world, "/console/account").await;

    disable(&world, &ada).await;
    let me = world.get("/v1/auth/me").bearer(&ada.access_token);
    assert_eq!(me.refused().await, refused(401, "invalid_access_token"), "within its life");
    let refresh = world.post("/v1/auth/refresh-token", &json!({})).bearer(&ada.refresh_token);
    assert_eq!(refresh.refused().await, refused(401, "invalid_refresh_token"));
    let page = browser.get(&world, "/console/account").send().await;
    assert_eq!((page.status, page.header("location")), (303, "/console/sign-in?next=/console/account"));
    assert_eq!(login(&world, PASSWORD).refused().await, refused(403, "account_disabled"));
    let wrong = login(&world, "Wrong-Horse-7-Staple").refused().await;
    assert_eq!(
        wrong,
        refused(401, "invalid_credentials"),
        "only the owner learns that the account is disabled"
    );
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let page = Browser::signed_out().post(&world, "/console/sign-in", &fields).send().await;
    assert_eq!(page.status, 403);
    assert!(page.text.contains("This account is disabled"), "{}", page.text);
    assert!(page.headers.get("set-cookie").is_none());

    // A new password doesn't enable the account.
    world.post("/v1/auth/forgot-password", &json!({"email": "ada@example.com"})).data().await;
    let token = world.mailed_token("ada@example.com").await;
    let new = "Violet-Kettle-Orbit-9";
    let reset = json!({"token": token, "password": new, "password_confirmation": new});
    world.post("/v1/auth/reset-password", &reset).data().await;
    assert_eq!(login(&world, new).refused().await, refused(403, "account_disabled"));

    enable(&world, &ada).await;
    login(&world, new).data().await;
    let me = world.get("/v1/auth/me").bearer(&ada.access_token);
    assert_eq!(me.refused().await.0, 401, "ended sessions stay ended");
    assert_eq!(entries(&world, "user.disabled").await, [("operator".to_owned(), ada.id.to_string())]);
    assert_eq!(entries(&world, "user.enabled").await, [("operator".to_owned(), ada.id.to_string())]);
}

async fn entries(world: &World, action: &str) -> Vec<(String, String)> {
    let filter = Filter { action: action.to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    found.into_iter().map(|entry| (entry.actor, entry.target)).collect()
}

#[on_each_database]
async fn the_second_step_opens_no_disabled_account(world: World) {
    let ada = world.user("ada").await;
    let (app, _) = world.add_authenticator(&ada.access_token).await;
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    let first = Browser::signed_out().post(&world, "/console/sign-in", &fields).send().await;
    assert_eq!(first.status, 303, "{}", first.text);
    let cookie = first.header("set-cookie").split(';').next().unwrap().to_owned();
    disable(&world, &ada).await;
    world.clock.advance_ms(STEP_MS);
    let code = app.code(world.clock.now());
    let step =
        Browser::signed_out().post(&world, "/console/sign-in/second-factor", &[("one_time_code", &code)]);
    let second = step.header("cookie", &cookie).send().await;
    assert_eq!((second.status, second.header("location")), (303, "/console/sign-in"));
    assert!(!second.header("set-cookie").contains("tollkeeper="), "no session");
}

#[on_each_database]
async fn keys_of_a_disabled_person_call_models_and_manage_nothing(world: World) {
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    let place = world.place(&ada, "Acme").await;
    let owner = tollkeeper::tenants::roles::OrganizationRole::Owner;
    world.join_organization(&place, &bob, owner).await;
    let (_, key) = world.key(&ada, &place, &json!({"name": "Prod"})).await;
    let (rotated_id, _) = world.key(&ada, &place, &json!({"name": "Rotated"})).await;
    let path = format!("{}/api-keys/{rotated_id}/rotate", place.project_path());
    let rotated = world.post(&path, &json!({})).bearer(&bob.access_token).data().await;
    let rotated = rotated["key"].as_str().unwrap().to_owned();
    let manage = |key: &str| world.get(&place.project_path()).bearer(key);
    manage(&key).data().await;

    disable(&world, &ada).await;
    world.get("/v1/models").bearer(&key).bare().await;
    let chat = json!({"model": "svc-1", "messages": [{"role": "user", "content": "Hi"}]});
    world.post("/v1/chat/completions", &chat).bearer(&key).bare().await;
    assert_eq!(manage(&key).refused().await, refused(403, "account_disabled"));
    let question = json!({"credential": key, "operation": "chat", "model": "svc-1", "max_tokens": 10});
    assert_eq!(world.ask("/service/v1/authorize", &question).bare().await["allowed"], true);
    let question = json!({"credential": ada.access_token, "operation": "chat", "model": "svc-1",
        "organization_id": place.organization, "project_id": place.project});
    let answer: Value = world.ask("/service/v1/authorize", &question).bare().await;
    assert_eq!((&answer["allowed"], &answer["code"]), (&json!(false), &json!("invalid_access_token")));

    enable(&world, &ada).await;
    manage(&key).data().await;
    // A secret that another user rotated has only the rights that both users have.
    disable(&world, &bob).await;
    assert_eq!(manage(&rotated).refused().await, refused(403, "account_disabled"));
    manage(&key).data().await;
}

#[on_each_database]
async fn a_login_and_a_disabling_at_once_leave_no_session(world: World) {
    let ada = world.user("ada").await;
    for _ in 0..5 {
        let logins = (0..4).map(|_| tokio::spawn(login(&world, PASSWORD).send()));
        let logins: Vec<_> = logins.collect();
        disable(&world, &ada).await;
        for login in logins {
            let answer = login.await.unwrap();
            if answer.status == 200 {
                let token = answer.json()["data"]["access_token"].as_str().unwrap().to_owned();
                assert_eq!(world.get("/v1/auth/me").bearer(&token).refused().await.0, 401);
            }
        }
        enable(&world, &ada).await;
    }
}

#[on_each_database]
async fn a_passkey_opens_no_disabled_account(world: World) {
    let ada = world.user("ada").await;
    let browser = world.browser(ada.id).await;
    let (mut key, _) = passkeys::add(&world, &browser, &[("name", "Laptop")]).await;
    disable(&world, &ada).await;
    let page = Browser::signed_out().page(&world, passkeys::SIGN_IN).await;
    let signed = passkeys::signed(&page, &mut key);
    let fields: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let by_passkey = format!("{}/passkey", passkeys::SIGN_IN);
    let answer = Browser::signed_out().post(&world, &by_passkey, &fields).send().await;
    assert_eq!((answer.status, answer.header("set-cookie")), (403, ""), "{}", answer.text);
    assert!(answer.text.contains("This account is disabled"), "{}", answer.text);
    enable(&world, &ada).await;
    let page = Browser::signed_out().page(&world, passkeys::SIGN_IN).await;
    let signed = passkeys::signed(&page, &mut key);
    let fields: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Browser::signed_out().done(&world, &by_passkey, &fields).await;
}
