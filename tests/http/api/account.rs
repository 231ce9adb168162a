//! Users' changes to their own accounts, over HTTP (docs/contract/accounts.md).

mod change_email;
mod confirmation;
mod me;
mod resend_verification;
mod sessions;

use serde_json::{Value, json};
use tollkeeper::accounts::profiles::{self, Update};
use tollkeeper::accounts::{Session, email_changes, sessions as operations, verification};
use tollkeeper::error::Code;
use tollkeeper::kernel::naming;
use tollkeeper::kernel::patch::Patch;
use tollkeeper::trail::{self, Filter, Trail};

use support::http::Call;
use support::on_each_database;
use support::world::{PASSWORD, World};

/// Sends due e-mails, and returns those to this address with this subject, oldest first.
async fn mails(world: &World, address: &str, subject: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let (to, subject) = (format!("To: {address}\n"), format!("Subject: {subject}\n"));
    texts.filter(|text| text.contains(&to) && text.contains(&subject)).collect()
}

/// Returns the audit entries of this action as actor and target, sorted.
async fn entries(world: &World, action: &str) -> Vec<[String; 2]> {
    let filter = Filter { action: action.to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let mut entries: Vec<_> = found.into_iter().map(|entry| [entry.actor, entry.target]).collect();
    entries.sort();
    entries
}

fn login(world: &World, email: &str, password: &str) -> Call {
    world.post("/v1/auth/login", &json!({"email": email, "password": password}))
}

/// Registers an account and logs in to it; returns its id and its tokens.
async fn register(world: &World, name: &str) -> Value {
    let body = json!({"email": format!("{name}@example.com"), "password": PASSWORD, "username": name});
    world.post("/v1/auth/register", &body).data().await;
    login(world, &format!("{name}@example.com"), PASSWORD).data().await
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap().to_owned()
}

/// Another request may end the session after the gate has let this one through.
#[on_each_database]
async fn operations_ask_for_the_session_again_under_the_lock(world: World) {
    let (ada, trail, accounts) = (world.unverified_user("ada").await, Trail::system(), &world.app.accounts);
    world.post("/v1/auth/logout", &json!({})).bearer(&ada.access_token).data().await;
    let other = world.session(ada.id).await;
    let ended = Session { id: ada.session_id, user_id: ada.id };
    let new_email = naming::email("new@example.com").unwrap();
    let request = email_changes::Request { new_email: &new_email, password: PASSWORD };
    let keep = Update { username: None, full_name: Patch::Clear, phone: Patch::Clear };
    let rename = Update { username: Some(naming::username("countess").unwrap()), ..keep.clone() };
    let refused = [
        email_changes::request(accounts, &trail, ended, &request).await,
        profiles::update(accounts, &trail, ended, keep).await.map(drop),
        profiles::update(accounts, &trail, ended, rename).await.map(drop),
        verification::resend(accounts, &trail, ended).await,
        operations::end_one(accounts, &trail, ended, other.session_id).await,
        operations::end_others(accounts, &trail, ended).await,
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().code, Code::InvalidAccessToken, "{number}");
    }
    let me = world.get("/v1/auth/me").bearer(&other.access_token).data().await;
    assert_eq!(me["user"]["username"], "ada");
    assert!(mails(&world, "new@example.com", change_email::LINK).await.is_empty());
}
