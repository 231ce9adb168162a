//! `/` and `/console`, which redirect to a page of the console, and paths without a page.

use api::gate::{OpenVisit, Visit, Visitor};
use kernel::error::{Code, Error};
use tenants::access::PersonScope;
use web::input::NoInput;

use crate::console::Console;
use crate::page::Page;

/// Redirect to the console.
pub async fn redirect(console: Console, _: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    Page::see_other(&console.link("/"))
}

/// Redirect to the user's newest organization, or to the list if the user has none.
pub async fn read(console: Console, visit: Visit<PersonScope>, _: NoInput) -> Result<Page, Error> {
    let caller = visit.person.caller()?;
    let navigation = tenants::navigation::read(&console.tenants, &caller, None, None).await?;
    let newest = navigation.organizations.first();
    let path =
        newest.map_or_else(|| "/organizations".to_owned(), |newest| format!("/organizations/{}", newest.id));
    Page::see_other(&console.link(&path))
}

/// Show that the page doesn't exist.
pub async fn not_found(_: Console, _: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    Err(Code::UnknownPath.into())
}
