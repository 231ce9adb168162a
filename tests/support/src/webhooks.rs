//! Webhooks for tests that need one.

use http::Method;
use serde_json::{Value, json};
use tollkeeper::db::sql;
use tollkeeper::events::EventType;
use tollkeeper::ids::WebhookId;
use tollkeeper::trail::Trail;
use tollkeeper::webhooks::endpoints::{self, New};
use tollkeeper::webhooks::owners::Owner;
use tollkeeper::webhooks::rules::urls::WebhookUrl;

use crate::world::{Place, TestUser, World, id};

/// Creates a webhook and a test delivery, which no job sends. Returns the ids of both.
pub async fn webhook(world: &World, owner: &TestUser, place: &Place) -> (String, String) {
    let path = format!("{}/webhooks", place.organization_path());
    let body = json!({"url": "https://example.com/events", "events": ["invoice.paid"]});
    let webhook = id(&world.post(&path, &body).bearer(&owner.access_token).data().await);
    let path = format!("{path}/{webhook}/test");
    let test = world.call(Method::POST, &path).bearer(&owner.access_token).data().await;
    (webhook, test["delivery_id"].as_str().unwrap().to_owned())
}

/// A webhook of the installation.
pub struct OperatorHook {
    pub id: WebhookId,
    pub secret: String,
}

/// Creates a webhook of the installation for events of these types.
pub async fn operator_hook(world: &World, url: &str, events: &[EventType]) -> OperatorHook {
    let new =
        New { id: None, url: WebhookUrl::parse(url).unwrap(), events: events.to_vec(), description: None };
    let trail = Trail::operator();
    let created = endpoints::create(&world.app.webhooks, Owner::Installation(&trail), new).await.unwrap();
    let created = created.commit().await.unwrap();
    OperatorHook { id: created.webhook.id, secret: created.secret.expose() }
}

/// Returns the queued events for the operator and removes them from the queue. They are sorted by code and
/// source.
pub async fn take_operator_events(world: &World) -> Vec<Value> {
    let mut tx = world.app.db.write().await.unwrap();
    let rows: Vec<(Vec<u8>,)> =
        sql("SELECT body FROM webhook_events WHERE organization_id = ''").all(&mut tx).await.unwrap();
    sql("DELETE FROM webhook_events").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut events: Vec<Value> =
        rows.into_iter().map(|(body,)| serde_json::from_slice(&body).unwrap()).collect();
    events.sort_by_key(|event| ["code", "source"].map(|field| event["data"][field].to_string()));
    events
}
