//! Access to one webhook of an organization, and to one of its deliveries.

use crate::Api;
use ::webhooks::access::{DeliveryScope, WebhookAction, WebhookScope};
use kernel::error::Error;
use kernel::ids::{DeliveryId, WebhookId};

use super::bearer::authenticate_manager;
use super::tenants::{organization_doc, organization_id};
use super::{Access, AccessDoc, Call, trail};

/// The access to a webhook in the path, for this action.
#[derive(Clone, Copy, Debug)]
pub struct OrgWebhook(pub WebhookAction);

impl Access<Api> for OrgWebhook {
    type Scope = WebhookScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<WebhookScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let place = (organization_id(call)?, WebhookId::parse(call.path("webhook_id")));
        WebhookScope::admit(&api.webhooks, place, caller, self.0, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        let action = self.0.on_organization();
        organization_doc(action, format!("organization: {action:?}"))
    }
}

/// The access to a delivery in the path, for delivering its event again.
#[derive(Clone, Copy, Debug)]
pub struct OrgDelivery;

impl Access<Api> for OrgDelivery {
    type Scope = DeliveryScope;
    async fn admit(&self, api: &Api, call: &mut Call) -> Result<DeliveryScope, Error> {
        let caller = authenticate_manager(api, call).await?;
        let place = (organization_id(call)?, WebhookId::parse(call.path("webhook_id")));
        let delivery_id = DeliveryId::parse(call.path("delivery_id"));
        DeliveryScope::admit(&api.webhooks, place, delivery_id, caller, trail(call)).await
    }
    fn describe(&self) -> AccessDoc {
        OrgWebhook(WebhookAction::Change).describe()
    }
}
