//! The bodies that create and change a webhook.

use crate::Api;
use ::webhooks::endpoints::{Change, New};
use ::webhooks::fields::EventTypes;
use ::webhooks::rules::urls::WebhookUrl;
use input::fields::Fields;
use input::record;
use input::types::DescriptionText;
use kernel::patch::Patch;

record! {
    /// A new webhook.
    #[derive(Debug)]
    pub struct CreateWebhook in Api {
        /// The URL to which events are sent. It must use `https`, port 443 or a port of at least 1024, and a
        /// host on the public Internet.
        url: WebhookUrl = required,
        /// The types of events to send; at least one.
        events: EventTypes = required,
        /// A description of up to 1,000 characters.
        description: Option<DescriptionText> = optional,
    }
    check(fields) {
        if let Some(url) = &url {
            check_url(fields, url);
        }
    }
}

record! {
    /// A merge patch of a webhook (RFC 7396).
    #[derive(Debug)]
    pub struct UpdateWebhook in Api {
        /// The URL to which events are sent. It must use `https`, port 443 or a port of at least 1024, and a
        /// host on the public Internet.
        url: Option<WebhookUrl> = change,
        /// The types of events to send; at least one.
        events: Option<EventTypes> = change,
        /// A description of up to 1,000 characters.
        description: Patch<DescriptionText> = patch,
        /// `false` to stop sending events, `true` to resume.
        enabled: Option<bool> = change,
    }
    check(fields) {
        if let Some(Some(url)) = &url {
            check_url(fields, url);
        }
    }
}

/// Checks that the configuration allows the URL.
fn check_url(fields: &mut Fields<'_, Api>, url: &WebhookUrl) {
    if let Some(api) = fields.state()
        && let Err(problem) = url.check(api.webhooks.settings.allow_private)
    {
        fields.problem::<()>("url", problem.code, format!("`url` {}.", problem.message));
    }
}

impl From<CreateWebhook> for New {
    fn from(body: CreateWebhook) -> Self {
        Self {
            id: None,
            url: body.url,
            events: body.events.0,
            description: body.description.map(|text| text.0),
        }
    }
}

impl From<UpdateWebhook> for Change {
    fn from(body: UpdateWebhook) -> Self {
        Self {
            url: body.url,
            events: body.events.map(|events| events.0),
            description: body.description.map(|text| text.0),
            is_enabled: body.enabled,
        }
    }
}
