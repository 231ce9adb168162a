//! GET /console/account/connections/new/{provider_id}

use accounts::signing_on::attempts::Purpose;
use api::gate::{SessionScope, Visit};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;
use crate::sign_in::provider::begin;

/// Begin to connect the person's account with a provider.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let provider_id = visit.person.target().parameter("provider_id");
    begin(&console, provider_id, Purpose::Connect(visit.scope.session()), "").await
}
