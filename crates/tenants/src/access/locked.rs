//! The write transaction that proves that the caller's permission was checked under the lock.

use std::ops::{Deref, DerefMut};

use db::Tx;

/// A write transaction in which the caller's permission was checked again under the lock that the write
/// needs.
///
/// The statements that change organizations, projects, members, invitations and API keys take this type, and
/// only the `lock_…` functions of this module's scopes create it. An operation that writes without this check
/// doesn't compile:
///
/// ```compile_fail,E0308
/// # use db::Db;
/// # use kernel::error::Error;
/// # use tenants::{access::OrgScope, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     store::organizations::update(&mut tx, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
///
/// With the check under the lock, it compiles:
///
/// ```
/// # use db::Db;
/// # use kernel::error::Error;
/// # use tenants::{access::OrgScope, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     let (mut locked, _) = scope.lock_for_removal_and_recheck(&mut tx).await?;
///     store::organizations::update(&mut locked, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
pub struct LockedTx<'t>(&'t mut Tx);

impl<'t> LockedTx<'t> {
    /// Wraps a transaction. Only for the `lock_…` functions, after they have taken the lock and checked the
    /// permission.
    pub(super) fn new(tx: &'t mut Tx) -> Self {
        Self(tx)
    }
}

impl Deref for LockedTx<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        self.0
    }
}

impl DerefMut for LockedTx<'_> {
    fn deref_mut(&mut self) -> &mut Tx {
        self.0
    }
}

impl std::fmt::Debug for LockedTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockedTx")
    }
}
