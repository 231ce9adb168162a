//! Webhooks for tests that need one.

use http::Method;
use serde_json::json;

use crate::support::world::{Place, TestUser, World, id};

/// Creates a webhook with a delivery of a test; no job sends it. Returns their ids.
pub async fn webhook(world: &World, owner: &TestUser, place: &Place) -> (String, String) {
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({"url": "https://example.com/events", "events": ["invoice.paid"]});
    let webhook = id(&world.post(&path, &body).bearer(&owner.access_token).data().await);
    let path = format!("{path}/{webhook}/test");
    let test = world.call(Method::POST, &path).bearer(&owner.access_token).data().await;
    (webhook, test["delivery_id"].as_str().unwrap().to_owned())
}
