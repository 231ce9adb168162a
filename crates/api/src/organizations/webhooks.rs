//! `/v1/organizations/{organization_id}/webhooks` and `…/{webhook_id}` (docs/contract/webhooks.md).

pub mod bodies;
pub mod deliveries;
pub mod redeliver;
pub mod rotate;
pub mod test;

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Message;
use crate::paging::{PageInfo, PageQuery};
use ::webhooks::Webhooks;
use ::webhooks::access::WebhookScope;
use ::webhooks::endpoints::{self, Created, DisabledReason};
use events::EventType;
use idempotency::Uncommitted;
use kernel::clock::Time;
use kernel::error::{Code, Error};
use kernel::ids::WebhookId;
use tenants::ListPage;
use tenants::access::OrgScope;
use web::input::{Body, IfMatch, NoInput, Query};
use web::reply::{Enveloped, Versioned, ok, private, versioned};
use web::route::Operation;

pub use bodies::{CreateWebhook, UpdateWebhook};
pub use redeliver::redeliver;
pub use rotate::rotate;
pub use test::test;

/// A new webhook. Only this reply and the reply to a rotation contain its secret.
#[derive(Serialize, JsonSchema)]
pub struct CreatedWebhook {
    /// The webhook's id.
    id: WebhookId,
    /// The secret with which receivers verify that events come from this server.
    secret: String,
    /// The URL to which events are sent. It must use `https`, port 443 or a port of at least 1024, and a host
    /// on the public Internet.
    url: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The types of events that the webhook receives.
    events: Vec<EventType>,
    /// Always `true`.
    enabled: bool,
    /// The time when the webhook was created.
    created_at: Time,
}

pub const CREATE: Operation = Operation {
    errors: &[Code::LimitReached],
    example: r#"{
  "url": "https://example.com/events",
  "events": ["invoice.created", "invoice.paid", "api_key.created"],
  "description": "Our accounting"
}"#,
    ..Operation::new("create_webhook")
};

/// Create a webhook.
///
/// Only this response contains the secret.
pub async fn create(
    webhooks: Webhooks,
    scope: OrgScope,
    Body(body): Body<CreateWebhook>,
) -> Result<Uncommitted<Enveloped<CreatedWebhook>>, Error> {
    let created = endpoints::create(&webhooks, &scope, body.into()).await?;
    Ok(created.map(|Created { webhook, secret }| {
        private(CreatedWebhook {
            id: webhook.id,
            secret: secret.expose(),
            url: webhook.url.as_str().to_owned(),
            description: webhook.description,
            events: webhook.events,
            enabled: webhook.is_enabled,
            created_at: webhook.created_at,
        })
    }))
}

/// A webhook without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Webhook {
    /// The webhook's id.
    id: WebhookId,
    /// The URL to which events are sent. It must use `https`, port 443 or a port of at least 1024, and a host
    /// on the public Internet.
    url: String,
    /// A description of up to 1,000 characters.
    description: Option<String>,
    /// The types of events that the webhook receives.
    events: Vec<EventType>,
    /// `true` if the webhook receives events.
    enabled: bool,
    /// The reason why the webhook is disabled; null while it is enabled.
    disabled_reason: Option<DisabledReason>,
    /// The time of the first failed attempt since the last success; null if no attempt has failed since. It
    /// is also cleared when the URL changes or the webhook is enabled again.
    failing_since: Option<Time>,
    /// The time until which events are also signed with the previous secret; null if only one secret is
    /// valid.
    previous_secret_ends_at: Option<Time>,
    /// The time when the webhook was created.
    created_at: Time,
    /// The time of the last change.
    updated_at: Time,
}

impl Webhook {
    fn new(row: endpoints::Webhook, now: Time) -> Self {
        Self {
            id: row.id,
            url: row.url.as_str().to_owned(),
            description: row.description,
            events: row.events,
            enabled: row.is_enabled,
            disabled_reason: row.disabled_reason,
            failing_since: row.failing_since,
            previous_secret_ends_at: row.previous_ends_at.filter(|end| *end > now),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// A page of webhooks.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookPage {
    /// The webhooks of this page.
    webhooks: Vec<Webhook>,
    #[serde(flatten)]
    page: PageInfo,
}

pub const LIST: Operation = Operation::new("list_webhooks");

/// List the webhooks of an organization.
///
/// The newest come first.
pub async fn list(
    webhooks: Webhooks,
    scope: OrgScope,
    Query(PageQuery(page)): Query<PageQuery>,
) -> Result<Enveloped<WebhookPage>, Error> {
    let now = webhooks.clock.now();
    let ListPage { rows, total } = endpoints::list(&webhooks, &scope, page).await?;
    let rows = rows.into_iter().map(|row| Webhook::new(row, now)).collect();
    Ok(private(WebhookPage { webhooks: rows, page: PageInfo::new(total, page) }))
}

pub const READ: Operation = Operation::new("get_webhook");

/// Get a webhook.
pub async fn read(webhooks: Webhooks, scope: WebhookScope, _: NoInput) -> Result<Versioned<Webhook>, Error> {
    let row = scope.webhook().clone();
    Ok(versioned(row.version()?, Webhook::new(row, webhooks.clock.now())))
}

pub const UPDATE: Operation = Operation {
    example: r#"{
  "events": ["invoice.paid"],
  "enabled": true
}"#,
    ..Operation::new("update_webhook")
};

/// Change a webhook.
///
/// A merge patch: omitted fields don't change, and null clears a field. If the webhook is disabled, its
/// pending deliveries are canceled. After it is enabled again, it receives only new events.
pub async fn update(
    webhooks: Webhooks,
    scope: WebhookScope,
    IfMatch(expected, Body(body)): IfMatch<Body<UpdateWebhook>>,
) -> Result<Versioned<Webhook>, Error> {
    let row = endpoints::update(&webhooks, &scope, &expected, body.into()).await?;
    Ok(versioned(row.version()?, Webhook::new(row, webhooks.clock.now())))
}

pub const DELETE: Operation = Operation::new("delete_webhook");

/// Delete a webhook.
///
/// Its deliveries are also deleted.
pub async fn delete(
    webhooks: Webhooks,
    scope: WebhookScope,
    IfMatch(expected, _): IfMatch<NoInput>,
) -> Result<Enveloped<Message>, Error> {
    endpoints::delete(&webhooks, &scope, &expected).await?;
    Ok(ok(Message { message: "The webhook is deleted and gets no more events.".into() }))
}
