//! GET and POST /console/account/second-factor/remove

use accounts::second_factor;
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::{Code, Error};
use web::input::NoInput;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;
use crate::shell::Shell;

#[derive(Template)]
#[template(path = "account/second_factor/remove.html")]
struct RemovePage {
    shell: Shell,
    /// `true` if it is the only second factor.
    is_last_factor: bool,
}

/// Ask whether to remove the second factor.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    if factor.totp_since.is_none() {
        return Err(Code::SecondFactorNotFound.into());
    }
    let is_last_factor = factor.passkeys == 0 || !factor.passkeys_ask;
    Page::new(&RemovePage { shell: Shell::read(&console, &visit.person).await?, is_last_factor })
}

/// Remove the second factor.
pub async fn create(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let scope = &visit.scope;
    let is_password_enough =
        second_factor::remove_totp(&console.accounts, scope.trail(), scope.session()).await?;
    let done = if is_password_enough { Done::SecondFactorRemoved } else { Done::TotpRemoved };
    Page::done(&console.link("/account/second-factor"), done)
}
