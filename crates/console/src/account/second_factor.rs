//! GET /console/account/second-factor

pub mod recovery_codes;
pub mod remove;
pub mod totp;

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
    /// `true` if an app may be added.
    is_offered: bool,
}

/// Show the person's second factor.
pub async fn read(console: Console, visit: Visit<SessionScope>, _: NoInput) -> Result<Page, Error> {
    let factor = second_factor::read(&console.accounts, visit.scope.user_id()).await?;
    let shell = Shell::read(&console, &visit.person).await?;
    let is_offered = console.accounts.settings.sign_in.totp;
    Page::new(&StatePage { tabs: tabs(&shell), shell, factor, is_offered })
}

#[derive(Template)]
#[template(path = "account/second_factor/codes.html")]
struct CodesPage {
    shell: Shell,
    /// What has been done.
    title: &'static str,
    codes: Vec<String>,
}

/// Shows recovery codes, this once.
async fn show_codes(
    console: &Console,
    visit: &Visit<SessionScope>,
    title: &'static str,
    codes: Vec<String>,
) -> Result<Page, Error> {
    let shell = Shell::read(console, &visit.person).await?;
    Page::new(&CodesPage { shell, title, codes })
}
