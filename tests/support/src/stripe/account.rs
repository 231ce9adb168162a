//! The account itself, and its webhook endpoint, which receives the events.

use serde_json::{Value, json};

use super::params::Params;
use super::problem::Problem;
use super::state::{API_VERSION, State};

/// The URL of the webhook.
const WEBHOOK_URL: &str = "https://tollkeeper.example.com/v1/billing/stripe/events";

impl State {
    /// Adds the webhook, which receives all events.
    pub fn add_webhook(&mut self) {
        let id = self.new_id("we");
        self.put(json!({
            "id": id,
            "object": "webhook_endpoint",
            "api_version": API_VERSION,
            "application": null,
            "created": self.now(),
            "description": null,
            "enabled_events": ["*"],
            "livemode": self.livemode,
            "metadata": {},
            "status": "enabled",
            "url": WEBHOOK_URL,
        }));
    }

    /// Returns `true` if events of this type are sent to the webhook.
    pub fn is_sent(&self, kind: &str) -> bool {
        let gets = |endpoint: &&Value| {
            let enabled = endpoint["enabled_events"].as_array().unwrap();
            endpoint["status"] == "enabled" && enabled.iter().any(|it| it == "*" || it == kind)
        };
        self.all("webhook_endpoint").iter().any(gets)
    }

    pub fn webhook_endpoints(&self, params: &Params) -> Result<Value, Problem> {
        self.page("webhook_endpoint", "/v1/webhook_endpoints", params, |_| true)
    }

    pub fn account(&self, params: &Params) -> Result<Value, Problem> {
        params.finish()?;
        Ok(json!({
            "id": "acct_1Fake",
            "object": "account",
            "business_type": "company",
            "capabilities": self.capabilities,
            "charges_enabled": self.capabilities["card_payments"] == "active",
            "country": "US",
            "default_currency": "usd",
            "details_submitted": true,
            "email": "account@example.com",
            "payouts_enabled": true,
            "type": "standard",
        }))
    }
}
