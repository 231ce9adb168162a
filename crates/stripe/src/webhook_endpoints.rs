//! Webhook endpoints: the URLs that receive an account's events.

use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::values::{Created, Page};

/// Wildcard for events of all types.
const ALL: &str = "*";

/// A webhook endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct WebhookEndpoint {
    pub id: String,
    pub url: String,
    /// `enabled` or `disabled`.
    pub status: String,
    /// The types of events it receives, or only `*` for all.
    pub enabled_events: Vec<String>,
    /// The API version of its events; `None` means the account's version.
    pub api_version: Option<String>,
    pub livemode: bool,
}

impl WebhookEndpoint {
    /// Returns `true` if events are sent to the endpoint.
    pub fn is_enabled(&self) -> bool {
        self.status == "enabled"
    }

    /// Returns `true` if the endpoint receives events of a type.
    pub fn gets(&self, event_type: &str) -> bool {
        self.enabled_events.iter().any(|enabled| enabled == ALL || enabled == event_type)
    }
}

impl Client {
    /// Returns webhook endpoints, newest first.
    pub async fn webhook_endpoints(&self, created: &Created<'_>) -> Result<Page<WebhookEndpoint>, Error> {
        self.get_page("webhook_endpoints", &created.query()).await
    }
}
