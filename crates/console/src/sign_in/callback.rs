//! GET /console/sign-in/{provider_id}/callback

use accounts::sign_in::BrowserStep;
use accounts::sign_in::provider::{self, Finished, Outcome, PENDING_CONNECTION_MS, PendingConnection};
use api::Api;
use api::gate::{SessionCookie, SignOnVisit};
use http::header;
use input::record;
use input::types::Text;
use kernel::clock::SECOND_MS;
use kernel::error::Error;
use sign_on::Callback;
use web::forms::Filters;

use super::{CONFIRM, ask_for_code, enter};
use crate::console::Console;
use crate::page::Page;

record! {
    /// A provider's response.
    #[derive(Debug)]
    pub struct Answer in Api {
        code: Option<Text<20000>> = optional,
        state: Option<Text<500>> = optional,
        iss: Option<Text<500>> = optional,
        error: Option<Text<20000>> = optional,
    }
}

/// Process a provider's response, and sign in, or ask whether to connect the account.
pub async fn read(console: Console, visit: SignOnVisit, query: Filters<Answer>) -> Result<Page, Error> {
    let SignOnVisit { sealed, visit } = visit;
    let sent = |name| Some(query.sent(name)).filter(|text| !text.is_empty());
    let callback = Callback {
        code: sent("code"),
        state: query.sent("state"),
        issuer: sent("iss"),
        error: sent("error"),
    };
    let provider_id = visit.target.parameter("provider_id");
    let trail = visit.scope.trail();
    let browser = (visit.session, visit.scope.user_agent());
    let finished =
        provider::finish(&console.accounts, trail, (provider_id, sealed.as_deref()), &callback, browser);
    let Finished { outcome, next } = finished.await?;
    let page = match outcome {
        Outcome::Account(BrowserStep::SignedIn(login)) => enter(&console, &visit, &login, &next).await?,
        Outcome::Account(BrowserStep::CodeDue(pending)) => ask_for_code(&console, &pending, &next)?,
        Outcome::Connect(pending) => ask(&console, &pending, CONFIRM)?,
        Outcome::Conflict(pending) => {
            let is_signed_in = visit.session.is_some_and(|session| pending.is_for(session.user_id));
            ask(&console, &pending, if is_signed_in { CONFIRM } else { "/sign-in/confirm" })?
        }
    };
    let removed = SessionCookie::of_sign_on(&console.public_url).remove()?;
    Ok(page.with_header(header::SET_COOKIE, removed))
}

/// Redirects the browser to a page that asks about a pending connection.
fn ask(console: &Console, pending: &PendingConnection, page: &str) -> Result<Page, Error> {
    let value = pending.seal(&console.accounts)?;
    let cookie = SessionCookie::of_connection(&console.public_url)
        .set(&value, Some(PENDING_CONNECTION_MS / SECOND_MS))?;
    Ok(Page::see_other(&console.link(page))?.with_header(header::SET_COOKIE, cookie))
}
