//! GET and POST /console/account/second-factor/passkeys/{passkey_id}/remove

use accounts::passkeys::{self as operations, Passkey};
use accounts::second_factor;
use api::gate::{OwnPasskeyScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "account/second_factor/passkeys/remove.html")]
struct RemovePage {
    shell: Shell,
    passkey: Passkey,
    /// `true` if it is the only second factor.
    is_last_factor: bool,
}

/// Ask whether to remove a passkey.
pub async fn read(console: Console, visit: Visit<OwnPasskeyScope>, _: NoInput) -> Result<Page, Error> {
    let user_id = visit.scope.caller().user_id();
    let passkey = operations::read(&console.accounts, user_id, visit.scope.named()).await?;
    let factor = second_factor::read(&console.accounts, user_id).await?;
    let is_last_factor = factor.is_asked_for() && factor.totp_since.is_none() && factor.passkeys == 1;
    let shell = Shell::read(&console, &visit.person).await?;
    Page::new(&RemovePage { shell, passkey, is_last_factor })
}

/// Remove a passkey.
pub async fn create(console: Console, visit: Visit<OwnPasskeyScope>, _: NoInput) -> Result<Page, Error> {
    let (caller, named) = (visit.scope.caller(), visit.scope.named());
    operations::remove(&console.accounts, caller.trail(), caller.session(), named).await?;
    Page::done(&console.link("/account/second-factor"), Done::PasskeyRemoved)
}
