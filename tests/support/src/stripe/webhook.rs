//! Delivery of signed events to a receiver.

use ring::hmac;
use serde_json::Value;

use super::{FakeStripe, wire};
use crate::chance::Chance;

/// A receiver of events.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: String,
    pub secret: String,
}

/// A delivery, with the status of the response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub event_id: String,
    pub kind: String,
    pub status: Option<u16>,
}

/// Returns the header `Stripe-Signature` for a body.
pub fn sign(secret: &str, unix_seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, format!("{unix_seconds}.{body}").as_bytes());
    let hex: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={unix_seconds},v1={hex}")
}

impl FakeStripe {
    /// Returns the events, oldest first.
    pub fn events(&self) -> Vec<Value> {
        self.with(|account| account.state.all("event").into_iter().cloned().collect())
    }

    /// Returns the undelivered events, oldest first.
    pub fn undelivered(&self) -> Vec<Value> {
        self.with(|account| {
            let state = &account.state;
            state.undelivered.iter().map(|id| state.get(id).clone()).collect()
        })
    }

    /// Clears the list of undelivered events.
    pub fn drop_events(&self) {
        self.with(|account| account.state.undelivered.clear());
    }

    /// Returns the signature and the body with which an event is delivered now.
    pub fn packed(&self, event_id: &str, secret: &str) -> (String, String) {
        self.with(|account| {
            let body = account.state.get(event_id).to_string();
            (sign(secret, account.state.now(), &body), body)
        })
    }

    /// Delivers an event, even if it was delivered before. After a successful delivery, [`Self::deliver_new`]
    /// skips the event.
    pub async fn deliver(&self, to: &Endpoint, event_id: &str) -> Delivery {
        let (signature, body) = self.packed(event_id, &to.secret);
        let status = wire::post(&to.url, &signature, &body).await;
        self.with(|account| {
            if status.is_some_and(|status| (200..300).contains(&status)) {
                account.state.undelivered.retain(|id| id != event_id);
            }
            let kind = account.state.get(event_id)["type"].as_str().unwrap().to_owned();
            Delivery { event_id: event_id.to_owned(), kind, status }
        })
    }

    /// Delivers all undelivered events in order. Events that aren't accepted stay undelivered.
    pub async fn deliver_new(&self, to: &Endpoint) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for event in self.undelivered() {
            deliveries.push(self.deliver(to, event["id"].as_str().unwrap()).await);
        }
        deliveries
    }

    /// Delivers all undelivered events in random order, some of them several times, and some at the same
    /// time.
    pub async fn deliver_wildly(&self, to: &Endpoint, chance: &mut Chance) -> Vec<Delivery> {
        let mut ids: Vec<_> =
            self.undelivered().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
        for _ in 0..ids.len() / 2 {
            ids.push(ids[chance.below(ids.len())].clone());
        }
        for at in (1..ids.len()).rev() {
            ids.swap(at, chance.below(at + 1));
        }
        let mut deliveries = Vec::new();
        while !ids.is_empty() {
            let together = ids.split_off(ids.len().saturating_sub(1 + chance.below(3)));
            let sent = together.iter().map(|id| self.deliver(to, id));
            deliveries.extend(futures_util::future::join_all(sent).await);
        }
        deliveries
    }
}
