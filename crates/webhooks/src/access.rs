//! Scopes of webhooks. Roles that can see an organization's money can also see its webhooks, and owners can
//! change them. As for all scopes, 404 is checked before 403.

use kernel::error::{Code, Error};
use kernel::futures::BoxFuture;
use kernel::ids::{DeliveryId, OrganizationId, WebhookId};
use tenants::access::{Caller, FoundOrganization, OrgScope};
use tenants::roles::OrganizationAction;
use trail::Trail;

use crate::store::endpoints::Webhook;
use crate::{Webhooks, store};

/// An action on a webhook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebhookAction {
    /// View it and its deliveries.
    Read,
    /// Change or test it, or redeliver events.
    Change,
}

impl WebhookAction {
    /// Returns the action on the organization that grants it.
    pub const fn on_organization(self) -> OrganizationAction {
        match self {
            Self::Read => OrganizationAction::ViewBilling,
            Self::Change => OrganizationAction::ManageWebhooks,
        }
    }
}

/// Permission for an action on a webhook.
#[derive(Clone, Debug)]
pub struct WebhookScope {
    organization: OrgScope,
    webhook: Webhook,
}

impl WebhookScope {
    /// Admits a caller whose role allows the action.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        webhooks: &Webhooks,
        (organization_id, webhook_id): (OrganizationId, Option<WebhookId>),
        caller: Caller,
        action: WebhookAction,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let found = FoundOrganization::find(&webhooks.tenants, organization_id, caller).await?;
            let webhook = find(webhooks, organization_id, webhook_id).await?;
            Ok(Self { organization: found.admit(action.on_organization(), trail)?, webhook })
        })
    }

    pub fn trail(&self) -> &Trail {
        self.organization.trail()
    }
    pub fn organization_id(&self) -> OrganizationId {
        self.organization.organization_id()
    }
    pub fn webhook_id(&self) -> WebhookId {
        self.webhook.id
    }
    /// Returns the webhook as read by `admit`.
    pub fn webhook(&self) -> &Webhook {
        &self.webhook
    }
    /// Returns the scope of the organization.
    pub fn organization(&self) -> &OrgScope {
        &self.organization
    }
}

/// Permission to redeliver an event.
#[derive(Clone, Debug)]
pub struct DeliveryScope {
    pub webhook: WebhookScope,
    delivery_id: DeliveryId,
}

impl DeliveryScope {
    /// Admits a caller whose role allows the action.
    ///
    /// # Errors
    /// 404 and 403.
    pub fn admit(
        webhooks: &Webhooks,
        (organization_id, webhook_id): (OrganizationId, Option<WebhookId>),
        delivery_id: Option<DeliveryId>,
        caller: Caller,
        trail: Trail,
    ) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let found = FoundOrganization::find(&webhooks.tenants, organization_id, caller).await?;
            let webhook = find(webhooks, organization_id, webhook_id).await?;
            let delivery_id = delivery_id.ok_or(Code::DeliveryNotFound)?;
            let mut tx = webhooks.db.read().await?;
            let delivery = store::deliveries::get(&mut tx, webhook.id, delivery_id).await?;
            let delivery_id = delivery.ok_or(Code::DeliveryNotFound)?.id;
            let organization = found.admit(WebhookAction::Change.on_organization(), trail)?;
            Ok(Self { webhook: WebhookScope { organization, webhook }, delivery_id })
        })
    }

    pub fn delivery_id(&self) -> DeliveryId {
        self.delivery_id
    }
}

async fn find(
    webhooks: &Webhooks,
    organization_id: OrganizationId,
    webhook_id: Option<WebhookId>,
) -> Result<Webhook, Error> {
    let webhook_id = webhook_id.ok_or(Code::WebhookNotFound)?;
    let mut tx = webhooks.db.read().await?;
    let webhook = store::endpoints::get(&mut tx, Some(organization_id), webhook_id).await?;
    Ok(webhook.ok_or(Code::WebhookNotFound)?)
}
