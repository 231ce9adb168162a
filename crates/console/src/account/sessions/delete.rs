//! POST /console/account/sessions/{session_id}/delete

use accounts::sessions;
use api::gate::{OwnSessionScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// End a session of the user.
pub async fn create(console: Console, visit: Visit<OwnSessionScope>, _: NoInput) -> Result<Page, Error> {
    let caller = visit.scope.caller();
    sessions::end_one(&console.accounts, caller.trail(), caller.session(), visit.scope.named()).await?;
    Page::done(&console.link("/account/sessions"), Done::SessionEnded)
}
