//! Activation of catalogs: writes the versions of prices and discounts that this server's file adds to the
//! database.
//!
//! A catalog that was never in force is put in force. One server at a time writes the versions, in one
//! transaction, and the feed notifies the others. A catalog that was replaced by another one is outdated,
//! unless the newest catalog was this server's own: then the file was changed back on purpose. The command
//! `catalog reload` puts any catalog in force.

use std::fmt::Write;
use std::sync::Arc;

use crate::refusals;
use crate::{
    Catalog, CatalogError, Catalogs, CurrentCatalog, Difference, Price, PriceBook, Status, StoredState, store,
};
use db::{Change, Tx};
use kernel::error::Error;
use kernel::secrets::sha256;

use trail::{Action, Event, Trail};

/// The reason why a catalog isn't in force.
#[derive(Debug)]
pub enum ActivationError {
    /// The catalog has mistakes, or contradicts the catalog in force.
    Refused(CatalogError),
    /// The database failed.
    Failed(Error),
}

impl From<CatalogError> for ActivationError {
    fn from(error: CatalogError) -> Self {
        Self::Refused(error)
    }
}

impl From<db::Error> for ActivationError {
    fn from(error: db::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The result of putting a catalog in force.
struct Activation {
    book: PriceBook,
    status: Status,
    warnings: Vec<String>,
}

/// The decision about a catalog.
enum Verdict {
    /// The catalog is already in force.
    InForce,
    /// Another catalog has replaced this one.
    Outdated,
    /// The catalog must still be put in force.
    New,
}

/// Puts the catalog of the file in force when the server starts.
///
/// # Errors
/// The catalog contradicts the catalog in force, or the database fails.
pub async fn put_in_force_at_start(catalogs: &Catalogs) -> Result<(), ActivationError> {
    let _lock = catalogs.current.reload_lock.lock().await;
    let own = catalogs.current.first();
    let Activation { book, status, mut warnings } = activate(catalogs, own, false).await?;
    let catalog = with_stored_prices(own, book);
    warnings.splice(0..0, catalog.warnings(catalogs.clock.now()));
    catalogs.current.replace(catalog);
    catalogs.current.set_status(status.clone());
    for warning in warnings {
        tracing::warn!("catalog: {warning}");
    }
    if status.is_outdated {
        log_outdated(catalogs);
    }
    Ok(())
}

/// Uses the prices and discounts of the database, for commands, which don't need a catalog file.
///
/// # Errors
/// The database fails.
pub async fn read_book(catalogs: &Catalogs) -> Result<(), Error> {
    let book = store::prices::book(&mut catalogs.db().read().await?).await?;
    catalogs.current.replace(Catalog::empty().with_book(book));
    Ok(())
}

/// Puts a catalog in force, even if it was replaced by another one. Returns the warnings.
///
/// # Errors
/// The catalog contradicts the catalog in force, or the database fails.
pub async fn put_in_force(catalogs: &Catalogs, catalog: &Catalog) -> Result<Vec<String>, ActivationError> {
    let Activation { status, warnings, .. } = activate(catalogs, catalog, true).await?;
    if status.has_wrong_currency {
        let currency = &catalogs.currency;
        let message = format!(
            "some organizations have a currency other than `billing.currency` ({currency}): see `tollkeeper \
             organization list`"
        );
        return Err(CatalogError { problems: vec![message] }.into());
    }
    Ok(warnings)
}

/// Puts a catalog in force like [`put_in_force`], and makes every running server reread its own file. Returns
/// the warnings.
///
/// # Errors
/// The catalog contradicts the catalog in force, or the database fails.
pub async fn put_in_force_everywhere(
    catalogs: &Catalogs,
    catalog: &Catalog,
    trail: &Trail,
) -> Result<Vec<String>, ActivationError> {
    let warnings = put_in_force(catalogs, catalog).await?;
    order_reload(catalogs, trail).await.map_err(ActivationError::Failed)?;
    Ok(warnings)
}

/// Makes every running server reread its own file. A server refuses a file with mistakes, and continues to
/// use the previous catalog.
///
/// # Errors
/// The database fails.
pub async fn order_reload(catalogs: &Catalogs, trail: &Trail) -> Result<(), Error> {
    let now = catalogs.clock.now();
    let mut tx = catalogs.db().write().await?;
    let event =
        Event { action: Action::CatalogReloadOrdered, target: "catalog".to_owned(), organization_id: None };
    trail::record(&mut tx, trail, &event, now, &catalogs.random).await?;
    cluster::changes::record(&mut tx, Change::Catalog, now).await?;
    Ok(tx.commit().await?)
}

/// Returns the price of a model with this version, including a price that another server has just put in
/// force.
///
/// # Errors
/// The database fails.
pub async fn price(
    catalog: &CurrentCatalog,
    tx: &mut Tx,
    model: &str,
    version: i64,
) -> Result<Option<Price>, db::Error> {
    let cached = catalog.now().price(model, version).cloned();
    match cached {
        Some(price) => Ok(Some(price)),
        None => store::prices::price(tx, model, version).await,
    }
}

/// Rereads the file and puts it in force, or refuses it as a whole. Logs the result, and sends a refusal to
/// the operator's webhooks.
///
/// # Errors
/// The database fails. The next call completes the reload.
pub async fn reload(catalogs: &Catalogs) -> Result<(), Error> {
    let current = &catalogs.current;
    let _lock = current.reload_lock.lock().await;
    let is_requested = current.take_request();
    let read = tokio::task::spawn_blocking({
        let current = Arc::clone(current);
        move || current.read()
    });
    let read = read.await.map_err(|error| Error::internal(format!("the catalog was not read: {error}")))?;
    let activation = match read {
        Ok(own) => activate(catalogs, &own, false).await.map(|activation| (own, activation)),
        Err(error) => Err(error.into()),
    };
    let file = file_name(current);
    match activation {
        Ok((own, activation)) => {
            current.set_refused(false);
            use_catalog(catalogs, &file, &own, activation, is_requested);
            refusals::forget(catalogs).await?;
        }
        Err(ActivationError::Failed(error)) => {
            // The next reload must log its result.
            if is_requested {
                current.request_reload();
            }
            return Err(error);
        }
        Err(ActivationError::Refused(error)) => {
            current.set_refused(true);
            for problem in &error.problems {
                tracing::error!("the catalog is refused: {problem}");
            }
            let mistakes = error.problems.len();
            tracing::warn!(%file, mistakes, "the new catalog isn't used: the previous one stays in force");
            refresh(catalogs).await?;
            refusals::announce(catalogs, &error).await?;
        }
    }
    Ok(())
}

/// Replaces the catalog in use with a catalog that was reread.
fn use_catalog(catalogs: &Catalogs, file: &str, own: &Catalog, activation: Activation, is_requested: bool) {
    let current = &catalogs.current;
    let Activation { book, status, mut warnings } = activation;
    let is_outdated = status.is_outdated;
    let was_outdated = current.set_status(status).is_outdated;
    let (old, new) = (Arc::clone(&current.now()), with_stored_prices(own, book));
    let difference = new.changes_from(&old);
    warnings.splice(0..0, new.warnings(catalogs.clock.now()));
    let has_other_versions = new.book() != old.book();
    if !difference.is_empty() {
        current.replace(new);
        current.count_reload();
    } else if has_other_versions {
        current.replace(new);
    }
    if is_outdated {
        if is_requested || !was_outdated {
            log_outdated(catalogs);
        }
        return;
    }
    if !difference.is_empty() {
        log_difference(file, &difference);
    } else if is_requested && current.file().is_none() {
        tracing::info!("no `catalog_file` is configured: the built-in catalog is in use, and can't change");
    } else if is_requested || was_outdated {
        tracing::info!(%file, "the catalog was read again: nothing has changed");
    }
    if is_requested || !difference.is_empty() {
        for warning in warnings {
            tracing::warn!("catalog: {warning}");
        }
    }
}

/// Updates the prices from the database if the file is refused.
async fn refresh(catalogs: &Catalogs) -> Result<(), Error> {
    let current = &catalogs.current;
    let mut tx = catalogs.db().read().await?;
    let (newest, book) = (store::prices::newest_catalog(&mut tx).await?, store::prices::book(&mut tx).await?);
    let mut status = current.status();
    status.is_outdated = status.last_in_force != newest;
    let is_outdated = status.is_outdated;
    if is_outdated && !current.set_status(status).is_outdated {
        log_outdated(catalogs);
    }
    let old = Arc::clone(&current.now());
    if *old.book() != book {
        current.replace(with_stored_prices(&old, book));
    }
    Ok(())
}

/// Returns the models of a file with the prices of the database.
fn with_stored_prices(own: &Catalog, book: PriceBook) -> Catalog {
    // An empty book means that no catalog was ever in force.
    if book.is_empty() { own.clone() } else { own.with_book(book) }
}

async fn activate(
    catalogs: &Catalogs,
    own: &Catalog,
    is_command: bool,
) -> Result<Activation, ActivationError> {
    let currency = catalogs.currency.as_str();
    own.check_currency(currency)?;
    let (fingerprint, last_in_force) = (fingerprint(own), catalogs.current.status().last_in_force);
    let mut tx = catalogs.db().read().await?;
    if !store::prices::other_currencies(&mut tx, currency).await?.is_empty() {
        // The file's prices would apply to these organizations, although their currency differs.
        let status = Status { last_in_force, has_wrong_currency: true, is_outdated: false };
        return Ok(Activation { book: store::prices::book(&mut tx).await?, status, warnings: Vec::new() });
    }
    let mut warnings = Vec::new();
    let verdict = match verdict(&mut tx, &fingerprint, last_in_force.as_deref(), is_command).await? {
        Verdict::New => {
            let mut tx = catalogs.db().write().await?;
            let number = store::prices::lock(&mut tx).await?;
            // Another server may have put a catalog in force in the meantime.
            let verdict = verdict(&mut tx, &fingerprint, last_in_force.as_deref(), is_command).await?;
            if matches!(verdict, Verdict::New) {
                warnings = write(catalogs, &mut tx, own, number, &fingerprint).await?;
                tx.commit().await?;
                Verdict::InForce
            } else {
                verdict
            }
        }
        Verdict::InForce => {
            let book = store::prices::book(&mut tx).await?;
            let stored =
                StoredState { book: &book, now: catalogs.clock.now(), is_used: true, closed_before: None };
            // A catalog in force has no contradictions, but may cause warnings.
            warnings = own.new_versions(&stored).map(|new| new.warnings).unwrap_or_default();
            Verdict::InForce
        }
        Verdict::Outdated => Verdict::Outdated,
    };
    let status = match verdict {
        Verdict::Outdated => Status { last_in_force, is_outdated: true, has_wrong_currency: false },
        Verdict::InForce | Verdict::New => Status { last_in_force: Some(fingerprint), ..Status::default() },
    };
    Ok(Activation { book: store::prices::book(&mut tx).await?, status, warnings })
}

async fn verdict(
    tx: &mut Tx,
    fingerprint: &str,
    last_in_force: Option<&str>,
    is_command: bool,
) -> Result<Verdict, db::Error> {
    let newest = store::prices::newest_catalog(tx).await?;
    Ok(match newest.as_deref() {
        Some(newest) if newest == fingerprint => Verdict::InForce,
        Some(newest) if !is_command && last_in_force != Some(newest) => {
            let is_known = store::prices::was_in_force(tx, fingerprint).await?;
            if is_known { Verdict::Outdated } else { Verdict::New }
        }
        _ => Verdict::New,
    })
}

/// Writes the versions that a catalog adds, and marks the catalog as in force. Returns the warnings.
async fn write(
    catalogs: &Catalogs,
    tx: &mut Tx,
    own: &Catalog,
    number: i64,
    fingerprint: &str,
) -> Result<Vec<String>, ActivationError> {
    let (now, book) = (catalogs.clock.now(), store::prices::book(tx).await?);
    let stored = StoredState {
        book: &book,
        now,
        is_used: store::prices::is_used(tx).await? && !book.is_empty(),
        closed_before: store::prices::closed_before(tx).await?,
    };
    let new = own.new_versions(&stored)?;
    store::prices::insert(tx, &new, now).await?;
    store::prices::insert_catalog(tx, number, fingerprint, &catalogs.currency, now).await?;
    Ok(new.warnings)
}

/// Returns a hash of the catalog's content.
fn fingerprint(catalog: &Catalog) -> String {
    let mut text = String::new();
    for byte in sha256(catalog.canonical().as_bytes()) {
        // Writing to a `String` can't fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// Returns the name of the catalog's file, for the log.
fn file_name(current: &CurrentCatalog) -> String {
    current.file().map_or_else(|| "the built-in catalog".to_owned(), |file| file.display().to_string())
}

fn log_outdated(catalogs: &Catalogs) {
    let file = file_name(&catalogs.current);
    tracing::error!(
        %file,
        "another catalog is in force: this server isn't ready until its catalog file matches; `tollkeeper \
         catalog reload` puts this server's catalog in force instead"
    );
}

fn log_difference(file: &str, difference: &Difference) {
    let list = |ids: &[String]| ids.join(", ");
    tracing::info!(
        file,
        added = list(&difference.added),
        retired = list(&difference.retired),
        removed = list(&difference.removed),
        changed = list(&difference.changed),
        upstreams = list(&difference.upstreams),
        "the catalog was read again and is in force"
    );
    for id in &difference.removed {
        tracing::warn!(
            "model `{id}` is no longer in the catalog: usage of it that is reported late will be refused; \
             to accept such usage, keep the model with `retired = true`"
        );
    }
}
