//! POST /console/account/connections/{connection_id}/delete

use accounts::connections;
use api::gate::{OwnConnectionScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Remove a connection of the user.
pub async fn create(console: Console, visit: Visit<OwnConnectionScope>, _: NoInput) -> Result<Page, Error> {
    let caller = visit.scope.caller();
    connections::remove(&console.accounts, caller.trail(), caller.session(), visit.scope.named()).await?;
    Page::done(&console.link("/account/connections"), Done::Disconnected)
}
