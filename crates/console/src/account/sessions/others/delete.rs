//! POST /console/account/sessions/others/delete

use accounts::sessions;
use api::gate::{SessionScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// End all other sessions of the user.
pub async fn create(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let scope = &visit.scope;
    sessions::end_others(&console.accounts, scope.trail(), scope.session()).await?;
    Page::done(&console.link("/account/sessions"), Done::OtherSessionsEnded)
}
