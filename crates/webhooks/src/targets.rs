//! The targets of operations: webhooks and deliveries, with permission to access them.

use db::Tx;
use kernel::error::{Code, Error};
use kernel::ids::{DeliveryId, WebhookId};
use trail::Trail;

use crate::access::{DeliveryScope, WebhookScope};
use crate::owners::{OwnedTx, Owner};
use crate::store;
use crate::store::endpoints::Webhook;

/// A webhook, with permission to access it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub(crate) owner: Owner<'a>,
    pub(crate) id: WebhookId,
}

impl<'a> Target<'a> {
    /// Returns a webhook of the installation, for its operator.
    pub fn of_installation(id: WebhookId, trail: &'a Trail) -> Self {
        Self { owner: Owner::Installation(trail), id }
    }

    /// Acquires the owner's lock and returns the webhook's current state.
    ///
    /// # Errors
    /// 404 if the owner has no such webhook; the errors of [`Owner::lock`].
    pub(crate) async fn lock(self, tx: &mut Tx) -> Result<(OwnedTx<'_>, Webhook), Error> {
        let mut held = self.owner.lock(tx).await?;
        let found = store::endpoints::get(&mut held, self.owner.organization_id(), self.id).await?;
        Ok((held, found.ok_or(Code::WebhookNotFound)?))
    }
}

impl<'a> From<&'a WebhookScope> for Target<'a> {
    fn from(scope: &'a WebhookScope) -> Self {
        Self { owner: Owner::Organization(scope.organization()), id: scope.webhook_id() }
    }
}

/// A delivery to a webhook, with permission to access it.
#[derive(Clone, Copy, Debug)]
pub struct TargetDelivery<'a> {
    pub(crate) webhook: Target<'a>,
    pub(crate) id: DeliveryId,
}

impl<'a> TargetDelivery<'a> {
    /// Returns a delivery to a webhook of the installation, for its operator.
    pub fn of_installation(webhook_id: WebhookId, id: DeliveryId, trail: &'a Trail) -> Self {
        Self { webhook: Target::of_installation(webhook_id, trail), id }
    }
}

impl<'a> From<&'a DeliveryScope> for TargetDelivery<'a> {
    fn from(scope: &'a DeliveryScope) -> Self {
        Self { webhook: (&scope.webhook).into(), id: scope.delivery_id() }
    }
}
