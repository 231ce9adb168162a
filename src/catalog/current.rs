//! The catalog in force, which a reload replaces while requests go on.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::{Catalog, CatalogError, Difference};
use crate::clock::Time;

/// Where the catalog comes from, and the one that was read last.
pub struct CurrentCatalog {
    /// None: the built-in catalog.
    file: Option<PathBuf>,
    catalog: ArcSwap<Catalog>,
    /// One reload at a time, so that an older reading never takes the place of a newer one.
    reloading: Mutex<()>,
    asked: Notify,
    by_order: AtomicBool,
    refused: AtomicBool,
    reloads: AtomicU64,
}

impl CurrentCatalog {
    /// Reads the file, or takes the built-in catalog.
    ///
    /// # Errors
    /// Every mistake in the file.
    pub fn load(file: Option<PathBuf>) -> Result<Self, CatalogError> {
        let catalog = read(file.as_ref())?;
        Ok(Self {
            file,
            catalog: ArcSwap::from_pointee(catalog),
            reloading: Mutex::new(()),
            asked: Notify::new(),
            by_order: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            reloads: AtomicU64::new(0),
        })
    }

    /// The catalog at this moment. It costs no lock and no shared counter. A request asks once, and keeps what it got:
    /// the next call may answer with another catalog.
    pub fn now(&self) -> Guard<Arc<Catalog>> {
        self.catalog.load()
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

    /// Whether the file was refused when it was last read, so that an older catalog goes on.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// How often another catalog has taken the place of the one before, since the start.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Reads the file again and puts it in force, or refuses it whole; the log says which, and why. It waits for the disk.
    pub fn reload(&self, now: Time) {
        let by_order = self.by_order.swap(false, Ordering::SeqCst);
        // Nothing in there is left half done.
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &self.file else {
            if by_order {
                tracing::info!(
                    "no `catalog_file` is configured: the built-in catalog is in use, and can't change"
                );
            }
            return;
        };
        let old = self.catalog.load_full();
        let outcome =
            read(Some(file)).and_then(|new| new.differs_from(&old, now).map(|difference| (new, difference)));
        self.refused.store(outcome.is_err(), Ordering::Relaxed);
        let file = file.display();
        match outcome {
            Err(error) => {
                for problem in &error.problems {
                    tracing::error!("the catalog is refused: {problem}");
                }
                let mistakes = error.problems.len();
                tracing::warn!(%file, mistakes, "nothing of the new catalog is used: the one before goes on");
            }
            Ok((_, difference)) if difference.is_nothing() => {
                if by_order {
                    tracing::info!(%file, "the catalog was read again: nothing has changed");
                }
            }
            Ok((new, difference)) => {
                let warnings = new.warnings(now);
                self.catalog.store(Arc::new(new));
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tell(&file.to_string(), &difference, &warnings);
            }
        }
    }
}

fn read(file: Option<&PathBuf>) -> Result<Catalog, CatalogError> {
    match file {
        Some(path) => Catalog::load(path),
        None => Catalog::built_in(),
    }
}

fn tell(file: &str, difference: &Difference, warnings: &[String]) {
    let list = |ids: &[String]| ids.join(", ");
    tracing::info!(
        file,
        added = list(&difference.added),
        retired = list(&difference.retired),
        removed = list(&difference.removed),
        changed = list(&difference.changed),
        "the catalog was read again and is in force"
    );
    for id in &difference.removed {
        tracing::warn!(
            "model `{id}` is not in the catalog any more: usage of it that is reported late will be refused; \
             with `retired = true` in its place it would count"
        );
    }
    for warning in warnings {
        tracing::warn!("catalog: {warning}");
    }
}
