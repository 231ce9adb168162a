//! Webhook endpoints: where an account's events are sent, and which of them.

use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::values::{Created, Page};

/// Stands for events of all types.
const ALL: &str = "*";

/// A webhook endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct WebhookEndpoint {
    pub id: String,
    pub url: String,
    /// `enabled` or `disabled`.
    pub status: String,
    /// The types of the events that it gets, or `*` alone for all.
    pub enabled_events: Vec<String>,
    /// The version of the API that its events are written by; that of the account if it is `None`.
    pub api_version: Option<String>,
    pub livemode: bool,
}

impl WebhookEndpoint {
    /// Returns `true` if events are sent to it.
    pub fn is_enabled(&self) -> bool {
        self.status == "enabled"
    }

    /// Returns `true` if it gets the events of a type.
    pub fn gets(&self, event_type: &str) -> bool {
        self.enabled_events.iter().any(|enabled| enabled == ALL || enabled == event_type)
    }
}

impl Client {
    /// Returns webhook endpoints, the newest first.
    pub async fn webhook_endpoints(&self, created: &Created<'_>) -> Result<Page<WebhookEndpoint>, Error> {
        self.get_page("webhook_endpoints", &created.query()).await
    }
}
