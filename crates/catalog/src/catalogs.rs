//! The handle with which [`crate::activation`] puts catalogs in force.

use std::ops::Deref;
use std::sync::Arc;

use super::CurrentCatalog;
use db::Db;
use kernel::clock::Clock;
use kernel::random::Random;

/// The handle with which [`crate::activation`] puts catalogs in force; cheap to clone. To look up models and
/// prices, use [`CurrentCatalog`].
#[derive(Clone)]
pub struct Catalogs(Arc<(Db, Shared)>);

/// The parts of [`Catalogs`].
pub struct Shared {
    pub clock: Clock,
    pub random: Random,
    /// The file, and the catalog in use.
    pub current: Arc<CurrentCatalog>,
    /// The currency of this installation, an ISO 4217 code.
    pub currency: String,
}

impl Deref for Catalogs {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0.1
    }
}

impl Catalogs {
    pub fn new(db: Db, shared: Shared) -> Self {
        Self(Arc::new((db, shared)))
    }

    /// Returns the database. Only operations of this crate open transactions on it.
    pub(crate) fn db(&self) -> &Db {
        &self.0.0
    }
}
