//! Owners of webhooks: an organization or the installation. Both have the same operations; they differ in who
//! may perform them, and in the lock under which webhooks change.

use std::ops::{Deref, DerefMut};

use db::Tx;
use events::announcements;
use kernel::error::{Code, Error};
use kernel::ids::{DeliveryId, OrganizationId, WebhookId};
use tenants::access::{LockedTx, OrgScope};
use tenants::rules::counts::CountedKind;
use trail::Trail;

use crate::access::{DeliveryScope, WebhookScope};
use crate::store;
use crate::store::endpoints::Webhook;

/// The owner of webhooks, with permission to access them.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// An organization, for a user whose role allows the operation.
    Organization(&'a OrgScope),
    /// The installation, for its operator.
    Installation(&'a Trail),
}

impl<'a> Owner<'a> {
    /// Returns the organization; `None` for the installation.
    pub fn organization_id(self) -> Option<OrganizationId> {
        match self {
            Self::Organization(scope) => Some(scope.organization_id()),
            Self::Installation(_) => None,
        }
    }

    /// Returns the kind of object that the limit of the owner's webhooks counts.
    pub(crate) fn counted_kind(self) -> CountedKind {
        match self {
            Self::Organization(_) => CountedKind::Webhooks,
            Self::Installation(_) => CountedKind::WebhooksOfInstallation,
        }
    }

    pub(crate) fn trail(self) -> &'a Trail {
        match self {
            Self::Organization(scope) => scope.trail(),
            Self::Installation(trail) => trail,
        }
    }

    /// Acquires the owner's lock. For an organization, the permission is rechecked.
    ///
    /// # Errors
    /// 404 and 403, as when the scope was admitted.
    pub(crate) async fn lock(self, tx: &mut Tx) -> Result<OwnedTx<'_>, Error> {
        Ok(OwnedTx(match self {
            Self::Organization(scope) => Held::Organization(scope.lock_and_recheck(tx).await?.0),
            Self::Installation(_) => {
                announcements::lock(tx).await?;
                Held::Installation(tx)
            }
        }))
    }
}

impl<'a> From<&'a OrgScope> for Owner<'a> {
    fn from(scope: &'a OrgScope) -> Self {
        Self::Organization(scope)
    }
}

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

/// A transaction that holds the lock of a webhook owner. Only `Owner::lock` creates it, so that webhooks
/// can't be changed without the lock.
pub struct OwnedTx<'t>(Held<'t>);

enum Held<'t> {
    Organization(LockedTx<'t>),
    Installation(&'t mut Tx),
}

impl Deref for OwnedTx<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        match &self.0 {
            Held::Organization(tx) => tx,
            Held::Installation(tx) => tx,
        }
    }
}

impl DerefMut for OwnedTx<'_> {
    fn deref_mut(&mut self) -> &mut Tx {
        match &mut self.0 {
            Held::Organization(tx) => tx,
            Held::Installation(tx) => tx,
        }
    }
}

impl std::fmt::Debug for OwnedTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnedTx")
    }
}
