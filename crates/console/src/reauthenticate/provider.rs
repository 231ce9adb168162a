//! GET /console/reauthenticate/{provider_id}

use accounts::signing_on::attempts::Purpose;
use api::gate::{SessionScope, Visit};
use kernel::error::Error;
use web::forms::Filters;

use crate::console::Console;
use crate::page::Page;
use crate::sign_in::Next;
use crate::sign_in::provider::begin;

/// Let a person prove at a provider that it is they who are signed in.
pub async fn read(console: Console, visit: Visit<SessionScope>, query: Filters<Next>) -> Result<Page, Error> {
    let provider_id = visit.person.target().parameter("provider_id");
    begin(&console, provider_id, Purpose::Prove(visit.scope.session()), query.sent("next")).await
}
