//! Owners of webhooks: an organization or the installation. Both have the same operations; they differ in who
//! may perform them, and in the lock under which webhooks change.

use std::ops::{Deref, DerefMut};

use db::Tx;
use events::announcements;
use kernel::error::Error;
use kernel::ids::OrganizationId;
use tenants::access::{LockedTx, OrgScope};
use tenants::rules::counts::CountedKind;
use trail::Trail;

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
