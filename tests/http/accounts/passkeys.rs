//! Passkeys (docs/contract/accounts.md#passkeys), with an authenticator written for the tests.

mod adding;
mod ceremonies;
mod checks;
mod differential;
mod factors;
mod signing_in;

use http::Method;
use serde_json::{Value, json};

use support::http::Call;
use support::security_key::SecurityKey;
use support::world::World;

const ADA: &str = "ada@example.com";
/// The refusal of an answer that fails any check.
const INVALID: (u16, &str) = (401, "invalid_credential");
/// The refusal of a ceremony that is no longer valid.
const EXPIRED: (u16, &str) = (400, "challenge_expired");

/// Returns the origin for which passkeys are valid.
fn origin(world: &World) -> String {
    world.app.accounts.passkeys().unwrap().origin().to_owned()
}

fn post(world: &World, token: &str, path: &str, body: &Value) -> Call {
    world.post(path, body).bearer(token)
}

fn at(world: &World, token: &str, method: Method, id: &str) -> Call {
    world.call(method, &format!("/v1/auth/passkeys/{id}")).bearer(token)
}

/// Returns the options of a new passkey.
async fn options(world: &World, token: &str) -> Value {
    post(world, token, "/v1/auth/passkeys/options", &json!({})).data().await
}

/// Returns the call that adds a passkey.
fn create(world: &World, token: &str, options: &Value, credential: &Value, name: &str) -> Call {
    let body = json!({"ceremony": options["ceremony"], "credential": credential, "name": name});
    post(world, token, "/v1/auth/passkeys", &body)
}

/// Adds a passkey to the account of this session; returns the authenticator and the answer.
async fn add(world: &World, token: &str, name: &str) -> (SecurityKey, Value) {
    let mut key = SecurityKey::new();
    let answer = add_with(world, token, name, &mut key).await;
    (key, answer)
}

async fn add_with(world: &World, token: &str, name: &str, key: &mut SecurityKey) -> Value {
    let options = options(world, token).await;
    let credential = key.make(&options["public_key"], &origin(world));
    create(world, token, &options, &credential, name).data().await
}

/// Returns the options of a login.
async fn login_options(world: &World) -> Value {
    world.post("/v1/auth/passkey-login/options", &json!({})).data().await
}

/// Returns the call that logs in with an answer to these options.
fn login(world: &World, options: &Value, credential: &Value) -> Call {
    let body = json!({"ceremony": options["ceremony"], "credential": credential});
    world.post("/v1/auth/passkey-login", &body)
}

/// Logs in with a passkey; returns the answer.
async fn logged_in(world: &World, key: &mut SecurityKey) -> Value {
    let options = login_options(world).await;
    let credential = key.sign(&options["public_key"], &origin(world));
    login(world, &options, &credential).data().await
}

/// Returns the call that confirms the identity of a session's user with a passkey.
async fn prove(world: &World, token: &str, key: &mut SecurityKey) -> Call {
    let options = post(world, token, "/v1/auth/reauthenticate/options", &json!({})).data().await;
    let credential = key.sign(&options["public_key"], &origin(world));
    let body = json!({"ceremony": options["ceremony"], "credential": credential});
    post(world, token, "/v1/auth/reauthenticate", &body)
}

async fn list(world: &World, token: &str) -> Value {
    world.get("/v1/auth/passkeys").bearer(token).data().await["passkeys"].clone()
}

async fn state(world: &World, token: &str) -> Value {
    world.get("/v1/auth/second-factor").bearer(token).data().await
}

fn text(data: &Value, name: &str) -> String {
    data[name].as_str().unwrap_or_else(|| panic!("no {name} in {data}")).to_owned()
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
    let filter = tollkeeper::trail::Filter { action: action.to_owned(), limit: 100, ..Default::default() };
    let found = tollkeeper::trail::list(&mut world.app.db.read().await.unwrap(), &filter).await.unwrap();
    found.into_iter().map(|entry| [entry.actor, entry.target]).collect()
}

/// Returns a copy with one bit flipped.
fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}
