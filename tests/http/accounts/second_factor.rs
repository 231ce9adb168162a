//! Authenticator apps and recovery codes as a second factor (docs/contract/accounts.md#second-factor).

mod codes;
mod enrolment;
mod fresh_sessions;
mod no_way_around;
mod resealing;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::trail::{self, Filter};

use support::http::Call;
use support::world::{PASSWORD, World};

const ADA: &str = "ada@example.com";

/// Logs in with a password, and a code if it isn't empty.
fn login(world: &World, password: &str, code: &str) -> Call {
    let mut body = json!({"email": ADA, "password": password});
    if !code.is_empty() {
        body["one_time_code"] = code.into();
    }
    world.post("/v1/auth/login", &body)
}

/// Logs in with the right password and a code.
async fn logged_in(world: &World, code: &str) -> String {
    text(&login(world, PASSWORD, code).data().await, "access_token")
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap().to_owned()
}

fn post(world: &World, token: &str, path: &str, body: &Value) -> Call {
    world.post(path, body).bearer(token)
}

fn remove(world: &World, token: &str) -> Call {
    world.call(Method::DELETE, "/v1/auth/totp").bearer(token)
}

async fn state(world: &World, token: &str) -> Value {
    world.get("/v1/auth/second-factor").bearer(token).data().await
}

/// Sends due e-mails, and returns those to Ada with this subject.
async fn mails(world: &World, subject: &str) -> Vec<String> {
    tollkeeper::mail::sending::send_due(&world.app.mail).await.unwrap();
    let folder = std::fs::read_dir(world.data_dir.join("mail"));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    let (to, subject) = (format!("To: {ADA}\n"), format!("Subject: {subject}\n"));
    texts.filter(|text| text.contains(&to) && text.contains(&subject)).collect()
}

/// Returns the audit entries of this action as actor and target.
async fn entries(world: &World, action: &str) -> Vec<[String; 2]> {
    let filter = Filter { action: action.to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    found.into_iter().map(|entry| [entry.actor, entry.target]).collect()
}

/// Returns the reasons of refused logins, oldest first.
async fn refusals(world: &World) -> Vec<String> {
    let filter = Filter { action: "session.refused".to_owned(), limit: 100, ..Filter::default() };
    let found = trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    let mut reasons: Vec<_> =
        found.into_iter().map(|entry| (entry.happened_at, text(&entry.detail.unwrap(), "reason"))).collect();
    reasons.sort();
    reasons.into_iter().map(|(_, reason)| reason).collect()
}
