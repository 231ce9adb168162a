//! GET /console/account/connections/new/{provider_id}

use accounts::sign_in::provider::Purpose;
use api::gate::{Beginning, SessionScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::sign_in::provider::begin;

/// Start connecting the user's account to a provider. A request that doesn't come from one of our pages is
/// redirected to the page that has this link.
pub async fn read(console: Console, call: Beginning<Visit<SessionScope>>, _: NoInput) -> Result<Page, Error> {
    let Some(from) = call.from else {
        return Page::see_other(&console.link("/account/connections"));
    };
    let provider_id = call.visit.person.target().parameter("provider_id");
    begin(&console, from, provider_id, Purpose::Connect(call.visit.scope.session()), "").await
}
