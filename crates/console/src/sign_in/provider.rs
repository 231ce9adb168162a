//! GET /console/sign-in/{provider_id}

use accounts::sign_in::provider::{self, PENDING_SIGN_ON_MS, Purpose, Started};
use api::gate::{Beginning, OpenVisit, OurPage, SessionCookie, Visitor};
use http::header;
use kernel::clock::SECOND_MS;
use kernel::error::Error;
use web::forms::Filters;

use super::Next;
use crate::console::Console;
use crate::links;
use crate::page::Page;

/// Start a sign-on with a provider.
///
/// Pages contain a link to this path, not a form, because browsers apply a page's content security policy to
/// the redirect that follows a form. A request that doesn't come from one of our pages is redirected to the
/// page that has the link.
pub async fn read(
    console: Console,
    call: Beginning<OpenVisit<Visitor>>,
    query: Filters<Next>,
) -> Result<Page, Error> {
    let next = query.sent("next");
    let Some(from) = call.from else {
        return Page::see_other(&console.link(&format!("/sign-in{}", links::next_query(next))));
    };
    begin(&console, from, call.visit.target.parameter("provider_id"), Purpose::SignIn, next).await
}

/// Redirects the browser to a provider, with the cookies that the sign-on needs when the browser returns.
pub async fn begin(
    console: &Console,
    OurPage { .. }: OurPage,
    provider_id: &str,
    purpose: Purpose,
    next: &str,
) -> Result<Page, Error> {
    let next = links::next(next).unwrap_or_default();
    let Started { url, sealed } = provider::begin(&console.accounts, provider_id, purpose, next).await?;
    let cookie =
        SessionCookie::of_sign_on(&console.public_url).set(&sealed, Some(PENDING_SIGN_ON_MS / SECOND_MS))?;
    Ok(Page::see_other(&url)?.with_header(header::SET_COOKIE, cookie))
}
