//! The catalog in force, which a reload replaces while requests go on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::{Catalog, CatalogError};

/// Where the catalog comes from, and the one that is in use: the models of the file with the prices of the database.
pub struct CurrentCatalog {
    /// None: the built-in catalog.
    file: Option<PathBuf>,
    /// As it was read at the start.
    first: Arc<Catalog>,
    catalog: ArcSwap<Catalog>,
    standing: Mutex<Standing>,
    /// One reload at a time, so that an older reading never takes the place of a newer one.
    pub turn: tokio::sync::Mutex<()>,
    asked: Notify,
    by_order: AtomicBool,
    refused: AtomicBool,
    outdated: AtomicBool,
    wrong_currency: AtomicBool,
    reloads: AtomicU64,
}

/// How the catalog of this server stands to the one in force.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Standing {
    /// The fingerprint of the last catalog of this server that was in force.
    pub held: Option<String>,
    /// `true` if another one is in force now.
    pub is_outdated: bool,
    /// `true` if organizations have another currency than this server.
    pub has_wrong_currency: bool,
}

impl CurrentCatalog {
    /// Reads the file, or takes the built-in catalog.
    ///
    /// # Errors
    /// Every mistake in the file, or its currency is another than this one.
    pub fn load(file: Option<PathBuf>, currency: &str) -> Result<Self, CatalogError> {
        let catalog = read(file.as_ref())?;
        catalog.check_currency(currency)?;
        let first = Arc::new(catalog);
        Ok(Self {
            file,
            catalog: ArcSwap::new(Arc::clone(&first)),
            first,
            standing: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            asked: Notify::new(),
            by_order: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            wrong_currency: AtomicBool::new(false),
            reloads: AtomicU64::new(0),
        })
    }

    /// The catalog at this moment. It costs no lock and no shared counter. A request asks once, and keeps what it got:
    /// the next call may answer with another catalog.
    pub fn now(&self) -> Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// The file; none for the built-in catalog.
    pub fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    /// The catalog of the file as it was at the start.
    pub fn first(&self) -> &Arc<Catalog> {
        &self.first
    }

    /// Reads the file again. It waits for the disk.
    ///
    /// # Errors
    /// Every mistake in the file.
    pub fn read(&self) -> Result<Catalog, CatalogError> {
        read(self.file.as_ref())
    }

    /// Puts another catalog in the place of the one before.
    pub fn replace(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// Somebody wants the file read again, and to find in the log what came of it.
    pub fn order_reload(&self) {
        self.by_order.store(true, Ordering::SeqCst);
        self.asked.notify_one();
    }

    /// The file may have changed unnoticed; where it has not, there is nothing to say.
    pub fn suggest_reload(&self) {
        self.asked.notify_one();
    }

    /// Waits until a reload is wanted. Wishes that come together are one.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Returns `true` once if somebody wants to hear what comes of the next reload.
    pub fn take_order(&self) -> bool {
        self.by_order.swap(false, Ordering::SeqCst)
    }

    /// Whether the file was refused when it was last read, so that an older catalog goes on.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns `true` if another catalog is in force than the one of this server.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    /// Returns `true` if organizations had another currency than this server when the catalog was last read: nothing is rated then.
    pub fn has_wrong_currency(&self) -> bool {
        self.wrong_currency.load(Ordering::Relaxed)
    }

    /// How often another catalog has taken the place of the one before, since the start.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Counts a reload that changed something.
    pub fn count_reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes whether the file was refused.
    pub fn set_refused(&self, refused: bool) {
        self.refused.store(refused, Ordering::Relaxed);
    }

    /// How this server's catalog stood when that was last looked at.
    pub fn standing(&self) -> Standing {
        self.lock().clone()
    }

    /// Notes how it stands now; how it stood before.
    pub fn set_standing(&self, standing: Standing) -> Standing {
        self.outdated.store(standing.is_outdated, Ordering::Relaxed);
        self.wrong_currency.store(standing.has_wrong_currency, Ordering::Relaxed);
        std::mem::replace(&mut *self.lock(), standing)
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        // Nothing in there is left half done.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: Option<&PathBuf>) -> Result<Catalog, CatalogError> {
    match file {
        Some(path) => Catalog::load(path),
        None => Catalog::built_in(),
    }
}
