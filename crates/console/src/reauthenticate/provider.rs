//! GET /console/reauthenticate/{provider_id}

use accounts::sign_in::provider::Purpose;
use api::gate::{Beginning, SessionScope, Visit};
use kernel::error::Error;
use web::forms::Filters;

use crate::console::Console;
use crate::links;
use crate::page::Page;
use crate::sign_in::Next;
use crate::sign_in::provider::begin;

/// Confirm the user's identity with a provider. A request that doesn't come from one of our pages is
/// redirected to the page that has this link.
pub async fn read(
    console: Console,
    call: Beginning<Visit<SessionScope>>,
    query: Filters<Next>,
) -> Result<Page, Error> {
    let next = query.sent("next");
    let Some(from) = call.from else {
        return Page::see_other(&console.link(&format!("/reauthenticate{}", links::next_query(next))));
    };
    let provider_id = call.visit.person.target().parameter("provider_id");
    begin(&console, from, provider_id, Purpose::Prove(call.visit.scope.session()), next).await
}
