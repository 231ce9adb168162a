//! GET /console/account/second-factor

pub mod passkeys;
pub mod recovery_codes;
pub mod remove;
pub mod totp;

use accounts::passkeys::{self as operations, Passkey, relying_party};
use accounts::second_factor::{self, SecondFactor};
use api::gate::{SessionScope, Visit};
use askama::Template;
use kernel::error::Error;
use web::input::NoInput;

use crate::account::{Tab, tabs};
use crate::console::Console;
use crate::page::Page;
use crate::shell::Shell;
use crate::show;

#[derive(Template)]
#[template(path = "account/second_factor/state.html")]
struct StatePage {
    tabs: Vec<Tab>,
    shell: Shell,
    factor: SecondFactor,
    /// `true` if the user can add an app.
    is_offered: bool,
    passkeys: Vec<Passkey>,
    /// The origin of the pages on which passkeys work, if the user can add a passkey.
    passkeys_at: Option<String>,
    /// `true` if passkeys are unavailable because the server is reached by IP address.
    is_at_address: bool,
}

/// Show the user's second factor.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let is_offered = console.accounts.settings.sign_in.totp;
    let passkeys = operations::list(&console.accounts, visit.scope.user_id()).await?;
    let passkeys_at = console.accounts.passkeys().ok().map(|party| party.origin().to_owned());
    let is_at_address =
        console.accounts.settings.sign_in.passkeys && relying_party::has_address(&console.public_url);
    let tabs = tabs(&shell);
    Page::new(&StatePage { tabs, shell, factor, is_offered, passkeys, passkeys_at, is_at_address })
}

#[derive(Template)]
#[template(path = "account/second_factor/codes.html")]
struct CodesPage {
    shell: Shell,
    /// The title, which describes the completed action.
    title: &'static str,
    codes: Vec<String>,
}

/// Shows recovery codes. They can't be shown again.
async fn show_codes(
    console: &Console,
    visit: &Visit<SessionScope>,
    title: &'static str,
    codes: Vec<String>,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    Page::new(&CodesPage { shell, title, codes })
}
