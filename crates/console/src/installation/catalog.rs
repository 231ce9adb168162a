//! GET /console/installation/catalog

pub mod reload;

use std::sync::Arc;

use api::gate::{OperatorScope, Visit};
use askama::Template;
use catalog::Catalog;
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "installation/catalog.html")]
struct CatalogPage {
    shell: Shell,
    catalog: Arc<Catalog>,
    /// The path of this server's catalog file; `None` for the built-in catalog.
    file: Option<String>,
    is_refused: bool,
    is_outdated: bool,
}

/// Show the catalog that this server uses.
pub async fn read(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    let current = &console.catalog;
    Page::new(&CatalogPage {
        shell: Shell::read(&console, &visit.person).await?,
        catalog: Arc::clone(&current.now()),
        file: current.file().map(|file| file.display().to_string()),
        is_refused: current.is_refused(),
        is_outdated: current.is_outdated(),
    })
}
