//! GET and POST /console/sign-in/confirm

use accounts::{connections, passwords};
use api::gate::{OpenVisit, Visitor};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use super::{passkey_button, provider_links};
use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "confirm_connection.html")]
struct ConfirmPage {
    shell: Shell,
    /// The account's address.
    email: String,
    /// `true` if the address was verified.
    is_verified: bool,
    /// The name of the provider that the user comes from.
    provider: String,
    /// `true` if users can sign in to this server with a password.
    is_password_taken: bool,
    /// `true` if passkeys can be used on this server.
    has_passkeys: bool,
    /// The other providers.
    others: Vec<(String, String)>,
}

/// Show that an account with the address exists, and the methods to prove its ownership.
pub async fn read(console: Console, visit: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    let Some(pending) = &visit.pending_connection else {
        return Page::see_other(&console.link("/sign-in"));
    };
    let provider = connections::provider_name(&console.accounts, pending.provider_id());
    let mut others = provider_links(&console, "/sign-in", "");
    others.retain(|(_, name)| *name != provider);
    Page::new(&ConfirmPage {
        shell: Shell::without_person(&console, &visit.target),
        email: pending.email.clone(),
        is_verified: pending.is_verified,
        provider,
        is_password_taken: console.accounts.settings.sign_in.passwords,
        has_passkeys: passkey_button(&console)?.is_some(),
        others,
    })
}

/// Send a link for a new password to the address, which was never verified.
///
/// The owner of the mailbox takes over the account. All access that others have gained to it before is
/// revoked.
pub async fn create(console: Console, visit: OpenVisit<Visitor>, _: NoInput) -> Result<Page, Error> {
    let Some(pending) = visit.pending_connection.as_ref().filter(|pending| !pending.is_verified) else {
        return Page::see_other(&console.link("/sign-in"));
    };
    passwords::request_reset(&console.accounts, visit.scope.trail(), &pending.email).await?;
    Page::done(&console.link("/sign-in"), Done::ResetRequested)
}
