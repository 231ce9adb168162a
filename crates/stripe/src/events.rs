//! Events: changes to an account's objects, as delivered by webhooks and listed by the API.

use serde::Deserialize;

use crate::client::{Client, path};
use crate::error::Error;
use crate::form::Query;
use crate::values::{Created, Expandable, Metadata, Page, Reference, metadata};

/// Maximum size of an event, in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;

/// An event. Its object may be outdated or arrive out of order, so read the object itself.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Event {
    pub id: String,
    /// The kind, such as `checkout.session.completed`.
    #[serde(rename = "type")]
    pub kind: String,
    pub livemode: bool,
    /// Creation time, in Unix seconds.
    pub created: i64,
    /// The API version of its object.
    pub api_version: Option<String>,
    pub data: EventData,
}

/// The data of an event.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct EventData {
    pub object: EventObject,
}

/// The object of an event.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct EventObject {
    /// The object's id. A few kinds have none.
    pub id: Option<String>,
    /// The kind of object, such as `payment_intent` or `checkout.session`.
    pub object: String,
    /// The payment that a charge, a refund, a dispute, or a session belongs to.
    payment_intent: Option<Expandable<Reference>>,
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: Metadata,
}

impl Event {
    /// Parses the body of a webhook whose signature was verified; `None` if it isn't an event or is too
    /// large.
    pub fn parse(body: &[u8]) -> Option<Self> {
        if body.len() > MAX_EVENT_BYTES {
            return None;
        }
        let event: Self = serde_json::from_slice(body).ok()?;
        (!event.id.is_empty() && !event.kind.is_empty()).then_some(event)
    }
}

impl EventObject {
    /// Returns the object's id if it is a payment intent, otherwise the id of the payment intent that it
    /// belongs to.
    pub fn payment_intent_id(&self) -> Option<&str> {
        match self.object.as_str() {
            "payment_intent" => self.id.as_deref(),
            _ => self.payment_intent.as_ref().map(Expandable::id),
        }
    }
}

impl Client {
    /// Returns events of these types, or of all types, newest first. Stripe keeps them for 30 days.
    pub async fn events(&self, kinds: &[&str], created: &Created<'_>) -> Result<Page<Event>, Error> {
        let mut query = created.query();
        query.list("types", kinds);
        self.get_page("events", &query).await
    }

    pub async fn event(&self, id: &str) -> Result<Event, Error> {
        self.get(&path("events", id)?, &Query::new()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_is_read_and_the_rest_ignored() {
        let body = br#"{"id": "evt_1", "object": "event", "api_version": "2026-10-28.endive", "created": 1764000000,
            "data": {"object": {"id": "cs_1", "object": "checkout.session", "payment_intent": "pi_1", "new": [1]},
                     "previous_attributes": {"status": "open"}},
            "livemode": false, "pending_webhooks": 1, "request": {"id": null}, "type": "checkout.session.completed",
            "something": {"new": true}}"#;
        let event = Event::parse(body).unwrap();
        assert_eq!((event.id.as_str(), event.kind.as_str()), ("evt_1", "checkout.session.completed"));
        assert_eq!((event.livemode, event.created), (false, 1_764_000_000));
        let object = event.data.object;
        assert_eq!((object.id.as_deref(), object.object.as_str()), (Some("cs_1"), "checkout.session"));
        assert_eq!(object.payment_intent_id(), Some("pi_1"));
    }

    #[test]
    fn payment_of_an_object_is_found() {
        for (object, id) in [
            (r#"{"id": "pi_1", "object": "payment_intent"}"#, Some("pi_1")),
            (r#"{"id": "ch_1", "object": "charge", "payment_intent": {"id": "pi_1", "x": 1}}"#, Some("pi_1")),
            (r#"{"id": "du_1", "object": "dispute", "payment_intent": "pi_1"}"#, Some("pi_1")),
            (r#"{"id": "re_1", "object": "refund", "payment_intent": null}"#, None),
            (r#"{"object": "balance"}"#, None),
        ] {
            let body = format!(
                r#"{{"id": "evt_1", "type": "x", "livemode": true, "created": 1, "data": {{"object": {object}}}}}"#
            );
            let event = Event::parse(body.as_bytes()).unwrap();
            assert_eq!(event.data.object.payment_intent_id(), id, "{object}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let good = r#"{"id": "evt_1", "type": "x", "livemode": true, "created": 1, "data": {"object": {"object": "y"}}}"#;
        assert!(Event::parse(good.as_bytes()).is_some());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            &good.replace("evt_1", ""),
            &good.replace("\"x\"", "1"),
            &good.replace("true", "\"true\""),
            &good.replace("{\"object\": \"y\"}", "\"y\""),
            &deep,
            &format!("{good}{good}"),
            &format!("{good}{}", " ".repeat(MAX_EVENT_BYTES)),
        ] {
            assert_eq!(Event::parse(bad.as_bytes()), None, "{bad:.80}");
        }
    }
}
