//! The catalog in use, which a reload replaces while requests are running.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::{Catalog, CatalogError};

/// The catalog file, and the catalog in use: the models of the file with the prices of the database.
pub struct CurrentCatalog {
    /// `None` for the built-in catalog.
    file: Option<PathBuf>,
    /// The catalog of the file at the start.
    first: Arc<Catalog>,
    catalog: ArcSwap<Catalog>,
    status: Mutex<Status>,
    /// Serializes reloads, so that an older version of the file never replaces a newer one.
    pub reload_lock: tokio::sync::Mutex<()>,
    reload_requested: Notify,
    log_requested: AtomicBool,
    refused: AtomicBool,
    /// The subject of the current refusal that was sent to webhooks; `None` if the file is accepted.
    announced_refusal: Mutex<Option<String>>,
    outdated: AtomicBool,
    wrong_currency: AtomicBool,
    reloads: AtomicU64,
}

/// The relation between this server's catalog and the catalog in force.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Status {
    /// The fingerprint of this server's last catalog that was in force.
    pub last_in_force: Option<String>,
    /// `true` if another catalog is in force now.
    pub is_outdated: bool,
    /// `true` if organizations have a currency other than this server's.
    pub has_wrong_currency: bool,
}

impl CurrentCatalog {
    /// Reads the file, or the built-in catalog if no file is given.
    ///
    /// # Errors
    /// The file has mistakes, or its currency isn't `currency`.
    pub fn load(file: Option<PathBuf>, currency: &str) -> Result<Self, CatalogError> {
        let catalog = read(file.as_ref())?;
        catalog.check_currency(currency)?;
        let first = Arc::new(catalog);
        Ok(Self {
            file,
            catalog: ArcSwap::new(Arc::clone(&first)),
            first,
            status: Mutex::default(),
            reload_lock: tokio::sync::Mutex::default(),
            reload_requested: Notify::new(),
            log_requested: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            announced_refusal: Mutex::default(),
            outdated: AtomicBool::new(false),
            wrong_currency: AtomicBool::new(false),
            reloads: AtomicU64::new(0),
        })
    }

    /// Returns the catalog in use, without a lock or a shared counter. Call it once per request and keep the
    /// result: the next call may return another catalog.
    pub fn now(&self) -> Guard<Arc<Catalog>> {
        self.catalog.load()
    }

    /// Returns the file; `None` for the built-in catalog.
    pub fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref()
    }

    /// Returns `true` while the built-in catalog is in force, whose models the built-in demo serves. Returns
    /// `false` once any replica has put a catalog file in force and this replica was notified.
    pub fn is_demo(&self) -> bool {
        self.file.is_none() && !self.is_outdated()
    }

    /// Returns the catalog of the file at the start.
    pub fn first(&self) -> &Arc<Catalog> {
        &self.first
    }

    /// Rereads the file. This blocks on the disk.
    ///
    /// # Errors
    /// The file has mistakes, all of which are reported.
    pub fn read(&self) -> Result<Catalog, CatalogError> {
        read(self.file.as_ref())
    }

    /// Replaces the catalog in use.
    pub fn replace(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// Requests a reload whose result is logged, even if nothing has changed.
    pub fn request_reload(&self) {
        self.log_requested.store(true, Ordering::SeqCst);
        self.reload_requested.notify_one();
    }

    /// Requests a reload because the file may have changed. If nothing has changed, nothing is logged.
    pub fn request_check(&self) {
        self.reload_requested.notify_one();
    }

    /// Waits until a reload is requested. Concurrent requests cause a single reload.
    pub async fn reload_requested(&self) {
        self.reload_requested.notified().await;
    }

    /// Returns whether the result of the next reload must be logged, and resets the flag.
    pub fn take_request(&self) -> bool {
        self.log_requested.swap(false, Ordering::SeqCst)
    }

    /// Returns `true` if the file was refused when it was last read, so that an older catalog stays in use.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns `true` if a catalog other than this server's is in force.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }

    /// Returns `true` if organizations had a currency other than this server's when the catalog was last
    /// read. In that case, no usage is rated.
    pub fn has_wrong_currency(&self) -> bool {
        self.wrong_currency.load(Ordering::Relaxed)
    }

    /// Returns the number of times that the catalog was replaced since the start.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Counts a reload that changed something.
    pub fn count_reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_refused(&self, refused: bool) {
        self.refused.store(refused, Ordering::Relaxed);
    }

    /// Returns the subject of the current refusal that was sent to webhooks.
    pub(crate) fn announced_refusal(&self) -> Option<String> {
        self.announced_refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_announced_refusal(&self, subject: Option<String>) {
        *self.announced_refusal.lock().unwrap_or_else(PoisonError::into_inner) = subject;
    }

    /// Returns the last known status of this server's catalog.
    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// Sets the status, and returns the previous status.
    pub fn set_status(&self, status: Status) -> Status {
        self.outdated.store(status.is_outdated, Ordering::Relaxed);
        self.wrong_currency.store(status.has_wrong_currency, Ordering::Relaxed);
        std::mem::replace(&mut *self.lock(), status)
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // The status is replaced as a whole, so it is valid even after a panic.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: Option<&PathBuf>) -> Result<Catalog, CatalogError> {
    match file {
        Some(path) => Catalog::load(path),
        None => Catalog::built_in(),
    }
}
