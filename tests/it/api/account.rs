//! What people change about their own account, over HTTP (docs/contract/accounts.md).

mod me;
mod resend_verification;
mod sessions;

use serde_json::{Value, json};
use tollkeeper::trail::{self, Filter};

use crate::support::http::Call;
use crate::support::world::{PASSWORD, World};

/// Sends due mail and returns the mails to this address with this subject, oldest first.
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
