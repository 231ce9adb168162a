//! Webhooks: their operations, and the events that they receive.

mod attempts;
mod events;
mod expiring;
mod installation;
mod operations;
mod operator_events;
mod verified;

use http::Method;
use serde_json::{Value, json};
use tollkeeper::webhooks::sending::send_due;

use support::Database;
use support::receiver::Receiver;
use support::world::{Place, TestUser, World, id};

/// Runs a test on a database, with receivers on this machine allowed.
fn run_on(database: Database, test: impl AsyncFn(World)) {
    database.run(&[("TOLLKEEPER_WEBHOOKS__ALLOW_PRIVATE", "true")], test);
}

/// A webhook of an organization.
struct Hook {
    path: String,
    id: String,
    secret: String,
}

/// Creates and returns a webhook.
async fn hook(world: &World, owner: &TestUser, place: &Place, url: &str, events: &[&str]) -> Hook {
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({ "url": url, "events": events });
    let data = world.post(&path, &body).bearer(&owner.access_token).data().await;
    let secret = data["secret"].as_str().unwrap().to_owned();
    let id = id(&data);
    Hook { path: format!("{path}/{id}"), id, secret }
}

/// Creates a webhook for API keys with this receiver.
async fn key_hook(world: &World, owner: &TestUser, place: &Place, receiver: &Receiver) -> Hook {
    hook(world, owner, place, &receiver.url(), &["api_key.created", "api_key.deleted"]).await
}

/// Creates an API key, which queues an event.
async fn cause(world: &World, owner: &TestUser, place: &Place, name: &str) -> String {
    world.key(owner, place, &json!({ "name": name })).await.0
}

/// Sends the queued events.
async fn send(world: &World) {
    send_due(&world.app.webhooks).await.unwrap();
}

/// Returns the deliveries of a webhook, newest first.
async fn deliveries(world: &World, owner: &TestUser, hook: &Hook, query: &str) -> Vec<Value> {
    let path = format!("{}/deliveries{query}", hook.path);
    let data = world.get(&path).bearer(&owner.access_token).data().await;
    let rows = data["deliveries"].as_array().unwrap().clone();
    assert_eq!(data["total"].as_i64().unwrap(), i64::try_from(rows.len()).unwrap(), "{data}");
    rows
}

/// Calls an operation that takes no body.
async fn act(world: &World, owner: &TestUser, path: &str) -> Value {
    world.call(Method::POST, path).bearer(&owner.access_token).data().await
}

/// Reads a webhook.
async fn read(world: &World, owner: &TestUser, hook: &Hook) -> Value {
    world.get(&hook.path).bearer(&owner.access_token).data().await
}
