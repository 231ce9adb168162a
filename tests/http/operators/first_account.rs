//! The first account, and the token that creates it.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tollkeeper::app::App;
use tollkeeper::operators::{first_account, roles};
use tollkeeper::trail::Trail;
use tollkeeper::web::route::Listener;

use support::console::Browser;
use support::on_each_database;
use support::world::{Folder, PASSWORD, World};

const PAGE: &str = "/console/first-account";

fn token(world: &World) -> String {
    let text = std::fs::read_to_string(world.data_dir.join("first-account.token")).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

fn fields<'a>(token: &'a str, email: &'a str, username: &'a str) -> [(&'a str, &'a str); 4] {
    [("token", token), ("email", email), ("username", username), ("password", PASSWORD)]
}

#[on_each_database]
async fn whoever_has_the_token_makes_an_operators_account(world: World) {
    let token = token(&world);
    let file = world.data_dir.join("first-account.token");
    assert_eq!((token.len(), file.metadata().unwrap().permissions().mode() & 0o777), (43, 0o600));
    let browser = Browser::signed_out();
    let page = browser.page(&world, &format!("{PAGE}?token={token}")).await;
    assert!(page.contains("<form"), "{page}");
    for wrong in [String::new(), "x".repeat(43), token.replacen(|_| true, "_", 1)] {
        let page = browser.get(&world, &format!("{PAGE}?token={wrong}")).send().await;
        assert_eq!((page.status, page.text.contains("<form")), (400, false), "{wrong}");
        let sent = browser.post(&world, PAGE, &fields(&wrong, "eve@example.com", "eve")).send().await;
        assert_eq!(sent.status, 400);
    }
    // A refusal leaves the token valid.
    let weak =
        [("token", token.as_str()), ("email", "ada@example.com"), ("username", "ada"), ("password", "short")];
    let refused = browser.post(&world, PAGE, &weak).send().await;
    assert_eq!((refused.status, refused.text.contains("<form")), (400, true));
    world.user("bob").await;
    let taken = browser.post(&world, PAGE, &fields(&token, "bob@example.com", "ada")).send().await;
    assert_eq!(taken.status, 409, "{}", taken.text);

    let to = browser.done(&world, PAGE, &fields(&token, "ada@example.com", "ada")).await;
    assert_eq!(to, "/console/sign-in?done=first_account_created");
    assert!(!file.exists());
    let login = json!({"email": "ada@example.com", "password": PASSWORD});
    let ada = world.post("/v1/auth/login", &login).data().await;
    let me = world.get("/v1/auth/me").bearer(ada["access_token"].as_str().unwrap()).data().await;
    assert_eq!(me["user"]["email_verified"], true);
    let id = tollkeeper::ids::UserId::parse(ada["user"]["id"].as_str().unwrap()).unwrap();
    assert!(roles::is_operator(&world.app.operators, id).await.unwrap());
    // The token is no longer valid, even after another start.
    first_account::prepare(&world.app.operators).await.unwrap();
    assert!(!file.exists());
    let again = browser.post(&world, PAGE, &fields(&token, "eve@example.com", "eve")).send().await;
    assert_eq!(again.status, 400);
    assert_eq!(first_account::renew_link(&world.app.operators).await.unwrap(), None);
}

#[on_each_database(&[("TOLLKEEPER_LIMITS__ENABLED", "false")])]
async fn of_64_at_once_one_wins(world: World) {
    let token = token(&world);
    let mut calls = Vec::new();
    for number in 0..64 {
        let (email, name) = (format!("p{number}@example.com"), format!("person{number}"));
        let call = Browser::signed_out().post(&world, PAGE, &fields(&token, &email, &name));
        calls.push(tokio::spawn(call.from(&format!("10.0.{number}.1")).send()));
    }
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.unwrap().status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 303 | 400)), "{statuses:?}");
}

#[on_each_database]
async fn the_first_of_several_servers_has_the_token(world: World) {
    let token = token(&world);
    let folder = Folder::new();
    let mut config = world.app.config.clone();
    config.database_url = Some(world.app.config.database_url_or_default());
    config.master_key_file = Some(world.app.config.master_key_file_or_default());
    config.data_dir.clone_from(&folder.0);
    let other = App::new(config, world.clock.clone()).unwrap();
    other.boot().await.unwrap();
    assert!(!folder.0.join("first-account.token").exists(), "only one link exists");
    // The page of every server accepts the token.
    let public = other.dispatcher(Listener::Public);
    let call = |email: &str, name: &str| {
        support::http::Call::new(&public, http::Method::POST, PAGE)
            .header("sec-fetch-site", "same-origin")
            .form(&fields(&token, email, name))
    };
    assert_eq!(call("ada@example.com", "ada").send().await.status, 303);
    let late = Browser::signed_out().post(&world, PAGE, &fields(&token, "eve@example.com", "eve"));
    assert_eq!(late.send().await.status, 400);
}

#[on_each_database]
async fn setup_makes_another_link_until_there_is_an_operator(world: World) {
    let operators = &world.app.operators;
    let first = token(&world);
    let link = first_account::renew_link(operators).await.unwrap().unwrap();
    assert!(
        link.ends_with(&format!("/console/first-account?token={first}")),
        "the same link while it is valid"
    );
    std::fs::remove_file(world.data_dir.join("first-account.token")).unwrap();
    let link = first_account::renew_link(operators).await.unwrap().unwrap();
    assert!(link.ends_with(&token(&world)) && !link.ends_with(&first));
    assert!(!first_account::is_good(operators, &first).await.unwrap(), "the earlier one is void");
    // The token is no longer valid once an operator exists.
    let ada = world.user("ada").await;
    roles::grant(operators, ada.id, &Trail::operator()).await.unwrap();
    assert!(!first_account::is_good(operators, &token(&world)).await.unwrap());
    assert_eq!(first_account::renew_link(operators).await.unwrap(), None);
}
