//! POST /console/sign-out

use accounts::sessions;
use api::gate::{OpenVisit, SessionCookie, Visitor};
use http::{HeaderName, HeaderValue, header};
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

/// Sign out: end the session, and clear the browser's cookie and cache.
pub async fn create(console: Console, visit: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    if let Some(session) = visit.session {
        sessions::end(&console.accounts, visit.scope.trail(), session).await?;
    }
    let cookie = SessionCookie::new(&console.public_url).remove()?;
    let cache = (HeaderName::from_static("clear-site-data"), HeaderValue::from_static("\"cache\""));
    let page = Page::done(&console.link("/sign-in"), Done::SignedOut)?;
    Ok(page.with_header(header::SET_COOKIE, cookie).with_header(cache.0, cache.1))
}
