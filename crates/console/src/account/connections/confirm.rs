//! GET and POST /console/account/connections/confirm

use accounts::connections;
use accounts::sign_in::provider::PendingConnection;
use api::gate::{ConfirmVisit, SessionCookie, SessionScope};
use askama::Template;
use http::header;
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "account/connections/confirm.html")]
struct ConfirmPage {
    shell: Shell,
    /// The provider's name.
    provider: String,
    pending: PendingConnection,
}

/// Ask whether to connect the account to the identity at the provider.
pub async fn read(console: Console, call: ConfirmVisit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let Some(pending) = call.pending else {
        return Page::see_other(&console.link("/account/connections"));
    };
    let provider = connections::provider_name(&console.accounts, pending.provider_id());
    let shell = Shell::read(&console, &call.visit.person).await?;
    Page::new(&ConfirmPage { shell, provider, pending })
}

/// Connect the account.
pub async fn create(console: Console, call: ConfirmVisit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let page = &console.link("/account/connections");
    let Some(pending) = &call.pending else {
        return Page::see_other(page);
    };
    let scope = &call.visit.scope;
    connections::confirm(&console.accounts, scope.trail(), scope.session(), pending).await?;
    let removed = SessionCookie::of_connection(&console.public_url).remove()?;
    Ok(Page::done(page, Done::Connected)?.with_header(header::SET_COOKIE, removed))
}
