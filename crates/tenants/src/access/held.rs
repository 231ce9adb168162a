//! The proof that a write was decided under its lock.

use std::ops::{Deref, DerefMut};

use db::Tx;
use kernel::clock::Time;
use kernel::error::Error;
use kernel::ids::UserId;

use crate::store;
use crate::store::invitations::{Open, Standing};

/// A write transaction in which the caller's right was checked again under the lock that the write needs.
///
/// The statements that change organizations, projects, members, invitations and API keys take this type, and only the
/// `hold` functions of this module's scopes make it. An operation that writes after no more than the check at the gate
/// doesn't compile:
///
/// ```compile_fail
/// # use tollkeeper::{access::OrgScope, db::Db, error::Error, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     store::organizations::update(&mut tx, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
///
/// The same with the check under the lock does:
///
/// ```
/// # use tollkeeper::{access::OrgScope, db::Db, error::Error, store, store::organizations::Changes};
/// async fn rename(db: Db, scope: OrgScope, changes: Changes<'_>) -> Result<(), Error> {
///     let mut tx = db.write().await?;
///     let (mut held, _) = scope.hold_whole(&mut tx).await?;
///     store::organizations::update(&mut held, &changes).await?;
///     Ok(tx.commit().await?)
/// }
/// ```
pub struct HeldTx<'t>(&'t mut Tx);

impl<'t> HeldTx<'t> {
    /// For the `hold` functions: the lock is taken and the right was checked.
    pub(super) fn new(tx: &'t mut Tx) -> Self {
        Self(tx)
    }
}

impl Deref for HeldTx<'_> {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        self.0
    }
}

impl DerefMut for HeldTx<'_> {
    fn deref_mut(&mut self) -> &mut Tx {
        self.0
    }
}

impl std::fmt::Debug for HeldTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldTx")
    }
}

/// Takes the lock of the organization that the invitation is for, and reads where its sender and its guest stand now;
/// `None` when the invitation isn't open any more. An invitation is a right of its own: its guest has no scope yet.
///
/// # Errors
/// The database can't say.
pub async fn hold_invitation<'t>(
    tx: &'t mut Tx,
    invitation: &Open,
    guest: UserId,
    now: Time,
) -> Result<Option<(HeldTx<'t>, Standing)>, Error> {
    store::organizations::lock(tx, invitation.organization_id).await?;
    let standing = store::invitations::standing(tx, invitation.id, guest, now).await?;
    Ok(standing.map(|standing| (HeldTx::new(tx), standing)))
}
