//! The handle of what puts catalogs in force.

use std::ops::Deref;
use std::sync::Arc;

use super::CurrentCatalog;
use db::Db;
use kernel::clock::Clock;
use kernel::random::Random;

/// The way of catalogs into the database and from there into use; cheap to clone. For what only looks at models and prices,
/// [`CurrentCatalog`] is enough.
#[derive(Clone)]
pub struct Catalogs(Arc<Shared>);

/// The parts of [`Catalogs`].
pub struct Shared {
    /// The database.
    pub db: Db,
    /// The source of time.
    pub clock: Clock,
    /// The source of chance.
    pub random: Random,
    /// The file, and the catalog that is in use.
    pub current: Arc<CurrentCatalog>,
    /// The currency of this installation, an ISO 4217 code.
    pub currency: String,
}

impl Deref for Catalogs {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Catalogs {
    /// A handle that has put nothing in force yet.
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}
