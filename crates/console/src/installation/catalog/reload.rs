//! POST /console/installation/catalog/reload

use api::gate::{OperatorScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Make every running server reload its catalog file.
pub async fn create(console: Console, visit: Visit<OperatorScope>, _: NoInput) -> Result<Page, Error> {
    operators::catalogs::reload(&console.operators, visit.scope.trail()).await?;
    Page::done(&console.link("/installation/catalog"), Done::CatalogReloadOrdered)
}
